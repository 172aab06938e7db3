"""
Sends as clients write them, and sends with something unusual, drawn at random.

`ODDITIES` are changes of an ordinary send, by name; a maker of runs has to take some of the changed
sends and to leave out the others.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from struct import pack

from rmq_ha.base.model.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from rmq_ha.base.runs.face import UNUSUAL_PROPERTIES

TOPICS = ("TopicA", "TopicB", "%RETRY%g", "a_b-C|d")
LONG_NAMES = {
    "a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums",
    "e": "queueId", "f": "sysFlag", "g": "bornTimestamp", "h": "flag", "i": "properties",
    "j": "reconsumeTimes", "k": "unitMode", "l": "maxReconsumeTimes", "m": "batch", "n": "bname",
}  # fmt: skip
WORDS = ("x", "value", "é", "中文", "\U0001f600", 'q"uote', "back\\slash", "a/b", "tab\t", "\x7f")


@dataclass
class SendText:
    """
    A send before it is a frame. Values are JSON texts, but for `properties` and `topic`.

    :ivar before: JSON text in front of the first member.
    :ivar behind: text behind the JSON.
    :ivar more: how many bytes the frame says that its header has beyond those that it has.
    :ivar missing: how many bytes at the end of the frame are not there.
    :ivar after: bytes behind the frame.
    """

    topic: str
    properties: str
    body: bytes
    top: list[tuple[str, str]]
    ext: list[tuple[str, str]]
    code: str = "310"
    kind: int = 0
    before: str = "{"
    behind: str = ""
    more: int = 0
    missing: int = 0
    after: bytes = b""
    names: dict[str, str] = field(default_factory=dict)
    writes_properties: bool = True
    writes_topic: bool = True

    def frame(self, random: Random) -> bytes:
        """Return the frame; white space, the order of members and escapes are random."""
        gap = _gaps(random)
        ext = list(self.ext)
        if self.writes_topic:
            ext.insert(random.randrange(len(ext) + 1), ("b", _string(random, self.topic)))
        if self.writes_properties:
            ext.insert(random.randrange(len(ext) + 1), ("i", _string(random, self.properties)))
        fields = [(self.names.get(name, name), value) for name, value in ext]
        top = [*self.top, ("extFields", _object(fields, gap))]
        if random.random() < 0.3:
            random.shuffle(top)
        members = [("code", self.code), *top]
        text = self.before + _object(members, gap)[1:] + self.behind
        header = text.encode("utf-8", "surrogatepass")
        length = 4 + len(header) + len(self.body)
        words = pack(">iI", length, self.kind << 24 | (len(header) + self.more))
        frame = words + header + self.body
        return frame[: len(frame) - self.missing] + self.after


def _gaps(random: Random) -> Callable[[], str]:
    if random.random() < 0.7:
        return lambda: ""
    return lambda: random.choice(("", " ", "\t", "\r\n", "         "))


def _object(members: list[tuple[str, str]], gap: Callable[[], str]) -> str:
    texts = [f'{gap()}"{name}"{gap()}:{gap()}{value}{gap()}' for name, value in members]
    if texts and members[0][0] == "code":
        texts[0] = f'"code":{members[0][1]}' + gap()
    return "{" + ",".join(texts) + "}"


def _string(random: Random, text: str) -> str:
    way = random.randrange(4)
    if way == 0:
        return json.dumps(text)
    written = json.dumps(text, ensure_ascii=False)
    if way == 1:
        written = written.replace("/", "\\/")
    return written


def ordinary_send(random: Random) -> SendText:
    """Return a send with nothing unusual."""
    number = random.randrange(1 << 64)
    properties = {"UNIQ_KEY": f"{number:032X}"}
    if random.random() < 0.5:
        properties["TAGS"] = random.choice(("TagA", "TagB", "标签", "a || b"))
    if random.random() < 0.5:
        keys = [f"key{random.randrange(50)}" for _ in range(random.randint(1, 30))]
        properties["KEYS"] = random.choice((" ", "  ")).join(keys)
    if random.random() < 0.5:
        properties[random.choice(WORDS)] = random.choice(WORDS)
    pieces = [f"{name}\x01{value}" for name, value in properties.items()]
    if random.random() < 0.7:
        pieces.insert(random.randint(1, len(pieces)), "WAIT\x01true")
    text = "\x02".join(pieces) + random.choice(("", "", "\x02"))
    if random.random() < 0.1:
        text = ""
    top = [
        ("flag", random.choice(("0", "0", "0", "2"))),
        ("language", '"JAVA"'),
        ("opaque", str(random.randint(-(1 << 31), (1 << 31) - 1))),
        ("serializeTypeCurrentRPC", '"JSON"'),
        ("version", "407"),
    ]
    ext = [
        ("a", '"group"'), ("c", '"TBW102"'), ("d", '"8"'), ("e", f'"{random.randrange(8)}"'),
        ("f", random.choice(('"0"', '"1"', '"769"'))), ("g", f'"{random.randrange(1 << 42)}"'),
        ("h", f'"{random.randint(-5, 5)}"'), ("j", '"0"'), ("k", '"false"'), ("m", '"false"'),
    ]  # fmt: skip
    if random.random() < 0.5:
        ext.append(("n", '"broker-a"'))
    if random.random() < 0.3:
        ext.append(("l", f'"{random.randrange(16)}"'))
    body = random.randbytes(random.choice((0, 1, 20, 200)))
    return SendText(random.choice(TOPICS), text, body, top, ext)


Oddity = Callable[[Random, SendText], None]
ODDITIES: dict[str, Oddity] = {}


def oddity(change: Oddity) -> Oddity:
    ODDITIES[change.__name__] = change
    return change


def _put(members: list[tuple[str, str]], name: str, value: str) -> None:
    members[:] = [member for member in members if member[0] != name]
    members.append((name, value))


def _property(send: SendText, piece: str, random: Random) -> None:
    pieces = send.properties.split("\x02") if send.properties else []
    pieces.insert(random.randint(0, len(pieces)), piece)
    send.properties = "\x02".join(pieces)


def _unusual(name: str) -> Oddity:
    def change(random: Random, send: SendText) -> None:
        _property(send, f"{name}\x01{random.choice(('1', 'true', 'x'))}", random)

    change.__name__ = f"property_{name}"
    return change


for _name in sorted(UNUSUAL_PROPERTIES):
    oddity(_unusual(_name))


@oddity
def long_names(random: Random, send: SendText) -> None:
    send.code, send.names = "10", LONG_NAMES


@oddity
def other_code(random: Random, send: SendText) -> None:
    send.code = random.choice(("11", "320", "3100", "-310", '"310"', "310.0", "100", "1"))


@oddity
def odd_number(random: Random, send: SendText) -> None:
    value = random.choice(
        ("007", "-0", "+1", "1.0", "1e2", "", " 1", "1 ", "0x1", "2147483648", "-2147483649", "²",
         "9223372036854775808", "99999999999999999999999", "1_0", "00", "-01", "--1", "-")
    )  # fmt: skip
    name = random.choice("defghjl")
    _put(send.ext, name, random.choice((f'"{value}"', value or "0")))


@oddity
def odd_word(random: Random, send: SendText) -> None:
    word = random.choice(('"TRUE"', '"1"', '"0"', "1", "0", "true", "false", '"no"', '""', "null"))
    _put(send.ext, random.choice("km"), word)


@oddity
def batch(random: Random, send: SendText) -> None:
    _put(send.ext, "m", random.choice(('"true"', "true")))


@oddity
def null(random: Random, send: SendText) -> None:
    if random.random() < 0.5:
        _put(send.ext, random.choice("abcdefghijklmn"), "null")
    else:
        _put(send.top, random.choice(("flag", "opaque", "version", "remark", "language")), "null")


@oddity
def other_kind_of_value(random: Random, send: SendText) -> None:
    value = random.choice(("{}", "[]", "[1]", '{"a":{"b":[1,"}"]}}', "1", '"x"', "true", "1.5"))
    where = send.top if random.random() < 0.5 else send.ext
    names = ("flag", "opaque", "version", "remark", "language", "x")
    _put(where, random.choice(names if where is send.top else ("a", "c", "n", "x", "e")), value)


@oddity
def missing_member(random: Random, send: SendText) -> None:
    name = random.choice("acdefghjkm")
    if random.random() < 0.5:
        name = random.choice(("opaque", "flag", "version", "language"))
    send.top = [member for member in send.top if member[0] != name]
    send.ext = [member for member in send.ext if member[0] != name]


@oddity
def no_queue(random: Random, send: SendText) -> None:
    send.ext = [member for member in send.ext if member[0] != "e"]


@oddity
def no_opaque(random: Random, send: SendText) -> None:
    send.top = [member for member in send.top if member[0] != "opaque"]


@oddity
def no_topic(random: Random, send: SendText) -> None:
    send.writes_topic = False


@oddity
def no_properties(random: Random, send: SendText) -> None:
    send.writes_properties = False


@oddity
def member_twice(random: Random, send: SendText) -> None:
    name, value = random.choice(send.ext)
    send.ext.append((name, value if random.random() < 0.5 else '"1"'))
    if random.random() < 0.3:
        send.top.append(("opaque", "5"))


@oddity
def more_members(random: Random, send: SendText) -> None:
    send.top.append(("remark", random.choice(('"a\\u0001"', '"\\ud83d\\ude00"', '"\\x"', "tru"))))
    send.ext.append((random.choice(("ns", "AccessKey")), random.choice(('"x"', '"\\ud800"', "-1"))))


@oddity
def transaction(random: Random, send: SendText) -> None:
    _put(send.ext, "f", f'"{random.choice((4, 8, 12, 5, 1028))}"')


@oddity
def hosts_of_16_bytes(random: Random, send: SendText) -> None:
    _put(send.ext, "f", f'"{random.choice((16, 32, 48, 64, -1 & ~12, -2147483648))}"')


@oddity
def flag(random: Random, send: SendText) -> None:
    _put(send.top, "flag", random.choice(("1", "3", "4", "6", "-1", "-2", '"0"', "2.0")))


@oddity
def quoted_opaque(random: Random, send: SendText) -> None:
    _put(send.top, "opaque", random.choice(('"7"', "7.0", "7e0", "-0", "007", "2147483648")))


@oddity
def other_queue(random: Random, send: SendText) -> None:
    _put(send.ext, "e", f'"{random.choice((-1, 8, 9, 2147483647, -2147483648))}"')


@oddity
def topic(random: Random, send: SendText) -> None:
    send.topic = random.choice(
        ("", " ", "a b", "a/b", "é", "T" * 127, "T" * 128, "a\x00", ".", SCHEDULE_TOPIC,
         TIMER_TOPIC, "a.b", "|", "TopicA\x01", "\ud800")
    )  # fmt: skip


@oddity
def broken_piece(random: Random, send: SendText) -> None:
    pieces = ("name", "name\x01", "\x01value", "", "\x01", "a\x01b\x01c")
    _property(send, random.choice(pieces), random)


@oddity
def odd_wait(random: Random, send: SendText) -> None:
    if random.random() < 0.3:
        send.properties = ""
    _property(send, random.choice(("WAIT\x01true", "WAIT\x01trueX", "WAIT\x01TRUE")), random)
    if random.random() < 0.3:
        send.properties += "\x02WAIT\x01true" * random.randint(1, 2)


@oddity
def property_twice(random: Random, send: SendText) -> None:
    name = random.choice(("KEYS", "UNIQ_KEY", "TAGS"))
    _property(send, f"{name}\x01first", random)
    _property(send, f"{name}\x01second key", random)


@oddity
def separators_at_the_end(random: Random, send: SendText) -> None:
    send.properties += "\x02" * random.randint(1, 3)


@oddity
def long_properties(random: Random, send: SendText) -> None:
    character = random.choice(("x", "é", "中"))
    count = random.choice((7677, 7678, 7679, 30000))
    send.properties = "a\x01" + character * (count - 2 + random.choice((0, 2)))


@oddity
def many_keys(random: Random, send: SendText) -> None:
    send.properties = random.choice(
        ("KEYS\x01" + "k " * 64, "KEYS\x01" + "k " * 65, "KEYS\x01" + "k" * 200,
         "KEYS\x01" + " " * 65 + "x" * 63, "KEYS\x01" + " " * 65 + "x" * 64,
         "KEYS\x01" + "é " * 50, "KEYS\x01" + "k " * 65 + "\x02KEYS\x01one")
    )  # fmt: skip


@oddity
def odd_escape(random: Random, send: SendText) -> None:
    value = random.choice(
        ('"\\x"', '"\\u12"', '"\\u12G4"', '"\\ud83d"', '"\\ude00"', '"\\ud83d\\u0041"', '"a\x01b"',
         '"a\nb"', '"\\ud83d\\ude00"', '"\\u0000"', '"\\b\\f\\n\\r\\t\\/"', '"\\', '"', "'a'",
         '"\ud800"')
    )  # fmt: skip
    if random.random() < 0.5:
        send.writes_properties = False
        send.ext.append(("i", f'"A\\u0001{value[1:]}'))
    else:
        _put(send.ext, random.choice("acn"), value)


@oddity
def escaped_name(random: Random, send: SendText) -> None:
    send.ext = [("\\u0065", value) if name == "e" else (name, value) for name, value in send.ext]


@oddity
def text_around(random: Random, send: SendText) -> None:
    if random.random() < 0.5:
        send.before = random.choice((" {", "\n{", "{ ", "\ufeff{", "[{"))
    send.behind = random.choice(("\n", " \t", "x", "}", "{}", "\x00"))


@oddity
def other_frame(random: Random, send: SendText) -> None:
    send.kind = random.choice((1, 2, 255))


@oddity
def long_header(random: Random, send: SendText) -> None:
    send.more = random.choice((1, len(send.body) or 1, len(send.body) + 1, -1, 100_000))
    if random.random() < 0.5:  # what would be a header if it ended where the frame ends
        send.body, send.more, send.after = b"    ", 4 + random.randint(0, 3), b"   "


@oddity
def huge_header(random: Random, send: SendText) -> None:
    send.ext.append(("x", '"' + "x" * 70_000 + '"'))


@oddity
def cut_off(random: Random, send: SendText) -> None:
    send.missing = random.randint(1, 30)


def send_with(name: str, random: Random) -> bytes:
    """Return the frame of a send that has this oddity."""
    send = ordinary_send(random)
    ODDITIES[name](random, send)
    return send.frame(random)


def chunk(random: Random, most: int = 12, share: float = 0.25) -> bytes:
    """Return sends side by side, of which a share has an oddity."""
    frames = []
    for _ in range(random.randint(1, most)):
        if random.random() < share:
            frames.append(send_with(random.choice(sorted(ODDITIES)), random))
        else:
            frames.append(ordinary_send(random).frame(random))
    return b"".join(frames)
