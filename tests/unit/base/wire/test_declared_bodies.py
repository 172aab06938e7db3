"""Bodies that are declared say to the byte what they said when they were written by hand."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.model.numbers import Int32
from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.base.wire.bodies import (
    Body,
    CheckClient,
    GroupTable,
    HeartbeatData,
    LockBatch,
    MessageQueue,
    OffsetTable,
    TopicTable,
)
from rmq_ha.base.wire.members import FOREIGN
from rmq_ha.base.wire.route_bodies import ClusterInfo, TopicRoute
from rmq_ha.base.wire.stat_bodies import ConsumerConnection, ProducerTable
from tests.unit.base.wire.wire_bodies import READ, WRITTEN

VECTORS = Path(__file__).parents[3] / "vectors" / "remoting" / "bodies.json"
GOLDEN: dict[str, dict[str, str]] = json.loads(VECTORS.read_text())


def test_every_body_has_its_bytes() -> None:
    assert GOLDEN["written"].keys() == WRITTEN.keys()
    assert GOLDEN["read"].keys() == READ.keys()


@pytest.mark.parametrize("name", WRITTEN)
def test_a_body_is_written_as_ever(name: str) -> None:
    assert WRITTEN[name]().decode() == GOLDEN["written"][name]


@pytest.mark.parametrize("name", READ)
def test_a_document_of_another_client_is_read_as_ever(name: str) -> None:
    document, read = READ[name]
    assert read(document.encode()).decode() == GOLDEN["read"][name]


TEXT = st.text(max_size=4)
NUMBER = st.integers(-(1 << 31), (1 << 31) - 1)
LONG = st.integers(-(1 << 63), (1 << 63) - 1)
VALUES: dict[object, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: LONG,
    Int32: NUMBER,
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    MessageQueue: st.builds(MessageQueue, TEXT, TEXT, NUMBER),
}
BODIES: list[type[Body]] = [
    HeartbeatData,
    LockBatch,
    CheckClient,
    TopicTable,
    GroupTable,
    OffsetTable,
    TopicRoute,
    ClusterInfo,
    ConsumerConnection,
    ProducerTable,
]


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a declared type."""
    if kind in VALUES:
        return VALUES[kind]
    origin, of = get_origin(kind), get_args(kind)
    if origin is list:
        return st.lists(values(of[0]), max_size=2)
    if origin is set:
        return st.sets(values(of[0]), max_size=2)
    if origin in (dict, Mapping):
        return st.dictionaries(values(of[0]), values(of[1]), max_size=2)
    if of:
        return st.none() | values(of[0])
    declared = [item for item in msgspec.structs.fields(kind) if item.name != FOREIGN]
    fields = {item.name: values(item.type) for item in declared}
    if kind is SubscriptionData:  # None is not written, and an absent type is TAG
        fields["expression_type"] = TEXT
    return st.builds(kind, **fields)


@given(st.sampled_from(BODIES).flatmap(values))
def test_a_body_is_read_as_it_was_written(body: Body) -> None:
    assert type(body).decode(body.encode()) == body


@pytest.mark.parametrize(
    ("kind", "document", "says"),
    [
        (LockBatch, '{"mqSet":[{"queueId":2147483648}]}', r"<= 2147483647 - at `\$.mqSet\[0\]"),
        (LockBatch, '{"mqSet":[[1]]}', r"got `array` - at `\$.mqSet\[0\]"),
        (HeartbeatData, '{"clientID":{}}', r"Expected `str`, got `object` - at `\$.clientID"),
        (TopicTable, '{"topicConfigTable":{"T":{"perm":"x"}}}', r"Expected `int`.*perm"),
        (TopicRoute, '{"brokerDatas":[{"brokerAddrs":{"x":"h:1"}}]}', r"brokerAddrs"),
    ],
)
def test_a_member_of_another_form_is_named(kind: type[Body], document: str, says: str) -> None:
    with pytest.raises(ProtocolViolation, match=says):
        kind.decode(document.encode())
