"""The routes about weights and cold starts."""

from __future__ import annotations

from typing import Final

from deploy.api import gpushapes, shapes, weightshapes
from deploy.api.route import BAD, JSON, STRING, UNAVAILABLE, UNKNOWN, Answer, Body, Parameter, Route

_NAME = Parameter("name", "Name of a model.", STRING, required=True)
_ELSEWHERE = Answer(421, "This process does not look after a node's weights.", shapes.Problem)
_NO_GPUS = Answer(421, "This process does not look after a node's GPUs.", shapes.Problem)
_HELD = Answer(409, "They are in use, or pinned.", shapes.Problem)
_NO = Answer(502, "They cannot be had, and why.", shapes.Problem)
_WRONG = Answer(422, "The body is wrong, field by field.", shapes.Problem)

WEIGHT_ROUTES: Final = (
    Route(
        "GET", "/v1alpha1/node/gpus", "seen_gpus",
        "What the GPUs of the agent's node say; with after=VERSION once that has changed, or after some seconds.",
        (Answer(200, "Its GPUs.", gpushapes.NodeGpusSeen), BAD, _NO_GPUS),
        parameters=(Parameter("after", "The version that is known already.", {"type": "integer", "minimum": 0}),),
    ),
    Route(
        "POST", "/v1alpha1/node/gpus/look", "look_at_gpus", "Look at the GPUs of the agent's node now.",
        (Answer(200, "Its GPUs.", gpushapes.NodeGpusSeen), _NO_GPUS),
    ),
    Route(
        "GET", "/v1alpha1/caches", "list_caches", "Weights on each node, fetches, and how far models are from a token.",
        (Answer(200, "The caches, by node.", weightshapes.CacheList),),
    ),
    Route(
        "POST", "/v1alpha1/models/{name}/prewarm", "prewarm_model", "Have a model's weights here ahead of demand.",
        (Answer(200, "It is counted on for an hour.", weightshapes.Prewarmed), UNKNOWN, _ELSEWHERE),
        parameters=(_NAME,),
    ),
    Route(
        "POST", "/v1alpha1/cache/fetch", "fetch_weights",
        "Begin to fetch weights, or join; answers when they are here, or after some seconds. Ask again until then.",
        (Answer(200, "How far it has come.", weightshapes.Fetching), BAD, _WRONG, _NO, _ELSEWHERE, UNAVAILABLE),
        body=Body("Which.", (JSON,), weightshapes.FetchBody),
    ),
    Route(
        "POST", "/v1alpha1/cache/have", "have_weights",
        "Have weights here for one who cannot hold them himself; held for an hour. Ask again until they are here.",
        (Answer(200, "How far it has come, or where they are.", weightshapes.Having), BAD, _WRONG, _NO, _ELSEWHERE,
         UNAVAILABLE),
        body=Body("Which, and for whom.", (JSON,), weightshapes.HaveBody),
    ),
    Route(
        "POST", "/v1alpha1/cache/hold", "hold_weights", "Keep what a holder has for another hour, or no longer.",
        (Answer(200, "Done.", weightshapes.Held), BAD, _WRONG, UNKNOWN, _ELSEWHERE),
        body=Body("Whose.", (JSON,), weightshapes.HolderBody),
    ),
    Route(
        "POST", "/v1alpha1/cache/pin", "pin_weights", "Keep weights whatever needs room, or keep them no longer.",
        (Answer(200, "Done.", weightshapes.Named), BAD, _WRONG, UNKNOWN, _ELSEWHERE),
        body=Body("Which.", (JSON,), weightshapes.PinBody),
    ),
    Route(
        "POST", "/v1alpha1/cache/evict", "evict_weights", "Take weights out.",
        (Answer(200, "Done.", weightshapes.Named), BAD, _WRONG, UNKNOWN, _HELD, _ELSEWHERE),
        body=Body("Which.", (JSON,), weightshapes.NameBody),
    ),
    Route(
        "POST", "/v1alpha1/cache/verify", "verify_blob", "Read a file anew, and put it aside where it is wrong.",
        (Answer(200, "Whether it was right.", weightshapes.Verified), BAD, _WRONG, _ELSEWHERE),
        body=Body("Which.", (JSON,), weightshapes.BlobBody),
    ),
    Route(
        "POST", "/v1alpha1/cache/collect", "collect_weights",
        "Clear what crashes and old fetches left, and go below the low watermark.",
        (Answer(200, "What went.", weightshapes.Collected), BAD, _ELSEWHERE),
    ),
    Route(
        "GET", "/v1alpha1/coldstarts", "cold_starts", "Cold starts against their promise, by model and phase.",
        (Answer(200, "The report.", weightshapes.ColdStartReport), BAD),
        parameters=(
            Parameter("model", "Only this model's.", STRING),
            Parameter("since", "Only those since this RFC 3339 time; absent: all that the log has.", STRING),
        ),
    ),
)  # fmt: skip
