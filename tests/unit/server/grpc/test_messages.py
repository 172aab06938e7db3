"""The table of messages, against the recordings and the official Python SDK."""

import json
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import MessageToDict, ParseDict

from rmq_ha.server.grpc.wire import messages
from rmq_ha.server.grpc.wire.table import ENUMS, MESSAGES

RECORDINGS = sorted((Path(__file__).parents[3] / "fixtures" / "grpc").glob("*/*.json"))
FRAME_HEAD = 5


def recorded():
    """Method, direction, message and its size as it was on the wire."""
    for path in RECORDINGS:
        for example in json.loads(path.read_text()):
            for side in ("request", "response"):
                for item in example[side]:
                    yield path.stem, side, item["message"], item["bytes"]


def class_of(method, side):
    if method == "Telemetry":
        return messages.TelemetryCommand
    return getattr(messages, f"{method}{side.capitalize()}")


def test_every_recorded_message_has_the_recorded_size():
    """Names, types and numbers: a wrong number of more than 15 or a missing presence shows."""
    seen = set()
    for method, side, values, size in recorded():
        message = ParseDict(values, class_of(method, side)())
        data = message.SerializeToString()
        again = class_of(method, side).FromString(data)
        assert MessageToDict(again) == values
        assert len(data) == size, (method, side, values)
        seen.add((method, side))
    assert len(seen) == 24


def test_both_sides_of_each_served_method_are_in_the_table():
    for method in {path.stem for path in RECORDINGS}:
        for side in ("request", "response"):
            assert class_of(method, side).DESCRIPTOR.full_name.startswith("apache.rocketmq.v2.")


def test_a_field_that_is_not_set_differs_from_its_default():
    properties = messages.SystemProperties()
    assert not properties.HasField("tag")
    properties.tag = ""
    assert properties.HasField("tag")
    assert messages.SystemProperties.FromString(properties.SerializeToString()).HasField("tag")


def test_only_one_of_a_group_is_set():
    settings = messages.Settings()
    settings.publishing.max_body_size = 1
    settings.subscription.fifo = True
    assert settings.WhichOneof("pub_sub") == "subscription"


def test_times_are_of_the_same_pool():
    properties = messages.SystemProperties(born_timestamp=messages.Timestamp(seconds=5))
    assert properties.born_timestamp.seconds == 5


def test_a_message_that_there_is_not():
    with pytest.raises(AttributeError, match="the service has no message Nothing"):
        messages.Nothing  # noqa: B018


def test_numbers_with_names_are_kept_though_nobody_knows_them():
    status = messages.Status(code=49999)
    assert messages.Status.FromString(status.SerializeToString()).code == 49999


def facts(field):
    of_message = field.message_type.full_name if field.message_type else None
    of_enum = field.enum_type.full_name if field.enum_type else None
    repeated = getattr(field, "is_repeated", None)
    if repeated is None:
        repeated = field.label == FieldDescriptor.LABEL_REPEATED
    group = field.containing_oneof.name if field.containing_oneof else None
    return (
        field.number,
        field.name,
        field.type,
        repeated,
        of_message,
        of_enum,
        group,
        field.has_presence,
    )


def test_the_table_is_what_the_official_sdk_speaks():
    """Field by field: number, name, type, repetition and presence."""
    why = "the official Python SDK is not installed (pip install rocketmq-python-client)"
    definition = pytest.importorskip("rocketmq.grpc_protocol.definition_pb2", reason=why)
    service = pytest.importorskip("rocketmq.grpc_protocol.service_pb2", reason=why)
    theirs = {
        **definition.DESCRIPTOR.message_types_by_name,
        **service.DESCRIPTOR.message_types_by_name,
    }
    for name in MESSAGES:
        ours = getattr(messages, name).DESCRIPTOR
        assert list(map(facts, ours.fields)) == list(map(facts, theirs[name].fields)), name
    for name, members in ENUMS.items():
        known = definition.DESCRIPTOR.enum_types_by_name[name].values
        ours = {item.name: item.value for item in members}  # may have newer ones
        assert {item.name: item.number for item in known}.items() <= ours.items(), name
