"""From a plain document to what it declares, or to every problem it has, in the words of `SpecProblem`."""

from __future__ import annotations

import copy
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from deploy.spec.document import API_VERSION, CROSS_FIELD
from deploy.spec.kinds import KINDS, Document, Kind
from deploy.spec.mig import REPORTED
from deploy.spec.model import Model
from deploy.spec.pool import GpuPool
from deploy.spec.problem import SpecProblem, SpecRefused, path_text
from deploy.spec.training import TrainingJob
from runtime.adapters.registry import options_model
from runtime.spec import EngineSpec, EngineType

Loc = tuple[str | int, ...]

D = TypeVar("D", Model, TrainingJob, GpuPool)

_TYPES = {
    "string_type": ("must be text", "put it in quotes"),
    "int_type": ("must be a whole number", "write digits only, without quotes, point or unit"),
    "int_parsing": ("must be a whole number", "write digits only"),
    "int_from_float": ("must be a whole number", "write it without a fraction"),
    "float_type": ("must be a number", "write digits, without quotes or units"),
    "float_parsing": ("must be a number", "write digits, without quotes or units"),
    "bool_type": ("must be true or false", "write true or false"),
    "bool_parsing": ("must be true or false", "write true or false"),
    "model_type": ("must be a mapping of fields", "write fields below it, indented"),
    "dict_type": ("must be a mapping of fields", "write `name: value` below it, indented"),
    "tuple_type": ("must be a list", "write [a, b] or one `- item` a line"),
    "list_type": ("must be a list", "write [a, b] or one `- item` a line"),
}
"""What pydantic's type errors mean, in our words: rule and remedy."""

_BOUNDS = {
    "greater_than": ("must be more than {gt}", "write more"),
    "greater_than_equal": ("must be at least {ge}", "write {ge} or more"),
    "less_than": ("must be less than {lt}", "write less"),
    "less_than_equal": ("must be at most {le}", "write {le} or less"),
    "string_too_short": ("must have at least {min_length} characters", "write it out"),
    "string_too_long": ("must have at most {max_length} characters", "shorten it"),
    "too_short": ("must have at least {min_length} entries", "add to it"),
    "too_long": ("must have at most {max_length} entries", "leave some out"),
}

_PATTERN_REMEDIES = {
    "name": "use lower case letters, digits and hyphens, at most 63, beginning and ending with a letter or digit",
    "aliases": "use letters, digits and . _ : - in parts joined by single slashes",
    "labels": "use Kubernetes' form: letters, digits and . _ -, at most 63",
    "annotations": "use Kubernetes' form for the key: letters, digits and . _ -, at most 63",
    "environment": "use letters, digits and _, and no digit first",
}


def check(document: object, reported: Collection[str] | None = ()) -> Document:
    """What a plain document (as JSON or YAML gives it) declares; SpecRefused with every problem otherwise. `reported`:
    MIG profiles that are right though our table lacks them, since cards report them; None: all that could be one."""
    problems = list(_head_problems(document))
    if problems:
        raise SpecRefused(problems)
    assert isinstance(document, Mapping)  # else there was a problem
    kind = KINDS[document["kind"]]
    try:
        return _validated(kind, document, reported)
    except ValidationError as error:
        raise SpecRefused(_all_problems(kind, document, error, reported)) from None


def check_as(shape: type[D], document: object) -> D:
    """As `check`, where only this kind has a meaning. A declaration that was taken once is so again, whatever cards are
    there."""
    checked = check(document, None)
    if not isinstance(checked, shape):
        rule = f"there must be a {shape.__name__} here"
        raise SpecRefused([SpecProblem("kind", checked.kind, rule, f"declare kind: {shape.__name__}")])
    return checked


def _validated(kind: Kind, document: object, reported: Collection[str] | None) -> Document:
    """As JSON, strictly: ``"4"`` is no number and ``true`` no 1, while lists and names of enums are what they are."""
    return kind.shape.model_validate_json(json.dumps(document), strict=True, context={REPORTED: reported})


def _head_problems(document: object) -> Iterator[SpecProblem]:
    """What is wrong with apiVersion and kind: where these are not ours, the rest has no meaning yet."""
    if not isinstance(document, Mapping):
        yield SpecProblem("", document, "a document must be a mapping", f"begin with apiVersion: {API_VERSION}")
        return
    version, kind = document.get("apiVersion"), document.get("kind")
    if version != API_VERSION:
        rule = "apiVersion is missing" if version is None else "this apiVersion is not known"
        yield SpecProblem("apiVersion", version, rule, f"write apiVersion: {API_VERSION}")
    if not isinstance(kind, str) or kind not in KINDS:
        rule = "kind is missing" if kind is None else f"there is no kind {kind!r}"
        near = _nearest(str(kind), list(KINDS)) or " or ".join(KINDS)
        yield SpecProblem("kind", kind, rule, f"write kind: {near}")


def _all_problems(
    kind: Kind, document: object, error: ValidationError, reported: Collection[str] | None
) -> list[SpecProblem]:
    """The problems of the fields, and the broken rules between those fields that are right."""
    found = error.errors(include_url=False)
    if found[0]["type"] == "json_invalid":  # a lone surrogate, or nesting deeper than any declaration
        rule = f"it cannot be read: {found[0]['msg'].removeprefix('Invalid JSON: ')}"
        return [SpecProblem("", None, rule, "remove escapes such as \\ud800, and nest less")]
    rules: Sequence[Any] = []
    if any(one["type"] != CROSS_FIELD for one in found):
        rules = _rules_without(kind, document, [one["loc"] for one in found], reported)
    problems = [_problem(document, one) for one in (*found, *rules)]
    return list({(problem.path, problem.rule): problem for problem in problems}.values())


