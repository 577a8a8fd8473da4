"""The reference of the events: a JSON Schema for each type and an AsyncAPI 3.0 document, made from the types.

``python -m events.describe --write`` puts them under ``docs/reference``; ``--check`` says whether they are up to date.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import orjson
from pydantic.json_schema import GenerateJsonSchema
from ruamel.yaml import YAML

from events.codec import Attributes, to_binary
from events.examples import EXAMPLES, example_envelope
from events.further import FURTHER
from events.kinds import KINDS, Kind
from events.names import TOPIC_KINDS, Topic, TopicKind
from events.payload import adapter, encode_data

Json = dict[str, Any]

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
PAGES: Final = "https://relume.dev/reference/events"
FOLDER: Final = Path(__file__).resolve().parent.parent / "docs" / "reference"

_ABOUT: Final[dict[Topic, tuple[str, tuple[str, ...]]]] = {
    Topic.MODELS: (
        "What users declared, and what they say of cards.",
        ("model/NAME", "training/NAME", "pool/NAME", "node/NAME/card/ID"),
    ),
    Topic.DECISIONS: (
        "What the autoscaler wishes, and who owns which partition.",
        ("model/NAME", "ownership/PARTITION"),
    ),
    Topic.GRANTS: ("What may run, and who leads a pool.", ("model/NAME", "training/NAME", "pool/NAME")),
    Topic.REPLICAS: ("What runs.", ("model/NAME", "training/NAME")),
    Topic.RECLAIMS: (
        "Attempts to take cards of training for a shortage, and what training did with its cards.",
        ("reclaim/ID", "training/NAME"),
    ),
    Topic.CARDS: ("What the nodes have.", ("node/NAME",)),
    Topic.CACHES: ("Which weights the nodes have.", ("node/NAME",)),
    Topic.GATEWAYS: ("Which gateways live.", ("gateway/NAME",)),
    Topic.REQUESTS: ("Demand, measured by gateways or told by foreign producers.", ("model/NAME",)),
    Topic.METRICS: ("Numbers from engines and from outside.", ("model/NAME",)),
    Topic.PHASES: ("What happens to replicas, training, weights.", ("model/NAME", "training/NAME", "node/NAME")),
    Topic.INFERENCE_REQUESTS: ("Requests to be answered when there is room.", ("NAME",)),
    Topic.INFERENCE_RESULTS: ("Their answers, one each; chunks of streamed ones.", ("NAME",)),
    Topic.INFERENCE_PARKED: ("Requests that wait aside.", ("NAME",)),
    Topic.INFERENCE_DEAD_LETTERS: ("Requests that ended without an answer, with the reason.", ("NAME",)),
    Topic.DEAD_LETTERS: ("What could not be read, with the reason.", ("topic/NAME",)),
}
_KEPT: Final = {
    TopicKind.STATE: "State: the newest value of each key stands, written by one writer.",
    TopicKind.NEWS: "News: may be lost or repeated; correctness never hangs on it.",
    TopicKind.QUEUE: "Queue: consumed by a group, committed after the effect.",
}
FOREIGN: Final = (Topic.REQUESTS, Topic.METRICS, Topic.INFERENCE_REQUESTS)
"""Topics that programs other than relume may write to."""


class _Schemas(GenerateJsonSchema):
    """Fields have a name already; a title that repeats it helps nobody."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 -- pydantic's signature
        return False


def kinds() -> list[Kind]:
    """Every event type, by topic and name."""
    return sorted(KINDS.values(), key=lambda kind: (list(Topic).index(kind.topic), kind.full_name))


def schema(kind: Kind) -> Json:
    """The JSON Schema of the data of one event type: what a reader accepts."""
    made = adapter(kind.type).json_schema(by_alias=True, schema_generator=_Schemas, mode="validation")
    made.pop("title", None)
    made["properties"].pop(FURTHER, None)  # it is never on the wire
    name = kind.full_name
    return {"$schema": DRAFT, "$id": f"{PAGES}/{name}.schema.json", "title": name, **made, "examples": [_example(kind)]}


def _data(kind: Kind) -> object:
    return next(data for data in EXAMPLES if type(data) is kind.type)


def _example(kind: Kind) -> Json:
    found: Json = orjson.loads(encode_data(_data(kind)))
    return found


