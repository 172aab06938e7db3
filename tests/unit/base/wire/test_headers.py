"""JSON and binary headers. Spec: remoting.md, sections 1.3 and 1.4."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.wire import binary_header, json_header
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import JSON, decode_frame


def decode(text):
    return decode_frame(JSON, text.encode(), b"")


def test_absent_members_take_defaults():
    for text in ("{}", "{x:1}"):
        assert decode(text) == RemotingCommand(0, None, None, 0, 0, None, "JAVA", 0)


def test_numbers_and_booleans_in_ext_become_strings():
    ext = decode('{"code":1,"extFields":{"a":5,"b":true,"c":false,"d":1.5,"e":null}}').ext
    assert ext == {"a": "5", "b": "true", "c": "false", "d": "1.5"}


def test_numbers_may_be_strings():
    assert decode('{"code":"105","opaque":"7"}').code == 105


def test_numbers_may_be_as_large_as_java_has_them_and_in_either_form():
    for form in ('{"code":%d,"opaque":%d}', "{code:%d,opaque:%d}"):
        command = decode(form % (2**31 - 1, -(2**31)))
        assert (command.code, command.opaque) == (2**31 - 1, -(2**31))


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ('"GO"', "GO"),
        ('"KLINGON"', None),
        ("9", "GO"),
        ("99", None),
        ("-1", None),
        ("null", None),
        ('"JAVA"', "JAVA"),
    ],
)
def test_languages(text, language):
    assert decode(f'{{"code":1,"language":{text}}}').language == language


def test_what_fastjson_tolerates():
    command = decode("{code:1,,'opaque':7,\"extFields\":{'a':'b',},\"x\":[1,{}],}")
    assert (command.code, command.opaque, command.ext) == (1, 7, {"a": "b"})


def test_word_null_as_remark_stays_text():
    assert decode('{"remark":"null"}').remark == "null"


def test_lone_surrogate_is_replaced():
    assert decode('{"remark":"a\\ud800b"}').remark in ("a?b", "a\ufffdb")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"5",
        b"{",
        b'{"code":1',
        b'{"code":"x"}',
        b'{"code":2147483648}',
        b'{"opaque":-2147483649}',
        b"{code:2147483648}",
        b"{version:-2147483649}",
        b'{"opaque":99999999999999999999999999999999999999999999999999}',
        b'{"extFields":5}',
        b"\xff\xfe",
        b'{"a":' * 2000,
        b'{"code":{}}',
    ],
)
def test_what_is_no_header_is_a_violation(data):
    with pytest.raises(ProtocolViolation):
        decode_frame(JSON, data, b"")


def test_absent_values_are_left_out():
    command = RemotingCommand(1, language=None)
    assert json_header.encode_header(command) == (
        b'{"code":1,"flag":0,"opaque":0,"serializeTypeCurrentRPC":"JSON","version":407}'
    )


def test_binary_leaves_out_empty_keys_and_values():
    command = RemotingCommand(1, {"a": "", "b": "x"}, binary=True)
    decoded = binary_header.decode_header(binary_header.encode_header(command))
    assert decoded.ext == {"b": "x"}


def test_code_too_large_for_binary():
    with pytest.raises(ProtocolViolation, match="binary"):
        binary_header.encode_header(RemotingCommand(40000))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(20),
        struct.pack(">hBhiii", 1, 0, 0, 0, 0, 100),
        struct.pack(">hBhiiii", 1, 0, 0, 0, 0, 0, 5),
        struct.pack(">hBhiiii", 1, 0, 0, 0, 0, 0, -5),
        struct.pack(">hBhiiiih", 1, 0, 0, 0, 0, 0, 2, -1),
    ],
)
def test_malformed_binary_is_a_violation(data):
    with pytest.raises(ProtocolViolation):
        binary_header.decode_header(data)


@given(st.binary(max_size=80))
def test_any_bytes_give_a_binary_header_or_a_violation(data):
    try:
        binary_header.decode_header(data)
    except ProtocolViolation:
        pass


@given(
    st.binary(max_size=40)
    | st.text(alphabet="{}[]\",:'\\ \tacdeox0159-.u$truefalsn", max_size=40).map(str.encode)
)
def test_any_bytes_give_a_json_header_or_a_violation(data):
    try:
        decode_frame(JSON, data, b"")
    except ProtocolViolation:
        pass
