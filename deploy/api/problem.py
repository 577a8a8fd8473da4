"""Errors of the admin API as problem details (RFC 9457): what, why, and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Final

from aiohttp import web

from deploy.api.shapes import FieldProblem, Problem

PROBLEM_TYPE: Final = "application/problem+json"


class ProblemError(Exception):
    """An answer that is no: raised by handlers, turned into the problem document by `guard.problems`."""

    def __init__(self, problem: Problem, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(problem.detail)
        self.problem = problem
        self.headers = dict(headers or {})


def refuse(
    status: HTTPStatus, name: str, detail: str, *, remedy: str = "", fields: Iterable[FieldProblem] = ()
) -> ProblemError:
    """The error for `status`; `name` is the last part of its type, ``urn:relume:problem:NAME``."""
    problem = Problem(
        type=f"urn:relume:problem:{name}", title=status.phrase, status=int(status), detail=detail, remedy=remedy,
        problems=list(fields),
    )  # fmt: skip
    return ProblemError(problem)


LISTED_AS: Final = {"training job": "training", "member": "training"}
"""What `relume get` calls those whose list is not called by their plural."""


def unknown(kind: str, name: str, known: Iterable[str]) -> ProblemError:
    """404 with the nearest name that exists."""
    near = difflib.get_close_matches(name, list(known), n=1)
    remedy = f"did you mean {near[0]}?" if near else f"list them with: relume get {LISTED_AS.get(kind, kind + 's')}"
    slug = f"{kind.replace(' ', '-')}-not-found"
    return refuse(HTTPStatus.NOT_FOUND, slug, f"there is no {kind} named {name!r}", remedy=remedy)


def bad_parameter(name: str, value: str, rule: str) -> ProblemError:
    """400 about one query parameter."""
    field = FieldProblem(path=name, value=value, rule="a wrong value", remedy=rule)
    return refuse(HTTPStatus.BAD_REQUEST, "bad-parameter", f"{name} cannot be {value!r}", fields=[field])


def problem_response(error: ProblemError) -> web.Response:
    """The HTTP answer."""
    body = error.problem.model_dump_json(by_alias=True).encode()
    return web.Response(status=error.problem.status, body=body, headers=error.headers, content_type=PROBLEM_TYPE)
