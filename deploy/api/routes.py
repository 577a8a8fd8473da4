"""The one table of routes: the server binds it, the OpenAPI document is made of it, tests walk it."""

from __future__ import annotations

from typing import Final

from deploy.api import gpushapes, shapes
from deploy.api.pool_routes import POOL_ROUTES
from deploy.api.route import (
    BAD,
    CLOUDEVENT,
    CLOUDEVENTS,
    FOLLOW,
    JSON,
    LIMIT,
    NDJSON,
    REFUSED,
    SSE,
    STRING,
    TAIL,
    TEXT,
    UNAVAILABLE,
    UNKNOWN,
    YAML,
    Answer,
    Body,
    Parameter,
    Route,
)
from deploy.api.training_routes import TRAINING_ROUTES
from deploy.api.weight_routes import WEIGHT_ROUTES

_MODEL = Parameter("name", "Name of a model.", STRING, required=True)
_REPLICA = Parameter("name", "Name of a replica.", STRING, required=True)
_OF_MODEL = Parameter("model", "Only this model's.", STRING)
_FIRST = Parameter("limit", "The first so many; absent: all.", {"type": "integer", "minimum": 1})
_DRY_RUN = Parameter("dryRun", "Say what would happen and write nothing.", {"type": "boolean", "default": False})

_EVENT_FILTERS = (
    Parameter(
        "topic", "Only these topics, such as relume.decisions; may be repeated.", {"type": "array", "items": STRING}
    ),
    _OF_MODEL,
    Parameter(
        "from", "beginning, now, or an RFC 3339 time.",
        {"type": "string", "examples": ["beginning", "now", "2026-11-29T18:53:42Z"]},
    ),
)  # fmt: skip

