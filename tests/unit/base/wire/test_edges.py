"""Limits and defaults of bodies, just at their edges."""

import struct
import zlib
from enum import IntEnum, StrEnum

import pytest

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.wire.batch import encode_batch, read_batch
from rmq_ha.base.wire.bodies import (
    ConsumerData,
    GroupTable,
    HeartbeatData,
    MessageQueue,
    TopicTable,
    text,
)
from rmq_ha.base.wire.fastjson import (
    MAX_DEPTH,
    MAX_DIALECT_SIZE,
    ObjectKey,
    check_values,
    encode,
    parse,
    part,
    pretty,
    pretty_part,
)
from rmq_ha.base.wire.fastjson_reader import NO_LIMIT, Reader, resolve_references
from rmq_ha.base.wire.members import from_members
from rmq_ha.base.wire.route_bodies import (
    QueueRoute,
    RegisterBrokerBody,
    RegistrationLimits,
    _inflate,
    _InflatedReader,
)
from rmq_ha.base.wire.stat_bodies import Connection
from rmq_ha.base.wire.versions import V3_0_11


def read(data: str, max_depth: int = 100) -> object:
    return Reader(data, max_depth, NO_LIMIT).read()


@pytest.mark.parametrize("data", ["[[1]]", "{a:[1]}", "[{}]", "{{b:1}:1}"])
def test_what_is_nested_just_as_deep_as_allowed_is_read(data: str) -> None:
    depth = 2 if data != "[{}]" else 1
    assert read(data, depth)
    with pytest.raises(ProtocolViolation, match="nested deeper"):
        read(data, depth - 1)


def test_an_empty_object_that_is_a_key_is_as_deep_as_any() -> None:
    assert read("{{}:1}", 1) == {ObjectKey(): 1}
    with pytest.raises(ProtocolViolation, match="nested deeper"):
        read("{{}:1}", 0)


def test_every_member_of_an_object_that_is_a_key_is_flat() -> None:
    assert read("{{a:1,b:2}:3}") == {ObjectKey.from_members(a=1, b=2): 3}
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


def test_what_references_reach_may_be_just_as_deep_as_allowed() -> None:
    value = {"a": [[1]], "b": {"$ref": "$.a"}}
    assert resolve_references({"a": [1], "b": 2}, 1, 100)
    assert resolve_references(value, 3, 100)["b"] == [[1]]
    with pytest.raises(ProtocolViolation, match="nested deeper than 0"):
        resolve_references({"a": [1]}, 0, 100)


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


@pytest.mark.parametrize("size", [(1 << 18) - 1, 1 << 18, (1 << 18) + 1, 1 << 20])
def test_values_of_long_documents_are_counted_to_the_end(size: int) -> None:
    values = b",{[" * 7
    document = b" " * (size - 20) + values + b" " * 100
    check_values(document, 22)
    with pytest.raises(ProtocolViolation, match="more than 21 values"):
        check_values(document, 21)


def test_lists_that_contain_themselves_and_things_that_are_no_json_are_not_written() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(ProtocolViolation, match="nested deeper"):
        encode(value)
    with pytest.raises(TypeError, match="cannot be written"):
        encode({"a": object()})


class Level(IntEnum):
    HIGH = 3


class Word(StrEnum):
    YES = "yes"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("a/b", b'"a/b"'),
        (-7, b"-7"),
        (True, b"true"),
        (False, b"false"),
        (None, b"null"),
        (1.5, b"1.5"),
        (float("nan"), b"null"),
        (float("-inf"), b"null"),
        (Level.HIGH, b"3"),
        (Word.YES, b'"yes"'),
        ((1, None), b"[1,null]"),
        ({2}, b"[2]"),
        (frozenset((2,)), b"[2]"),
        ({Word.YES: {Level.HIGH: 1}}, b'{"yes":{3:1}}'),
        ([part({"b": 1, "a": None})], b'[{"b":1}]'),
    ],
    ids=str,
)
def test_each_kind_of_value_has_one_form(value: object, written: bytes) -> None:
    assert encode(value) == written


