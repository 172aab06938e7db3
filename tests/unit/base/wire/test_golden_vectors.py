"""Appendix A of remoting.md: bytes that Java 4.9.7 wrote, read and written again."""

import json
import zlib
from pathlib import Path

import pytest

from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.runs.row_list import rows_of
from rmq_ha.base.wire import binary_header, json_header
from rmq_ha.base.wire.batch import encode_batch, read_batch
from rmq_ha.base.wire.bodies import HeartbeatData
from rmq_ha.base.wire.fastjson import parse
from rmq_ha.base.wire.frame import JSON, FrameReader, decode_frame, encode_frame
from rmq_ha.base.wire.route_bodies import (
    BrokerRoute,
    QueueRoute,
    RegisterBrokerBody,
    TopicRoute,
    body_crc32,
)
from rmq_ha.base.wire.send_header import (
    answer_template,
    decode_send_header,
    encode_send_header,
)
from rmq_ha.base.wire.text import quote

VECTORS: dict[str, str] = json.loads(
    (Path(__file__).parents[3] / "vectors" / "remoting" / "appendix_a.json").read_text("utf-8")
)
HEADERS = [name for name in VECTORS if name.endswith("_header")]
FRAMES = [name for name in VECTORS if name.endswith("_frame_hex")]
REGISTRATION = RegisterBrokerBody(
    DataVersion(1700000000000, 3),
    {"TopicA": TopicConfig("TopicA", 8, 8, 6), "TBW102": TopicConfig("TBW102", 8, 8, 7)},
)
MSG_ID = "7F00000100002A9F0000000000000000"


def read(name):
    (frame,) = FrameReader().receive_data(bytes.fromhex(VECTORS[name]))
    return frame


@pytest.mark.parametrize("name", HEADERS)
def test_json_header_comes_out_as_it_went_in(name):
    data = VECTORS[name].encode()
    assert json_header.encode_header(decode_frame(JSON, data, b"")) == data


@pytest.mark.parametrize("name", FRAMES)
def test_frame_comes_out_as_it_went_in(name):
    frame = read(name)
    command = decode_frame(*frame)
    assert encode_frame(command) == bytes.fromhex(VECTORS[name])


def test_send_request_a1():
    kind, header, body = read("send_v2_frame_hex")
    command = decode_frame(kind, header, body)
    assert (command.code, command.opaque, command.flag) == (310, 7, 0)
    assert (command.version, command.body, command.binary) == (407, b"hi", False)
    assert header.decode() == VECTORS["send_v2_header"]
    send = decode_send_header(command)
    assert (send.producer_group, send.topic, send.default_topic) == ("PG", "TopicA", "TBW102")
    assert (send.default_topic_queue_nums, send.queue_id, send.born_timestamp) == (
        4,
        1,
        1700000000000,
    )
    assert send.max_reconsume_times is None
    assert send.broker_name == "broker-a"
    assert encode_send_header(send) == command.ext


def test_binary_send_request_a2_says_the_same():
    plain = decode_frame(*read("send_v2_frame_hex"))
    binary = decode_frame(*read("send_v2_binary_frame_hex"))
    assert binary.binary
    binary.binary = False
    assert binary == plain


def test_send_response_a3():
    row = ("T", 1, int(MSG_ID[-16:], 16), 100, 0, 0, 0, "", "", 0, 0, "")
    frame = rows_of([row]).answers([7], answer_template(0, MSG_ID[:-16]))
    assert frame[8:].decode() == VECTORS["send_response_header"]
    ((_, header, body),) = FrameReader().receive_data(frame)
    binary = decode_frame(*read("send_response_binary_frame_hex"))
    command = decode_frame(0, header, body)
    command.binary = True
    assert command == binary


def test_pull_response_a4_carries_two_records():
    command = decode_frame(*read("pull_response_frame_hex"))
    assert command.ext == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "2",
        "maxOffset": "7",
        "minOffset": "0",
    }
    assert command.remark == "FOUND"
    assert command.body is not None
    assert len(command.body) == 184 + 122


def test_registration_a5():
    body = VECTORS["register_broker_body"].encode()
    assert RegisterBrokerBody.decode(body) == REGISTRATION
    assert parse(REGISTRATION.encode()) == parse(body)
    assert body_crc32(body) == 1697969387


def test_compressed_registration_a6():
    command = decode_frame(*read("register_broker_compressed_frame_hex"))
    body = command.body
    assert body is not None
    assert RegisterBrokerBody.decode(body, compressed=True) == REGISTRATION
    assert body_crc32(body) == 697467845
    assert command.ext is not None
    assert command.ext["bodyCrc32"] == "697467845"
    assert zlib.decompress(REGISTRATION.encode(compressed=True)) == zlib.decompress(body)


def test_check_transaction_a7_is_one_way():
    command = decode_frame(*read("check_transaction_frame_hex"))
    assert command.code == 39
    assert command.is_oneway
    assert not command.is_response


def test_heartbeat_a8_and_its_form_with_a_reference():
    plain = HeartbeatData.decode(VECTORS["heartbeat_body"].encode())
    shared = HeartbeatData.decode(VECTORS["heartbeat_ref_body"].encode())
    assert plain.client_id == "10.0.0.1@1234#5678"
    assert plain.producer_groups == ["PG"]
    assert plain.consumers[0].subscriptions[0].tags_set == {"TagA", "TagB"}
    assert shared.consumers[1].subscriptions == plain.consumers[0].subscriptions
    assert shared.consumers[0].consume_type is None
    assert plain.encode().decode() == VECTORS["heartbeat_body"]


def test_route_a9_in_both_forms():
    route = TopicRoute(
        [QueueRoute("broker-a", 8, 8, 6)],
        [BrokerRoute("DefaultCluster", "broker-a", {0: "127.0.0.1:10911", 1: "127.0.0.1:11911"})],
    )
    assert route.encode().decode() == VECTORS["route_body_old"]
    assert route.encode(standard_json=True).decode() == VECTORS["route_body_new"]
    assert TopicRoute.decode(VECTORS["route_body_old"].encode()) == route
    assert TopicRoute.decode(VECTORS["route_body_new"].encode()) == route


def test_batch_a10():
    body = bytes.fromhex(VECTORS["batch_body_hex"])
    members = list(read_batch(body))
    assert members == [
        (0, b"one", "UNIQ_KEY\x01U1\x02WAIT\x01true\x02TAGS\x01TagA"),
        (0, b"two", "WAIT\x01true"),
    ]
    assert encode_batch(members) == body


def test_escapes_a10():
    text = 'a\x01b\x02c\n\t"\\/\x7f\u2028中😀<'
    assert quote(text) == VECTORS["escapes_json"]


def test_binary_header_of_an_unknown_language_is_still_read():
    data = bytearray(binary_header.encode_header(decode_frame(*read("send_v2_binary_frame_hex"))))
    data[2] = 99
    assert binary_header.decode_header(bytes(data)).language is None