ROUTES: Final = (
    Route("GET", "/healthz", "healthz", "Whether the process lives.", (Answer(200, "It does.", shapes.Health),)),
    Route(
        "GET", "/readyz", "readyz", "Whether the process can do its work.",
        (Answer(200, "It can.", shapes.ReadinessShape), Answer(503, "Not yet, and why.", shapes.ReadinessShape)),
    ),
    Route(
        "GET", "/metrics", "metrics", "Metrics in Prometheus's exposition format.",
        (Answer(200, "The metrics.", content_type=TEXT),),
    ),
    Route(
        "GET", "/openapi.json", "openapi", "This document.",
        (Answer(200, "OpenAPI 3.1.", content_type=JSON),),
    ),
    Route(
        "POST", "/v1alpha1/apply", "apply", "Declare models, training jobs and pools: all documents or none.",
        (Answer(200, "What became of each document.", shapes.ApplyResult), BAD, REFUSED,
         Answer(409, "An alias belongs to another model.", shapes.Problem),
         Answer(413, "The body is too large.", shapes.Problem), UNAVAILABLE),
        parameters=(_DRY_RUN,),
        body=Body("One or more documents, as `relume apply -f` takes them.", (YAML, JSON)),
    ),
    Route(
        "GET", "/v1alpha1/models", "list_models", "Declared models with their status.",
        (Answer(200, "The models, by name.", shapes.ModelList),),
    ),
    Route(
        "POST", "/v1alpha1/models", "apply_models", "As apply; for programs that know of models only.",
        (Answer(200, "What became of each document.", shapes.ApplyResult), BAD, REFUSED,
         Answer(409, "An alias belongs to another model.", shapes.Problem),
         Answer(413, "The body is too large.", shapes.Problem), UNAVAILABLE),
        parameters=(_DRY_RUN,),
        body=Body("One or more documents, as `relume apply -f` takes them.", (YAML, JSON)),
    ),
    Route(
        "GET", "/v1alpha1/models/{name}", "get_model", "One model, by name or alias.",
        (Answer(200, "The model.", shapes.ModelItem), UNKNOWN), parameters=(_MODEL,),
    ),
    Route(
        "DELETE", "/v1alpha1/models/{name}", "delete_model", "Declare a model no longer; its replicas drain.",
        (Answer(200, "It is deleted.", shapes.Deleted), UNKNOWN, UNAVAILABLE), parameters=(_MODEL,),
    ),
    Route(
        "PUT", "/v1alpha1/models/{name}/scale", "scale_model", "A person's number of replicas for a while.",
        (Answer(200, "The model, with its override.", shapes.ModelItem), BAD, UNKNOWN, REFUSED, UNAVAILABLE),
        parameters=(_MODEL,), body=Body("How many, and for how long.", (JSON,), shapes.ScaleBody),
    ),
    Route(
        "DELETE", "/v1alpha1/models/{name}/scale", "unscale_model", "Let the autoscaler decide again.",
        (Answer(200, "The model, without an override.", shapes.ModelItem), UNKNOWN, UNAVAILABLE),
        parameters=(_MODEL,),
    ),
    Route(
        "GET", "/v1alpha1/models/{name}/explain", "explain_model", "Why the last decision was taken.",
        (Answer(200, "In sentences and in numbers.", shapes.ExplainResult), UNKNOWN), parameters=(_MODEL,),
    ),
    Route(
        "GET", "/v1alpha1/replicas", "list_replicas", "Replicas that exist.",
        (Answer(200, "The replicas, by name.", shapes.ReplicaList),), parameters=(_OF_MODEL,),
    ),
    Route(
        "GET", "/v1alpha1/replicas/{name}/logs", "replica_logs", "What a replica wrote.",
        (Answer(200, "Lines of text.", content_type=TEXT), BAD, UNKNOWN, UNAVAILABLE),
        parameters=(
            _REPLICA,
            TAIL,
            FOLLOW,
        ),
        stream=True,
    ),
    Route(
        "GET", "/v1alpha1/events", "list_events", "Events of the log as CloudEvents, one JSON object a line.",
        (Answer(200, "CloudEvents.", content_type=NDJSON), BAD, UNAVAILABLE),
        parameters=(*_EVENT_FILTERS, _FIRST, FOLLOW),
        stream=True,
    ),
    Route(
        "GET", "/v1alpha1/events/stream", "stream_events",
        "Events of the log as server-sent events. A reader that comes back with Last-Event-ID goes on there.",
        (Answer(200, "Server-sent events; `data` is a CloudEvent.", content_type=SSE), BAD, UNAVAILABLE),
        parameters=_EVENT_FILTERS, stream=True,
    ),
    Route(
        "POST", "/v1alpha1/events", "append_events", "Tell what happened elsewhere: demand, backlogs, signals.",
        (Answer(200, "They stand in the log.", shapes.Accepted), BAD,
         Answer(403, "Events of this type have one writer, and it is not you.", shapes.Problem), UNAVAILABLE),
        body=Body("One CloudEvent in structured mode, or a batch.", (CLOUDEVENT, CLOUDEVENTS, JSON)),
    ),
    Route(
        "GET", "/v1alpha1/decisions", "list_decisions", "Recorded decisions, newest first.",
        (Answer(200, "The decisions.", shapes.DecisionList), BAD), parameters=(_OF_MODEL, LIMIT),
    ),
    Route(
        "GET", "/v1alpha1/dead-letters", "list_dead_letters", "Events that could not be read, newest first.",
        (Answer(200, "The dead letters.", shapes.DeadLetterList), BAD), parameters=(LIMIT,),
    ),
    Route(
        "GET", "/v1alpha1/gpus", "gpus", "Cards, who holds them, what is free, and how fragmented that is.",
        (Answer(200, "The inventory.", gpushapes.GpuInventory), BAD),
    ),
    Route(
        "GET", "/v1alpha1/gpus/moves", "gpu_moves", "Moves that would make free cards of use again. Nothing is moved.",
        (Answer(200, "The plan.", gpushapes.GpuMoves), BAD),
    ),
    Route(
        "POST", "/v1alpha1/plan", "plan_models", "What would become of models and jobs if applied. Nothing is done.",
        (Answer(200, "One answer a document.", gpushapes.PlannedModels), BAD, REFUSED,
         Answer(413, "The body is too large.", shapes.Problem)),
        parameters=(
            Parameter("replicas", "How many replicas more.",
                      {"type": "integer", "minimum": 1, "maximum": 500, "default": 1}),
        ),
        body=Body("One or more documents, as `relume apply -f` takes them.", (YAML, JSON)),
    ),
    *WEIGHT_ROUTES,
    Route(
        "GET", "/v1alpha1/top", "top", "The load of every model and node, now.",
        (Answer(200, "The load.", shapes.Top),),
    ),
    *TRAINING_ROUTES,
    *POOL_ROUTES,
)  # fmt: skip
"""Every operation of the admin API."""
