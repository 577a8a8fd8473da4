"""The routes of pools of GPUs and of what people say of cards; a part of the one table in `routes.py`."""

from __future__ import annotations

from typing import Final

from deploy.api import poolshapes, shapes
from deploy.api.route import JSON, REFUSED, STRING, UNAVAILABLE, UNKNOWN, Answer, Body, Parameter, Route

_POOL = Parameter("name", "Name of a pool.", STRING, required=True)
_CARD = (
    Parameter("node", "Name of a node.", STRING, required=True),
    Parameter("card", "Id of one of its cards.", STRING, required=True),
)
_MARKED = Answer(200, "It is said, and stands until the contrary is.", poolshapes.MarkedCard)

POOL_ROUTES: Final = (
    Route(
        "GET", "/v1alpha1/pools", "list_pools", "Declared pools of GPUs with their status.",
        (Answer(200, "The pools, by name.", poolshapes.PoolList),),
    ),
    Route(
        "GET", "/v1alpha1/pools/{name}", "get_pool", "One pool.",
        (Answer(200, "The pool.", poolshapes.PoolItem), UNKNOWN), parameters=(_POOL,),
    ),
    Route(
        "DELETE", "/v1alpha1/pools/{name}", "delete_pool", "Let the defaults hold again.",
        (Answer(200, "It is deleted.", shapes.Deleted), UNKNOWN, UNAVAILABLE), parameters=(_POOL,),
    ),
    Route(
        "PUT", "/v1alpha1/gpus/{node}/{card}/cordon", "cordon_card", "Place nothing new on a card.",
        (_MARKED, UNKNOWN, REFUSED, UNAVAILABLE), parameters=_CARD,
        body=Body("Why, or nothing.", (JSON,), poolshapes.CardBody),
    ),
    Route(
        "DELETE", "/v1alpha1/gpus/{node}/{card}/cordon", "uncordon_card",
        "A card may be used, and nothing of runs that have ended is on it any more: a person has looked.",
        (_MARKED, UNKNOWN, UNAVAILABLE), parameters=_CARD,
    ),
)  # fmt: skip
