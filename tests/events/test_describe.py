"""The generated reference of the events."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from events.describe import FOLDER, files, kinds, main, schema, stale, write
from events.examples import EXAMPLES
from events.kinds import Kind
from events.names import Topic
from events.payload import encode_data

KINDS = pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.full_name)

REF = {
    "type": "object",
    "required": ["$ref"],
    "properties": {"$ref": {"type": "string"}},
    "additionalProperties": False,
}
ASYNCAPI: dict[str, Any] = {
    "type": "object",
    "required": ["asyncapi", "info"],
    "additionalProperties": False,
    "patternProperties": {"^x-": {}},
    "properties": {
        "asyncapi": {"const": "3.0.0"},
        "info": {
            "type": "object",
            "required": ["title", "version"],
            "properties": {"license": {"type": "object", "required": ["name"]}},
        },
        "defaultContentType": {"type": "string"},
        "channels": {
            "type": "object",
            "patternProperties": {
                "^[A-Za-z0-9._-]+$": {
                    "type": "object",
                    "additionalProperties": False,
                    "patternProperties": {"^x-": {}},
                    "properties": {
                        "address": {"type": ["string", "null"]},
                        "description": {"type": "string"},
                        "messages": {"type": "object", "additionalProperties": REF, "minProperties": 1},
                        "bindings": {"type": "object"},
                    },
                }
            },
            "additionalProperties": False,
        },
        "operations": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "required": ["action", "channel"],
                "additionalProperties": False,
                "properties": {
                    "action": {"enum": ["send", "receive"]},
                    "channel": REF,
                    "summary": {"type": "string"},
                    "messages": {"type": "array", "items": REF},
                },
            },
        },
        "components": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "schemas": {"type": "object", "propertyNames": {"pattern": "^[A-Za-z0-9._-]+$"}},
                "messages": {
                    "type": "object",
                    "propertyNames": {"pattern": "^[A-Za-z0-9._-]+$"},
                    "additionalProperties": {
                        "type": "object",
                        "additionalProperties": False,
                        "properties": {
                            "name": {"type": "string"},
                            "title": {"type": "string"},
                            "description": {"type": "string"},
                            "contentType": {"type": "string"},
                            "headers": {"type": "object"},
                            "payload": {"type": "object"},
                            "bindings": {"type": "object"},
                            "examples": {
                                "type": "array",
                                "items": {
                                    "type": "object",
                                    "additionalProperties": False,
                                    "anyOf": [{"required": ["payload"]}, {"required": ["headers"]}],
                                    "properties": {"headers": {"type": "object"}, "payload": {}},
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}
"""What AsyncAPI 3.0 demands of the parts that we use."""


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The AsyncAPI document as it is checked in."""
    found: dict[str, Any] = YAML(typ="safe").load((FOLDER / "asyncapi.yaml").read_text())
    return found


def test_the_reference_is_up_to_date() -> None:
    """What is checked in is what the types say; `python -m events.describe --write` brings it up to date."""
    assert stale() == []


@KINDS
def test_examples_obey_their_schema(kind: Kind) -> None:
    """Each schema is a JSON Schema, and its example obeys it."""
    described = schema(kind)
    Draft202012Validator.check_schema(described)
    (example,) = described["examples"]
    jsonschema.validate(example, described)
    assert example == orjson.loads(encode_data(next(data for data in EXAMPLES if type(data) is kind.type)))


@KINDS
def test_schemas_refuse_what_is_wrong(kind: Kind) -> None:
    """A missing field and a field of the wrong type are found by the schema."""
    described = schema(kind)
    field = described["required"][0]
    example = described["examples"][0]
    validator = Draft202012Validator(described)
    assert not validator.is_valid({name: value for name, value in example.items() if name != field})
    assert not validator.is_valid({**example, field: [[]]})


def test_the_document_has_the_structure_of_asyncapi(document: dict[str, Any]) -> None:
    """Required parts are there, nothing unknown to AsyncAPI 3.0 stands there, every reference leads somewhere."""
    jsonschema.validate(document, ASYNCAPI, Draft202012Validator)
    for reference in _references(document):
        where, _, pointer = reference.partition("#")
        target: Any = document
        if where:
            target = orjson.loads((FOLDER / where).read_bytes())
        for step in pointer.strip("/").split("/") if pointer else ():
            target = target[step]
        assert target


def _references(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        for name, value in node.items():
            if name == "$ref":
                yield value
            else:
                yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


def test_every_topic_and_type_is_described(document: dict[str, Any]) -> None:
    """Each topic is a channel, each type a message of its home topic, with headers and payload that fit."""
    assert list(document["channels"]) == [str(topic) for topic in Topic]
    headers = document["components"]["schemas"]["Headers"]
    for kind in kinds():
        name = kind.type.__name__
        assert name in document["channels"][str(kind.topic)]["messages"]
        message = document["components"]["messages"][name]
        (example,) = message["examples"]
        jsonschema.validate(example["headers"], headers)
        jsonschema.validate(example["headers"], message["headers"]["allOf"][1])
        jsonschema.validate(example["payload"], schema(kind))
    for operation in document["operations"].values():
        channel = operation["channel"]["$ref"]
        assert all(message["$ref"].startswith(f"{channel}/messages/") for message in operation["messages"])


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`--check` names what is stale and exits 1; `--write` mends it, and takes away what no type is behind."""
    assert main(["--check"]) == 0
    assert capsys.readouterr().out == ""
    assert len(write(tmp_path)) == len(files())
    (tmp_path / "events" / "relume.gone.v1.schema.json").write_text("{}")
    (tmp_path / "asyncapi.yaml").write_text("old")
    (tmp_path / "openapi.yaml").write_text("of others")
    assert stale(tmp_path) == ["asyncapi.yaml", "events/relume.gone.v1.schema.json"]
    assert write(tmp_path) == ["asyncapi.yaml", "events/relume.gone.v1.schema.json"]
    assert stale(tmp_path) == []
    assert (tmp_path / "openapi.yaml").read_text() == "of others"
    monkeypatch.setattr("events.describe.stale", lambda: ["asyncapi.yaml"])
    assert main(["--check"]) == 1
    assert capsys.readouterr().out == "stale: docs/reference/asyncapi.yaml\n"
