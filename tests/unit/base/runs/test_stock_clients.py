"""What the clients of each language send is in a run, whichever maker works in this process."""

import json
from pathlib import Path

import pytest

from rmq_ha.base.runs.maker import cut
from rmq_ha.client.rules.send_frames import Destination, Outgoing, properties_text

VECTORS = json.loads(
    (Path(__file__).parents[3] / "vectors" / "remoting" / "appendix_a.json").read_text("utf-8")
)
PROPERTIES = {"UNIQ_KEY": "7F000001000118B4AAC20000000A0000", "TAGS": "TagA", "WAIT": "true"}


def own_client() -> bytes:
    to = Destination(310, "PG", "TopicA", "broker-a", "TBW102", 4, False)
    outgoing = Outgoing(0, 0, properties_text(PROPERTIES), b"body", 0, None)
    return to.frame(1, outgoing, 1_700_000_000_000, 7, oneway=False)


def headed(header: str) -> bytes:
    head = header.encode()
    return (8 + len(head)).to_bytes(4, "big") + len(head).to_bytes(4, "big") + head + b"body"


GO = (
    '{"code":310,"language":"GO","version":317,"opaque":7,"flag":0,"remark":"","extFields":'
    '{"a":"PG","b":"TopicA","c":"TBW102","d":"4","e":"1","f":"0","g":"1700000000000","h":"0",'
    '"i":"TAGS\\u0001TagA\\u0002UNIQ_KEY\\u00017F000001","j":"0","k":"false","l":"0","m":"false"}}'
)
PYTHON = (  # of the package rocketmq on PyPI, which contains the C++ client
    '{"code":10,"extFields":{"AccessKey":"","OnsChannel":"ALIYUN","Signature":"PCiecycH+ydldkA=",'
    '"batch":"0","bornTimestamp":"1795938430284","defaultTopic":"TBW102",'
    '"defaultTopicQueueNums":4,"flag":0,"producerGroup":"stock","properties":"KEYS\\u0001key-0'
    "\\u0002TAGS\\u0001TagA\\u0002UNIQ_KEY\\u00010100007F00007EE30000CC0F3B970100\\u0002WAIT"
    '\\u0001true\\u0002","queueId":0,"reconsumeTimes":"0","sysFlag":0,"topic":"TopicA",'
    '"unitMode":"0"},"flag":0,"language":"CPP","opaque":7,"remark":"","version":63}\n'
)
PADDED = GO.replace('"opaque":7', '"opaque":         7')


@pytest.mark.parametrize(
    "frame",
    [
        bytes.fromhex(VECTORS["send_v2_frame_hex"]),
        own_client(),
        headed(GO),
        headed(PYTHON),
        headed(PADDED),
    ],
    ids=["Java", "rmq-ha", "Go", "Python", "padded by a load generator"],
)
def test_each_send_of_a_stock_client_is_in_a_run(frame: bytes) -> None:
    sends = cut(frame * 3, 0, 1 << 24)
    assert sends is not None
    assert (len(sends), sends.end, list(sends.topics)) == (3, 3 * len(frame), ["TopicA"])
    assert list(sends.opaques()) == [7] * 3
