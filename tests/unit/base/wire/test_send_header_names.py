"""Every field of a send has its two names."""

import msgspec

from rmq_ha.base.wire.send_header import SendHeader, SendHeaderV1, decode_fast_v1

V1 = (
    "producerGroup topic defaultTopic defaultTopicQueueNums queueId sysFlag bornTimestamp flag"
    " properties reconsumeTimes unitMode maxReconsumeTimes batch bname"
)


def names(form: type[msgspec.Struct]) -> list[str]:
    return [item.encode_name for item in msgspec.structs.fields(form)]


def test_names() -> None:
    """Spec: remoting.md, section 4.1."""
    assert names(SendHeader) == list("abcdefghijklmn")
    assert names(SendHeaderV1) == V1.split()


def test_go_clients_send() -> None:
    """The Go client's header, with its own order of keys, is read without the general way."""
    header = (
        b'{"code":10,"language":"GO","version":317,"opaque":3,"flag":0,"remark":"","extFields":'
        b'{"topic":"Go","queueId":"1","properties":"A\\u0001b\\u0002","batch":"false","flag":"5"}}'
    )
    frame = decode_fast_v1(header)
    assert (frame.opaque, frame.ext.topic, frame.ext.queue_id) == (3, "Go", 1)
    assert (frame.ext.properties, frame.ext.batch, frame.ext.flag) == ("A\x01b\x02", False, 5)