def asyncapi() -> Json:
    """The AsyncAPI 3.0 document: topics, their messages, who sends what. Payloads refer to the schemas beside it."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "relume events",
            "version": "1.0.0",
            "description": (
                "What relume's parts tell each other, and what other programs may tell relume. Every message is a"
                " CloudEvent 1.0 with JSON data: on Kafka in binary content mode (attributes in `ce_` headers), in the"
                " SQLite log and over HTTP as structured JSON. The record key is the `partitionkey`; the partition is"
                " Kafka's murmur2 of the key."
            ),
            "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": {str(topic): _channel(topic) for topic in Topic},
        "operations": dict(_operations()),
        "components": {
            "messages": {kind.type.__name__: _message(kind) for kind in kinds()},
            "schemas": {"Headers": _headers()},
        },
    }


def _of(topic: Topic) -> list[Kind]:
    return [kind for kind in kinds() if kind.topic is topic]


def _channel(topic: Topic) -> Json:
    about, keys = _ABOUT[topic]
    kept = TOPIC_KINDS[topic]
    policy = ["compact"] if kept is TopicKind.STATE else ["delete"]
    return {
        "address": str(topic),
        "description": f"{about} {_KEPT[kept]} Keys: {', '.join(f'`{key}`' for key in keys)}.",
        "messages": {
            kind.type.__name__: {"$ref": f"#/components/messages/{kind.type.__name__}"} for kind in _of(topic)
        },
        "bindings": {"kafka": {"topicConfiguration": {"cleanup.policy": policy}, "bindingVersion": "0.5.0"}},
        "x-relume-kind": str(kept),
        "x-relume-keys": list(keys),
    }


def _operations() -> Iterator[tuple[str, Json]]:
    """Seen from relume: it sends on every topic and receives from others on some."""
    for topic in Topic:
        name = "".join(word.capitalize() for word in topic.removeprefix("relume.").replace("-", ".").split("."))
        yield f"send{name}", _operation("send", topic, "relume writes these.")
        if topic in FOREIGN:
            yield f"receive{name}", _operation("receive", topic, "Any program may write these; relume reads them.")


def _operation(action: str, topic: Topic, summary: str) -> Json:
    channel = f"#/channels/{topic}"
    return {
        "action": action,
        "channel": {"$ref": channel},
        "summary": summary,
        "messages": [{"$ref": f"{channel}/messages/{kind.type.__name__}"} for kind in _of(topic)],
    }


def _message(kind: Kind) -> Json:
    envelope = example_envelope(_data(kind))
    binary = to_binary(envelope)
    words = " ".join((kind.type.__doc__ or "").split())
    return {
        "name": kind.full_name,
        "title": kind.type.__name__,
        "description": words,
        "contentType": "application/json",
        "headers": {
            "allOf": [
                {"$ref": "#/components/schemas/Headers"},
                {"type": "object", "properties": {"ce_type": {"const": kind.full_name}}},
            ]
        },
        "payload": {"$ref": f"./events/{kind.full_name}.schema.json"},
        "bindings": {"kafka": {"key": {"type": "string", "examples": [envelope.key]}, "bindingVersion": "0.5.0"}},
        "examples": [
            {"headers": {name: value.decode() for name, value in binary.headers}, "payload": _example(kind)},
        ],
    }


def _headers() -> Json:
    """The CloudEvents attributes as headers of a record: all are text there."""
    described = Attributes.model_json_schema()["properties"]
    required = [name for name, field in Attributes.model_fields.items() if field.is_required()]
    texts = {
        ("content-type" if name == "datacontenttype" else f"ce_{name}"): {
            "type": "string",
            "description": described[name]["description"],
        }
        for name in Attributes.model_fields
    }
    return {"type": "object", "properties": texts, "required": [f"ce_{name}" for name in required]}


def files() -> dict[str, bytes]:
    """Everything that is checked in, by path under ``docs/reference``."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    made = {f"events/{kind.full_name}.schema.json": orjson.dumps(schema(kind), option=options) for kind in kinds()}
    yaml = YAML()
    yaml.width = 110
    text = io.BytesIO()
    text.write(b"# Made by `python -m events.describe --write` from the types in events/types. Do not edit.\n")
    yaml.dump(asyncapi(), text)
    return {**made, "asyncapi.yaml": text.getvalue()}


def stale(folder: Path = FOLDER) -> list[str]:
    """Paths under `folder` whose content is not what the types say: changed, missing, or of a type that is gone."""
    wanted = files()
    there = {path.relative_to(folder).as_posix() for path in (folder / "events").glob("*.schema.json")}
    changed = [name for name, content in wanted.items() if _content(folder / name) != content]
    return sorted([*changed, *(there - wanted.keys())])


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def write(folder: Path = FOLDER) -> list[str]:
    """Bring `folder` up to date; what was changed."""
    wanted, changed = files(), stale(folder)
    for name in changed:
        path = folder / name
        if name in wanted:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(wanted[name])
        else:
            path.unlink()
    return changed


def main(arguments: Sequence[str] | None = None) -> int:
    """``--check`` exits 1 when something is stale and names it; ``--write`` brings all up to date."""
    parser = argparse.ArgumentParser(prog="python -m events.describe", description=(__doc__ or "").split("\n")[0])
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--check", action="store_true", help="exit 1 when the pages do not match the types")
    choice.add_argument("--write", action="store_true", help="write the pages")
    chosen = parser.parse_args(arguments)
    found = write() if chosen.write else stale()
    for name in found:
        sys.stdout.write(f"{'written' if chosen.write else 'stale'}: docs/reference/{name}\n")
    return 1 if found and chosen.check else 0


if __name__ == "__main__":
    sys.exit(main())
