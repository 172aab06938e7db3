"""Headers of sends. Spec: remoting.md, sections 1.7, 4.1 and 4.2."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.runs.row_list import rows_of
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import FrameReader, decode_frame
from rmq_ha.base.wire.json_header import encode_header
from rmq_ha.base.wire.send_header import (
    UNDECODABLE,
    SendHeader,
    answer_template,
    decode_fast_v1,
    decode_fast_v2,
    decode_send_header,
    encode_send_header,
)

INT32 = st.integers(-(2**31), 2**31 - 1)
SENDS = st.builds(
    SendHeader,
    producer_group=st.text(max_size=9),
    topic=st.text(max_size=9),
    default_topic_queue_nums=INT32,
    queue_id=INT32,
    born_timestamp=st.integers(-(2**63), 2**63 - 1),
    properties=st.text(max_size=30),
    unit_mode=st.booleans(),
    max_reconsume_times=st.none() | INT32,
    batch=st.booleans(),
    broker_name=st.none() | st.text(max_size=5),
)


def fields(header):
    return {name: getattr(header, name) for name in SendHeader.__struct_fields__}


@given(SENDS, st.booleans())
def test_round_trip_of_both_forms_and_ways(send, v1):
    command = RemotingCommand(10 if v1 else 310, encode_send_header(send, v1=v1), opaque=5, flag=2)
    assert fields(decode_send_header(command)) == fields(send)
    fast = (decode_fast_v1 if v1 else decode_fast_v2)(encode_header(command))
    assert (fast.opaque, fast.flag, fast.version) == (5, 2, 407)
    assert fields(fast.ext) == fields(send)


def test_strange_booleans_are_false_as_in_java():
    send = decode_send_header(RemotingCommand(310, {"b": "T", "e": "0", "m": "yes", "k": "TRUE"}))
    assert (send.batch, send.unit_mode) == (False, True)


@pytest.mark.parametrize(
    "ext",
    [
        None,
        {},
        {"b": "T"},
        {"e": "1"},
        {"b": "T", "e": "x"},
        {"b": "T", "e": "2147483648"},
        {"b": "T", "e": "1", "g": "9223372036854775808"},
        {"b": "T", "e": ""},
    ],
)
def test_missing_or_unreadable_fields_are_answered_with_code_1(ext):
    with pytest.raises(RequestRejected) as caught:
        decode_send_header(RemotingCommand(310, ext))
    assert caught.value.code == 1


@given(st.binary(max_size=60))
def test_fast_way_gives_a_header_or_one_of_the_documented_errors(data):
    for decode in (decode_fast_v1, decode_fast_v2):
        with pytest.raises(UNDECODABLE):
            decode(data)


@given(
    INT32,
    st.sampled_from([0, 10, 11, 12]),
    INT32,
    st.integers(0, 2**63 - 1),
    st.text(max_size=10),
    st.booleans(),
)
def test_response_template_is_a_frame(opaque, code, queue_id, offset, region, trace_on):
    row = ("T", queue_id, 0xAB, 100, 0, 0, offset, "", "", 0, 0, "")
    template = answer_template(code, "CD", region, trace_on)
    frames = rows_of([row, row]).answers([opaque, None], template)
    (cut,) = FrameReader().receive_data(frames)
    json.loads(cut[1])
    command = decode_frame(*cut)
    assert (command.opaque, command.code, command.flag, command.body) == (opaque, code, 1, None)
    assert command.ext == {
        "queueId": str(queue_id),
        "TRACE_ON": "true" if trace_on else "false",
        "MSG_REGION": region,
        "msgId": "CD00000000000000AB",
        "queueOffset": str(offset),
    }
