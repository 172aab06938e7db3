"""Frames of sends, encoded from values straight to bytes, for speed.

Spec: remoting.md, sections 1.2, 1.3, 4.1 and 5.1.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import itemgetter
from struct import Struct
from typing import NamedTuple

import msgspec

from rmq_ha.base.errors import ProtocolViolation
from rmq_ha.base.model.java_hash import java_hash
from rmq_ha.base.model.properties import MAX_PROPERTIES_SIZE
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import FLAG_ONEWAY, VERSION, RemotingCommand
from rmq_ha.base.wire.frame import MAX_FRAME_SIZE
from rmq_ha.base.wire.send_header import SendHeader, encode_send_header
from rmq_ha.base.wire.text import quote, to_bytes
from rmq_ha.client.rules.errors import IllegalMessage

LANGUAGE = "PYTHON"
_WORDS = Struct(">iI")
_plain = msgspec.json.encode


@dataclass(frozen=True)
class Destination:
    """The values that all sends to one broker's queues of a topic have in common."""

    code: int
    group: str
    topic: str
    broker_name: str
    default_topic: str
    default_topic_queue_nums: int
    unit_mode: bool

    @property
    def is_batch(self) -> bool:
        """Whether the body is a batch."""
        return self.code == RequestCode.SEND_BATCH_MESSAGE

    def frame(
        self, queue_id: int, message: "Outgoing", now_ms: int, opaque: int, *, oneway: bool = False
    ) -> bytes:
        """
        Return the frame of a send to one queue of this destination.

        :param now_ms: when the message was born, in ms since the epoch.
        :raises ProtocolViolation: the frame would be too large for any peer.
        """
        most = message.max_reconsume_times
        header = self._template % (
            queue_id,
            message.sys_flag,
            now_ms,
            message.flag,
            quoted(message.properties),
            message.reconsume_times,
            b"" if most is None else b'"l":"%d",' % most,
            FLAG_ONEWAY if oneway else 0,
            opaque,
        )
        body, size = message.body, len(header)
        length = 4 + size + len(body)
        if length > MAX_FRAME_SIZE - 4:
            raise ProtocolViolation(f"a frame of {length + 4} bytes cannot be sent")
        return b"".join((_WORDS.pack(length, size), header, body))

    @cached_property
    def _template(self) -> bytes:
        """The header, with places for the values that differ from send to send."""
        fields = [
            f'"a":{_text(self.group)}',
            f'"b":{_text(self.topic)}',
            f'"c":{_text(self.default_topic)}',
            f'"d":"{self.default_topic_queue_nums}"',
            '"e":"%d"',
            '"f":"%d"',
            '"g":"%d"',
            '"h":"%d"',
            '"i":%b',
            '"j":"%d"',
            f'"k":"{"true" if self.unit_mode else "false"}"',
        ]
        tail = f'"m":"{"true" if self.is_batch else "false"}","n":{_text(self.broker_name)}'
        return to_bytes(
            f'{{"code":{int(self.code)},"extFields":{{{",".join(fields)},%b{tail}}},"flag":%d,'
            f'"language":"{LANGUAGE}","opaque":%d,"serializeTypeCurrentRPC":"JSON",'
            f'"version":{VERSION}}}'
        )


class Outgoing(NamedTuple):
    """The values of one send that are not in its `Destination`."""

    sys_flag: int
    flag: int
    properties: str
    body: bytes
    reconsume_times: int = 0
    max_reconsume_times: int | None = None


def send_command(to: Destination, queue_id: int, message: Outgoing, now_ms: int) -> RemotingCommand:
    """Return the send as a command, for sends that are signed or have no connection yet."""
    header = SendHeader(
        producer_group=to.group,
        topic=to.topic,
        default_topic=to.default_topic,
        default_topic_queue_nums=to.default_topic_queue_nums,
        queue_id=queue_id,
        sys_flag=message.sys_flag,
        born_timestamp=now_ms,
        flag=message.flag,
        properties=message.properties,
        reconsume_times=message.reconsume_times,
        unit_mode=to.unit_mode,
        max_reconsume_times=message.max_reconsume_times,
        batch=to.is_batch,
        broker_name=to.broker_name,
    )
    return RemotingCommand(
        to.code, encode_send_header(header), message.body or None, language=LANGUAGE
    )


def quoted(text: str) -> bytes:
    """Encode a JSON string; half of a surrogate pair has no UTF-8 and becomes `?`."""
    try:
        return _plain(text)
    except UnicodeEncodeError:
        return _plain(to_bytes(text).decode())


def properties_text(properties: Mapping[str, str]) -> str:
    """
    Encode the property string, with the names in the order of Java's HashMap.

    :raises IllegalMessage: a name or value is empty, contains a separator (U+0001, U+0002) or is
        no text, or all together are too long.
    """
    names = tuple(properties)
    layout, pick = _layout(names)
    pieces = layout.copy()
    if pick is not None:
        pieces[1::2] = pick(properties)
    try:
        text = "".join(pieces)
    except TypeError:
        raise IllegalMessage("names and values of properties are texts") from None
    count = len(names)
    if text.count("\x01") != count or text.count("\x02") != (count and count - 1):
        raise IllegalMessage("a property's name or value contains U+0001 or U+0002")
    if len(text) > MAX_PROPERTIES_SIZE:
        raise IllegalMessage(
            f"the properties have {len(text)} characters, at most {MAX_PROPERTIES_SIZE} are allowed"
        )
    if "\x01\x02" in text or text.endswith("\x01"):
        raise IllegalMessage("a property with an empty value would vanish: leave it out")
    return text


def java_map_order(names: tuple[str, ...]) -> list[str]:
    """
    Return names in the order of a Java HashMap that they were put into one by one.

    The order is by bucket, and in a bucket by time. The table doubles when it is more than three
    quarters full.
    """
    size = 16
    while len(names) > size * 3 // 4:
        size *= 2

    def bucket(name: str) -> int:
        code = java_hash(name) & 0xFFFFFFFF
        return (code ^ code >> 16) & size - 1

    return sorted(names, key=bucket)


Pick = Callable[[Mapping[str, str]], tuple[str, ...]]


@lru_cache(maxsize=1024)
def _layout(names: tuple[str, ...]) -> tuple[list[str], Pick | None]:
    """
    Return the pieces of a property string, with empty places for values between them, and a
    function that returns the values for these places.
    """
    if not names:
        return [], None
    if not all(isinstance(name, str) and name for name in names):
        raise IllegalMessage("names of properties are texts, and not empty")
    ordered = java_map_order(names)
    layout: list[str] = []
    for name in ordered:
        layout += (f"\x02{name}\x01" if layout else f"{name}\x01", "")
    if len(ordered) == 1:
        only = ordered[0]
        return layout, lambda properties: (properties[only],)
    return layout, itemgetter(*ordered)


def _text(value: str) -> str:
    return quote(value).replace("%", "%%")
