"""Limits and defaults of bodies, just at their edges."""

import struct
import zlib

import pytest

from rmq_ha.errors import ProtocolViolation
from rmq_ha.wire.bodies import MessageQueue, TopicTable, text
from rmq_ha.wire.fastjson import ObjectKey, check_values, encode, pretty
from rmq_ha.wire.fastjson_reader import NO_LIMIT, Reader, resolve_references
from rmq_ha.wire.route_bodies import QueueRoute, RegistrationLimits, _inflate, _Inflated
from rmq_ha.wire.stat_bodies import Connection


def read(data: str, max_depth: int = 100) -> object:
    return Reader(data, max_depth, NO_LIMIT).read()


@pytest.mark.parametrize("data", ["[[1]]", "{a:[1]}", "[{}]", "{{b:1}:1}"])
def test_what_is_nested_just_as_deep_as_allowed_is_read(data: str) -> None:
    depth = 2 if data != "[{}]" else 1
    assert read(data, depth)
    with pytest.raises(ProtocolViolation, match="nested deeper"):
        read(data, depth - 1)


def test_every_member_of_an_object_that_is_a_key_is_flat() -> None:
    assert read("{{a:1,b:2}:3}") == {ObjectKey.of(a=1, b=2): 3}
    with pytest.raises(ProtocolViolation, match="flat object"):
        read("{{a:1,b:[2]}:3}")


def test_a_fault_shows_twenty_characters() -> None:
    with pytest.raises(ProtocolViolation, match=f"'{'!' * 20}'"):
        read("!" * 40)


def chain(hops: int) -> dict[str, object]:
    """`hops` references, one to the next, and a value."""
    found: dict[str, object] = {f"n{hop}": {"$ref": f"$.n{hop + 1}"} for hop in range(hops)}
    return found | {f"n{hops}": [7]}


def test_a_chain_of_references_is_followed_so_far_and_no_further() -> None:
    assert resolve_references(chain(15), 100, 1000)["n0"] == [7]
    with pytest.raises(ProtocolViolation, match="does not end"):
        resolve_references(chain(17), 100, 1000)


def test_a_reference_to_what_it_lies_in_is_a_violation() -> None:
    with pytest.raises(ProtocolViolation, match="contains itself"):
        resolve_references({"a": [{"$ref": "$"}]}, 100, 1000)


def test_a_reference_to_nothing_is_null() -> None:
    for path in ("$.b.c.d", "$.a[9]", "$?", "elsewhere"):
        assert resolve_references({"a": [1], "x": {"$ref": path}}, 100, 1000)["x"] is None


def test_references_count_for_the_depth_too() -> None:
    """Two that are harmless alone are too deep in each other."""
    value = {"deep": [[[1]]], "at": [[{"$ref": "$.deep"}]]}
    with pytest.raises(ProtocolViolation, match="nested deeper than 4"):
        resolve_references(value, 4, 1000)
    assert resolve_references({"deep": [[[1]]], "at": [{"$ref": "$.deep"}]}, 6, 1000)


def test_text_that_references_repeat_counts_by_its_size() -> None:
    keys = {"k" * 320: 1}
    value = {"a": keys, "b": [{"$ref": "$.a"}] * 10}
    assert resolve_references(value, 100, 1000)
    with pytest.raises(ProtocolViolation, match="more than 100 values"):
        resolve_references({"a": {"k" * 320: 1}, "b": [{"$ref": "$.a"}] * 10}, 100, 100)


def test_values_are_counted_before_they_are_read() -> None:
    check_values(b"[1,1]", 3)
    with pytest.raises(ProtocolViolation, match="more than 2 values"):
        check_values(b"[1,1]", 2)


def test_lists_that_contain_themselves_and_things_that_are_no_json_are_not_written() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(ProtocolViolation, match="nested deeper"):
        encode(value)
    with pytest.raises(TypeError, match="cannot be written"):
        encode({"a": object()})


def test_the_pretty_form_indents_by_depth() -> None:
    key = ObjectKey.of(a="x")
    assert pretty({"t": {key: 1}}) == b'{\n\t"t":{{\n\t\t\t"a":"x"\n\t\t}:1\n\t}\n}'
    assert pretty({"a": {"b": {"c": 1}}}) == (b'{\n\t"a":{\n\t\t"b":{\n\t\t\t"c":1\n\t\t}\n\t}\n}')


def test_what_is_missing_is_nought() -> None:
    route = QueueRoute.from_json({"brokerName": "a"})
    assert route == QueueRoute("a", 0, 0, 0, 0)
    assert MessageQueue.from_json({"topic": "T", "brokerName": "a"}).queue_id == 0
    assert Connection.from_json({}).version == 0
    version = TopicTable.from_json({}).version
    assert (version.counter, version.timestamp) == (0, 0)
    for wrong in ([], {}):
        with pytest.raises(TypeError, match="a string was expected"):
            text(wrong)


def test_a_registration_may_become_just_as_large_as_allowed() -> None:
    data = zlib.compress(b"x" * 100)
    assert _inflate(data, 100) == b"x" * 100
    with pytest.raises(ProtocolViolation, match="99 bytes"):
        _inflate(data, 99)


def piece(data: bytes, size: int | None = None) -> bytes:
    return struct.pack(">i", len(data) if size is None else size) + data


@pytest.mark.parametrize("size", [3, 4, -1])
def test_a_piece_of_a_registration_that_is_not_all_there_is_a_violation(size: int) -> None:
    whole = piece(b'{"counter":1,"timestamp":2}') + struct.pack(">i", 0)
    assert _Inflated(whole + piece(b"[]")).registration(RegistrationLimits()).version.counter == 1
    with pytest.raises(ProtocolViolation, match="malformed"):
        _Inflated(whole + piece(b"[]", size)).registration(RegistrationLimits())