def test_the_pretty_form_indents_by_depth() -> None:
    key = ObjectKey.from_members(a="x")
    assert pretty({"t": {key: 1}}) == b'{\n\t"t":{{\n\t\t\t"a":"x"\n\t\t}:1\n\t}\n}'
    assert pretty({"a": {"b": {"c": 1}}}) == (b'{\n\t"a":{\n\t\t"b":{\n\t\t\t"c":1\n\t\t}\n\t}\n}')


def test_what_is_missing_is_nought() -> None:
    route = from_members(QueueRoute, {"brokerName": "a"})
    assert route == QueueRoute("a", 0, 0, 0, 0)
    assert MessageQueue.from_key({"topic": "T", "brokerName": "a"}).queue_id == 0
    assert from_members(Connection, {}).version == 0
    assert from_members(ConsumerData, {}) == ConsumerData("")
    assert HeartbeatData.decode(b'{"consumerDataSet":[{}]}').consumers == [ConsumerData("")]
    version = from_members(TopicTable, {}).version
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
    assert (
        _InflatedReader(whole + piece(b"[]")).registration(RegistrationLimits()).version.counter
        == 1
    )
    with pytest.raises(ProtocolViolation, match="malformed"):
        _InflatedReader(whole + piece(b"[]", size)).registration(RegistrationLimits())


def test_a_compressed_registration_that_is_cut_anywhere_is_a_violation() -> None:
    """Also in its checksum: all bytes are there, and nobody knows whether they are right."""
    body = RegisterBrokerBody(DataVersion(1, 2), {"T": TopicConfig("T")}).encode(compressed=True)
    assert RegisterBrokerBody.decode(body, compressed=True).topics
    for size in range(1, len(body)):
        with pytest.raises(ProtocolViolation):
            RegisterBrokerBody.decode(body[:size], compressed=True)


def test_a_compressed_registration_has_filter_servers_or_none() -> None:
    for servers in (["h:1", "h:2"], []):
        body = RegisterBrokerBody(DataVersion(1, 2), {}, servers).encode(compressed=True)
        assert RegisterBrokerBody.decode(body, compressed=True).filter_servers == servers
    whole = piece(b"{}") + struct.pack(">i", 0) + piece(b"null")
    assert _InflatedReader(whole).registration(RegistrationLimits()).filter_servers == []


def test_an_object_that_is_a_key_elsewhere_is_an_object_as_a_value() -> None:
    key = ObjectKey.from_members(a="x", b=1)
    assert encode([key, {"k": key}]) == b'[{"a":"x","b":1},{"k":{"a":"x","b":1}}]'


def test_the_first_version_with_registrations_of_its_own_is_3_0_11() -> None:
    bare = TopicTable(DataVersion(1, 2), {"T": TopicConfig("T")}).encode()
    wrapped = RegisterBrokerBody(DataVersion(1, 2), {"T": TopicConfig("T")}).encode()
    assert list(RegisterBrokerBody.decode(bare, version=V3_0_11 - 1).topics) == ["T"]
    assert list(RegisterBrokerBody.decode(wrapped, version=V3_0_11).topics) == ["T"]


def test_tables_without_a_version_have_the_first_one() -> None:
    for table in (TopicTable, GroupTable):
        for value in ({}, {"dataVersion": None}, {"dataVersion": {}}):
            assert from_members(table, value).version == DataVersion(0, 0)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("{a:1.5,b:1e2,c:-2E-1,d:7}", {"a": 1.5, "b": 100.0, "c": -0.2, "d": 7}),
        ("{" + "9" * 18 + ":1}", {10**18 - 1: 1}),
        (f"{{{-(2**63)}:1,{2**63 - 1}:2}}", {-(2**63): 1, 2**63 - 1: 2}),
        ("9" * 40, 10**40 - 1),
        ("'\\0\\7\\v\\F\\x7e'", "\0\7\v\f~"),
    ],
)
def test_values_at_their_edges_are_read(data: str, value: object) -> None:
    found = read(data)
    assert found == value
    if isinstance(value, dict):
        assert [type(item) for item in found.values()] == [type(item) for item in value.values()]


