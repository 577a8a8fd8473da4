"""Interoperation with the public CloudEvents SDK: others read our events with it, and we read what it writes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from cloudevents.core.bindings import kafka
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from events.codec import BinaryEvent, decode, decode_structured, encode_structured, to_binary
from events.envelope import Envelope
from events.examples import EXAMPLES, example_envelope
from events.payload import kind_of
from events.types.requests import ActivationRequested

FORMAT = JSONFormat()
EVERY = pytest.mark.parametrize("data", EXAMPLES, ids=lambda data: type(data).__name__)


def message(binary: BinaryEvent) -> kafka.KafkaMessage:
    """Our binary mode as the SDK's Kafka message."""
    return kafka.KafkaMessage(headers=dict(binary.headers), key=binary.key, value=binary.data)


def ours(sent: kafka.KafkaMessage) -> BinaryEvent:
    """The SDK's Kafka message as our binary mode."""
    key = sent.key.encode() if isinstance(sent.key, str) else sent.key or b""
    return BinaryEvent(tuple(sent.headers.items()), key, sent.value)


@EVERY
def test_the_sdk_reads_our_structured_events(data: object) -> None:
    """Required attributes, time and extensions come out as the SDK's own types."""
    envelope = example_envelope(data)
    event = FORMAT.read(None, encode_structured(envelope))
    assert (event.get_id(), event.get_source(), event.get_subject()) == (envelope.id, envelope.source, envelope.subject)
    assert event.get_type() == kind_of(data).full_name
    assert event.get_time() == datetime.fromtimestamp(envelope.time, UTC)
    assert event.get_extension("partitionkey") == envelope.key
    assert event.get_extension("epoch") == "17"


@EVERY
def test_we_read_what_the_sdk_wrote(data: object) -> None:
    """Through the SDK and back, in structured and in Kafka's two modes, an event is the same."""
    envelope = example_envelope(data)
    event = FORMAT.read(None, encode_structured(envelope))
    assert decode_structured(FORMAT.write(event)) == envelope
    assert decode(ours(kafka.to_structured(event, FORMAT))) == envelope
    assert decode(ours(kafka.to_binary(event, FORMAT))) == envelope


@EVERY
def test_the_sdk_reads_our_kafka_records(data: object) -> None:
    """Binary mode: headers, key and value are what the SDK expects."""
    envelope = example_envelope(data)
    event = kafka.from_binary(message(to_binary(envelope)), FORMAT)
    assert event.get_type() == kind_of(data).full_name
    assert decode(ours(kafka.to_binary(event, FORMAT))) == envelope


def test_an_event_made_by_a_foreign_producer() -> None:
    """The least that a foreign program says with the SDK is understood."""
    event = CloudEvent(
        {"id": "1", "source": "orders/worker-3", "type": "relume.activation.requested.v1"},
        {"model": "llama", "replicas": 2},
    )
    found = decode_structured(FORMAT.write(event))
    assert isinstance(found, Envelope)
    assert found.data == ActivationRequested(model="llama", replicas=2)
    assert found.key == "model/llama"
