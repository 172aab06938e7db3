"""The dialect of fastjson. Spec: remoting.md, section 1.9; store.md, section 12."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.wire.fastjson import ObjectKey, encode, encode_browser, parse, pretty

CONFIG = Path(__file__).parents[3] / "vectors" / "remoting" / "config"
QUEUE = ObjectKey.from_members(brokerName="b", queueId=0, topic="T")
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=8)
KEYS = st.text(max_size=5) | st.integers(-1000, 1000)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(KEYS.filter(lambda key: key != "$ref"), inner, max_size=4)
    ),
    max_leaves=12,
)


def without_nulls(value):
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{0:"a",-1:"b"}', {0: "a", -1: "b"}),
        ("{a:1,$b_2:'x',}", {"a": 1, "$b_2": "x"}),
        ('{{"brokerName":"b","queueId":0,"topic":"T"}:{"x":1}}', {QUEUE: {"x": 1}}),
        ("[1,,2,]", [1, 2]),
        ("{0:1 \n\t}", {0: 1}),
        ("{a:true,b:false,c:null,d:-1.5e3}", {"a": True, "b": False, "c": None, "d": -1500.0}),
        (r"""{a:'\u4e2d\x41\'\"\n'}""", {"a": "中A'\"\n"}),
        (r'{a:"\ud83d\ude00"}', {"a": "😀"}),
        ("9223372036854775807", 2**63 - 1),
        ('{0:{"$ref":"$.a"},"a":[1]}', {0: [1], "a": [1]}),
        ('{"a":[{"b":1}],"c":{"$ref":"$.a[0].b"},"d":{"$ref":"$.a[0]"}}', None),
        ('{"a":{"$ref":"$.nowhere"}}', {"a": None}),
        ('{"x@y":{"z":1},"r":{"$ref":"$[\'x@y\']"}}', {"x@y": {"z": 1}, "r": {"z": 1}}),
        ('{"a":{"$ref":"$.b"},"b":{"$ref":"$.c"},"c":[7]}', {"a": [7], "b": [7], "c": [7]}),
    ],
)
def test_parses(text, value):
    if value is None:
        value = {"a": [{"b": 1}], "c": 1, "d": {"b": 1}}
    assert parse(text.encode()) == value


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[1",
        b"[1 2]",
        b'{"a" 1}',
        b'{"a":"b',
        b"{a:b}",
        b"1 2",
        b"{:1}",
        b"[" * 10000,
        b"{a:" * 10000,
        b"{" * 10000,
        b"{{a:[1]}:2}",
        b"1" * 5000,
        b'{"a":{"$ref":"$"}}',
        b'{"a":{"$ref":"$.b"},"b":{"$ref":"$.a"}}',
        b'{"a":{"x":{"$ref":"$.b"}},"b":{"x":{"$ref":"$.a"}}}',
    ],
)
def test_what_is_not_in_the_dialect_is_a_violation(data):
    with pytest.raises(ProtocolViolation):
        parse(data)


def test_references_to_one_object_give_one_object():
    value = parse(b'{"a":[{"b":1}],"c":{"$ref":"$.a[0]"}}')
    assert value["c"] is value["a"][0]


def test_a_long_chain_of_references_ends():
    links = ",".join(f'"k{i}":{{"x":{{"$ref":"$.k{i + 1}"}}}}' for i in range(5000))
    with pytest.raises(ProtocolViolation, match="deeper"):
        parse(f'{{{links},"k5000":{{}}}}'.encode())


def test_hostile_input_takes_linear_time():
    started = time.perf_counter()
    for data in (b'"' + b"\\a" * 500_000, b"'" + b"a" * 1_000_000, b"[" + b"," * 1_000_000):
        with pytest.raises(ProtocolViolation):
            parse(data)
    assert time.perf_counter() - started < 5


@given(VALUES)
def test_round_trip(value):
    value = without_nulls(value)
    assert parse(encode(value)) == value
    assert parse(pretty(value)) == value


@given(
    st.binary(max_size=60)
    | st.text(alphabet="{}[]\",:'\\ \tabu$ref.019-e", max_size=60).map(str.encode)
)
def test_any_bytes_give_a_value_or_a_violation(data):
    try:
        encode(parse(data))
    except ProtocolViolation:
        pass


def test_writes_compactly_in_alphabetical_order():
    value = {"b": {1: "x", 0: "y"}, "a": {QUEUE: 6}, "n": None, "t": [1.5, 0.0, True, None]}
    assert encode(value) == (
        b'{"a":{{"brokerName":"b","queueId":0,"topic":"T"}:6},"b":{0:"y",1:"x"},'
        b'"t":[1.5,0.0,true,null]}'
    )


def test_browser_form_is_strict_json():
    value = {"b": {0: "中😀/"}}
    data = encode_browser(value)
    assert data == b'{"b":{"0":"\\u4E2D\\uD83D\\uDE00\\/"}}'
    assert json.loads(data) == {"b": {"0": "中😀/"}}


def test_a_value_that_contains_itself_is_not_written():
    value: dict[str, object] = {}
    value["a"] = value
    with pytest.raises(ProtocolViolation):
        encode(value)


def test_pretty_forms_of_the_specification():
    assert pretty({"offsetTable": {"TopicA@CG": {0: 30, 1: 1}}}) == (
        b'{\n\t"offsetTable":{\n\t\t"TopicA@CG":{0:30,1:1\n\t\t}\n\t}\n}'
    )
    assert pretty({"offsetTable": {1: 2, 2: 1, 3: 1}}) == b'{\n\t"offsetTable":{1:2,2:1,3:1\n\t}\n}'
    assert len(pretty({"offsetTable": {}})) == 21
    assert len(pretty({"filterDataByTopic": {}})) == 27
    assert pretty(["a", "b"]) == b'[\n\t"a",\n\t"b"\n]'


@pytest.mark.parametrize("path", sorted(CONFIG.glob("*.json")), ids=lambda path: path.name)
def test_files_of_java_in_their_own_form(path):
    """Java's maps are in hash order and ours in alphabetical: compare the lines as a set."""
    data = path.read_bytes()
    written = pretty(parse(data))
    assert parse(written) == parse(data)

    def lines(content):
        return sorted(line.rstrip(b",") for line in content.split(b"\n"))

    assert len(written) == len(data)
    assert lines(written) == lines(data)
