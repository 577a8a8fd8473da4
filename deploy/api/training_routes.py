"""The routes of training jobs and reclaims; a part of the one table in `routes.py`."""

from __future__ import annotations

from typing import Final

from deploy.api import shapes, trainingshapes
from deploy.api.route import BAD, FOLLOW, JSON, STRING, TAIL, TEXT, UNAVAILABLE, UNKNOWN, Answer, Body, Parameter, Route

_JOB = Parameter("name", "Name of a training job.", STRING, required=True)
_MEMBER = Parameter("member", "Which member, such as tune-0; absent: the first.", STRING)
_RECLAIM = Parameter("name", "Id of a reclaim.", STRING, required=True)
_ENDED = Answer(409, "It was cancelled, so it cannot be paused.", shapes.Problem)
_PURGE = Parameter(
    "purge", "Whether the folder that it has of its own goes too, with the checkpoints in it.",
    {"type": "boolean", "default": False},
)  # fmt: skip
_NOTHING = Body("Nothing, or {}.", (JSON,))


def _done(text: str) -> Answer:
    return Answer(200, text, trainingshapes.TrainingItem)


TRAINING_ROUTES: Final = (
    Route(
        "GET", "/v1alpha1/training", "list_training", "Declared training jobs with their status.",
        (Answer(200, "The jobs, by name.", trainingshapes.TrainingList),),
    ),
    Route(
        "GET", "/v1alpha1/training/{name}", "get_training", "One training job.",
        (_done("The job."), UNKNOWN), parameters=(_JOB,),
    ),
    Route(
        "DELETE", "/v1alpha1/training/{name}", "delete_training", "End a job for good, and forget it.",
        (Answer(200, "It is deleted.", shapes.Deleted), BAD, UNKNOWN, UNAVAILABLE), parameters=(_JOB, _PURGE),
    ),
    Route(
        "PUT", "/v1alpha1/training/{name}/pause", "pause_training", "Have a job save and give its GPUs back.",
        (_done("The job, paused."), UNKNOWN, _ENDED, UNAVAILABLE), parameters=(_JOB,), body=_NOTHING,
    ),
    Route(
        "DELETE", "/v1alpha1/training/{name}/pause", "resume_training",
        "Let a job go on that was paused, cancelled, or failed too often.",
        (_done("The job, neither paused nor cancelled any more."), UNKNOWN, UNAVAILABLE), parameters=(_JOB,),
    ),
    Route(
        "PUT", "/v1alpha1/training/{name}/cancel", "cancel_training", "End a job; it stays listed, and may be resumed.",
        (_done("The job, cancelled."), UNKNOWN, UNAVAILABLE), parameters=(_JOB,), body=_NOTHING,
    ),
    Route(
        "GET", "/v1alpha1/training/{name}/logs", "training_logs", "What a member of a job wrote.",
        (Answer(200, "Lines of text.", content_type=TEXT), BAD,
         Answer(404, "There is no such job or member, or its output is not here.", shapes.Problem), UNAVAILABLE),
        parameters=(_JOB, _MEMBER, TAIL, FOLLOW),
        stream=True,
    ),
    Route(
        "GET", "/v1alpha1/reclaims", "list_reclaims", "Attempts to take the GPUs of training jobs, the newest last.",
        (Answer(200, "The reclaims.", trainingshapes.ReclaimList), BAD),
        parameters=(
            Parameter("job", "Only those that have this job yield.", STRING),
            Parameter("model", "Only those for this model.", STRING),
            Parameter("limit", "At most so many.",
                      {"type": "integer", "minimum": 1, "maximum": 10_000, "default": 200}),
            Parameter("since", "Read back from the log: those whose newest state is not older than this RFC 3339 time. "
                      "Absent: the newest 1,000 that ended, and those that go on.", STRING),
            Parameter("until", "And older than this; `before` of an answer is the `until` of the page before it.",
                      STRING),
        ),
    ),
    Route(
        "GET", "/v1alpha1/reclaims/{name}", "get_reclaim", "One reclaim.",
        (Answer(200, "The reclaim.", trainingshapes.ReclaimItem), UNKNOWN), parameters=(_RECLAIM,),
    ),
    Route(
        "GET", "/v1alpha1/reclaims/{name}/explain", "explain_reclaim", "One reclaim, told from its beginning.",
        (Answer(200, "In sentences.", trainingshapes.ReclaimExplanation), UNKNOWN), parameters=(_RECLAIM,),
    ),
)  # fmt: skip