def _rules_without(kind: Kind, document: object, wrong: Sequence[Loc], reported: Collection[str] | None) -> list[Any]:
    """The rules between fields that are broken when the fields at `wrong` are left out (their defaults stand in)."""
    pruned = copy.deepcopy(document)
    left_out: set[str] = set()
    for _ in range(len(wrong) + 3):  # leaving one out may break another; a field that is needed and missing stays so
        left_out.update(map(path_text, wrong))
        _leave_out(kind, pruned, wrong)
        try:
            _validated(kind, pruned, reported)
        except ValidationError as error:
            found = error.errors(include_url=False)
            wrong = [one["loc"] for one in found if one["type"] != CROSS_FIELD]
            if not wrong:
                return [one for one in found if one["ctx"]["beside"] not in left_out]
        else:
            break
    return []


def _leave_out(kind: Kind, document: Any, wrong: Sequence[Loc]) -> None:
    for loc in wrong:
        parent: Any = document
        for part in loc[:-1]:
            parent = parent[part] if _has(parent, part) else None
        if isinstance(parent, dict):
            parent.pop(loc[-1], None)
        if loc in kind.stand_ins and isinstance(parent, dict):
            parent |= kind.stand_ins[loc]


def _has(parent: Any, part: str | int) -> bool:
    return (isinstance(parent, dict) and part in parent) or (
        isinstance(parent, list) and isinstance(part, int) and part < len(parent)
    )


def _problem(document: object, error: Any) -> SpecProblem:
    kind, loc, context = error["type"], _real(document, error["loc"]), error.get("ctx", {})
    rule, remedy = _words(document, kind, loc, {**context, "msg": error["msg"]})
    written = _at(document, loc)
    value = None if kind == "missing" else error["input"] if written is None else written
    return SpecProblem(path_text(loc), value, rule, remedy)


def _real(document: object, loc: Loc) -> Loc:
    """`loc` without the steps that pydantic adds for keys of mappings and members of unions."""
    made: list[str | int] = []
    here: Any = document
    for index, part in enumerate(loc):
        if part == "[key]":
            continue
        last = index == len(loc) - 1
        if last or _has(here, part):
            made.append(part)
            here = here[part] if _has(here, part) else None
    return tuple(made)


def _words(document: object, kind: str, loc: Loc, context: Mapping[str, Any]) -> tuple[str, str]:
    """The rule that is broken and the remedy, for one of pydantic's errors."""
    match kind:
        case "cross_field":
            words = context["rule"], context["remedy"]
        case "extra_forbidden":
            words = _unknown_field(document, loc)
        case "missing":
            words = "this field is needed and missing", f"add {loc[-1]}: …"
        case "enum" | "literal_error":
            words = _unknown_word(document, loc, context["expected"])
        case "string_pattern_mismatch":
            words = _wrong_form(loc, context["pattern"])
        case _ if kind in _TYPES:
            words = _TYPES[kind]
        case _ if kind in _BOUNDS:
            numbers = {name: _plain(number) for name, number in context.items()}
            words = _BOUNDS[kind][0].format(**numbers), _BOUNDS[kind][1].format(**numbers)
        case _:
            words = _sentence(str(context["msg"]))
    return words


def _plain(number: object) -> object:
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _sentence(message: str) -> tuple[str, str]:
    """A validator's message ``RULE; REMEDY`` (or ``RULE: …``) taken apart."""
    text = message.removeprefix("Value error, ")
    rule, _, remedy = text.partition("; ")
    return rule, remedy or "docs/reference/ says what is allowed"


def _unknown_word(document: object, loc: Loc, expected: str) -> tuple[str, str]:
    near = _nearest(str(_at(document, loc)), [word.strip("' ") for word in expected.replace(" or ", ",").split(",")])
    return f"must be {expected}", f"did you mean {near}?" if near else "write one of these"


def _wrong_form(loc: Loc, pattern: str) -> tuple[str, str]:
    field = next((str(part) for part in loc[1:] if part in _PATTERN_REMEDIES), "")
    return "the text has a form that is not allowed here", _PATTERN_REMEDIES.get(field, f"match the pattern {pattern}")


def _unknown_field(document: object, loc: Loc) -> tuple[str, str]:
    names = _fields_at(document, loc[:-1])
    near = _nearest(str(loc[-1]), names)
    remedy = f"did you mean {near}?" if near else f"leave it out; there are {', '.join(names)}"
    return f"there is no field {loc[-1]} here", remedy


def _fields_at(document: object, loc: Loc) -> list[str]:
    """The names of the fields at a place of the document."""
    model: type[BaseModel] = KINDS[str(_at(document, ("kind",)))].shape
    for part in loc:
        if model is EngineSpec and part == "options":
            model = options_model(EngineType(str(_at(document, ("spec", "engine", "type")))))
            continue
        for field in model.model_fields.values():
            if field.alias == part and (inner := model_in(field.annotation)) is not None:
                model = inner
                break
    return [str(field.alias) for field in model.model_fields.values()]


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The pydantic model that an annotation holds, also inside ``X | None`` and ``Annotated``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((inner for part in get_args(annotation) if (inner := model_in(part)) is not None), None)


def _at(document: Any, loc: Loc) -> object:
    for part in loc:
        if not _has(document, part):
            return None
        document = document[part]
    return document


def _nearest(word: str, known: Sequence[str]) -> str:
    by_lower = {name.lower(): name for name in known}
    near = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[near[0]] if near else ""