@pytest.mark.parametrize(
    "data",
    ["{a:1 b:2}", "[1 2]", "{a:1;}", "9" * 41, f"{{{2**63}:1}}", f"{{{-(2**63) - 1}:1}}", "{a:x}"],
)
def test_values_beyond_their_edges_are_violations(data: str) -> None:
    with pytest.raises(ProtocolViolation):
        read(data)


def test_eight_escapes_cost_as_much_as_a_value() -> None:
    text = "'" + "\\n" * 16 + "'"
    assert Reader(text, 1, 3).read() == "\n" * 16
    with pytest.raises(ProtocolViolation, match="more than 2 values"):
        Reader(text, 1, 2).read()


@pytest.mark.parametrize("step", ["{}", "[]"])
def test_what_is_written_may_be_nested_just_as_deep_as_what_is_read(step: str) -> None:
    value: object = 7
    for _ in range(MAX_DEPTH):
        value = {"a": value} if step == "{}" else [value]
    assert parse(encode(value)) == parse(pretty(value)) == value
    deeper = {"a": value} if step == "{}" else [value]
    for write in (encode, pretty):
        with pytest.raises(ProtocolViolation, match=f"nested deeper than {MAX_DEPTH}"):
            write(deeper)


def test_the_pretty_form_indents_lists_by_depth_too() -> None:
    assert pretty({"a": [{"b": ["x"]}], "n": [1, 2], "e": []}) == (
        b'{\n\t"a":[\n\t\t{\n\t\t\t"b":[\n\t\t\t\t"x"\n\t\t\t]\n\t\t}\n\t],\n\t"e":[],\n\t"n":[1,2]\n}'
    )
    for depth in (0, 1, 2):
        whole = {"a": {"b": [{"c": "x"}]}}
        inner = [whole, whole["a"], whole["a"]["b"]][depth]
        apart: object = pretty_part(inner, depth)
        for name in ["b", "a"][2 - depth :]:
            apart = {name: apart}
        assert pretty(apart) == pretty(whole)


def test_numbers_that_json_does_not_have_are_null() -> None:
    assert encode([float("inf"), float("-inf"), float("nan"), 0.5]) == b"[null,null,null,0.5]"


def test_a_mixture_of_keys_is_written_in_its_own_order() -> None:
    assert encode({"b": 1, 2: 3, "a": 4}) == b'{"b":1,2:3,"a":4}'


def test_documents_of_peers_that_are_no_json_proper_are_small() -> None:
    whole = b"{a:'" + b"x" * (MAX_DIALECT_SIZE - 6) + b"'}"
    assert len(whole) == MAX_DIALECT_SIZE
    assert len(parse(whole)["a"]) == MAX_DIALECT_SIZE - 6
    longer = whole.replace(b"'}", b"x'}")
    with pytest.raises(ProtocolViolation, match="not JSON proper"):
        parse(longer)
    assert len(parse(longer, None)["a"]) == MAX_DIALECT_SIZE - 5


def test_references_of_a_trusted_document_may_double_it_and_no_more() -> None:
    repeated = ",".join(['{"$ref":"$.a"}'] * 300)
    items = ",".join(["1"] * 300)
    data = f'{{"a":[{items}],"b":[{repeated}]}}'.encode()
    assert parse(data, None)["b"][299] == [1] * 300
    more = ",".join(['{"$ref":"$.a"}'] * 600)
    with pytest.raises(ProtocolViolation, match="by its"):
        parse(f'{{"a":[{items}],"b":[{more}]}}'.encode(), None)


def test_properties_of_a_batch_may_have_as_many_bytes_as_their_length_can_say() -> None:
    member = (0, b"x", "p" * 32767)
    assert list(read_batch(encode_batch([member]))) == [member]
    with pytest.raises(ProtocolViolation, match="32768 bytes of properties"):
        encode_batch([(0, b"x", "p" * 32768)])
