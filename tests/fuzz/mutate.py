"""Other bytes out of known ones: what a random change finds without knowing what it changes."""

from random import Random
from struct import pack, unpack_from

INTERESTING = (
    *(0, 1, -1, 7, 8, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 1 << 20, 16777216),
    *(2**31 - 1, -(2**31), 2**32 - 1, 2**62, 2**63 - 1, -(2**63)),
)
#: Pieces that some reader of ours looks for.
WORDS = (
    b'{"$ref":"$"}', b'{"$ref":"$.a"}', b"[", b"]", b"{", b"}", b'"', b"'", b",", b":", b"null",
    b"true", b"1e999", b"-0", b"NaN", b"0x7f", b"9" * 400, b"\\u0000", b"\\ud800", b"\\x41",
    b"\xff\xfe", b"\xc3\xa9", b"\x00", b"\x01", b"\x02", b"\r\n", b"\t", b"..", b"/", b"%RETRY%",
    b"%DLQ%", b"@", b" AND ", b" OR ", b"NOT ", b"(", b")", b" IN ", b" IS NULL", b" BETWEEN ",
    b"SCHEDULE_TOPIC_XXXX", b"RMQ_SYS_TRANS_HALF_TOPIC", b"<<", b"&a", b"*a", b"!!python/name:os",
    b"- ", b": ", b"\n", b"=", b"\\", b"extFields", b"code", b"DELAY\x0119\x02",
    b"\xda\xa3\x20\xa7",
)  # fmt: skip
NUMBERS = (
    b"1e999",
    b"-1e999",
    b"1e308",
    b"1.5",
    b"-0",
    b"--1",
    b"NaN",
    b"null",
    b'"1"',
    b"[]",
    b"9" * 400,
)
MOST, LARGE = 4096, 65536
"""Bytes that an input has at most, and one of a hundred: what costs their square shows."""


class Mutator:
    """
    Inputs without end.

    :param seeds: at least one.
    :param is_framed: they are remoting frames, whose lengths mostly stay right.
    """

    def __init__(self, random: Random, seeds: list[bytes], *, is_framed: bool = False) -> None:
        self._random = random
        self._seeds = seeds
        self._is_framed = is_framed

    def next(self) -> bytes:
        """Another one."""
        return self.changed(self._random.choice(self._seeds))

    def changed(self, data: bytes) -> bytes:
        """Out of this one."""
        if self._is_framed and self._random.random() < 0.8:
            return self._in_frame(data)
        return self._changed(data)

    def _in_frame(self, data: bytes) -> bytes:
        """Other contents in a frame of the right lengths."""
        if len(data) < 8:
            return self._changed(data)
        length, word = unpack_from(">II", data)
        size = word & 0xFFFFFF
        header, body = data[8 : 8 + size], data[8 + size : 4 + length]
        if self._random.random() < 0.7:
            header = self._changed(header)
        else:
            body = self._changed(body)
        words = pack(">II", 4 + len(header) + len(body), word & 0xFF000000 | len(header))
        return words + header + body

    def _changed(self, data: bytes) -> bytes:
        found = bytearray(data)
        random = self._random
        for _ in range(1 + int(random.expovariate(0.7))):
            random.choice(self._WAYS)(self, found)
        if random.random() < 0.01:
            self._grow(found)
            return bytes(found[:LARGE])
        return bytes(found[:MOST])

    def _place(self, data: bytearray) -> int:
        return self._random.randrange(len(data) + 1)

    def _flip(self, data: bytearray) -> None:
        if data:
            data[self._random.randrange(len(data))] ^= 1 << self._random.randrange(8)

    def _byte(self, data: bytearray) -> None:
        if data:
            data[self._random.randrange(len(data))] = self._random.randrange(256)

    def _number(self, data: bytearray) -> None:
        """A binary number of one, two, four or eight bytes."""
        size = self._random.choice((1, 2, 4, 8))
        value = self._random.choice(INTERESTING) % (1 << 8 * size)
        at = self._place(data)
        data[at : at + size] = value.to_bytes(size, "big")

    def _digits(self, data: bytearray) -> None:
        """A decimal one in the place of another."""
        at = self._place(data)
        while at < len(data) and not 48 <= data[at] <= 57:
            at += 1
        end = at
        while end < len(data) and 48 <= data[end] <= 57:
            end += 1
        random = self._random
        data[at:end] = (
            random.choice(NUMBERS) if random.random() < 0.2 else b"%d" % random.choice(INTERESTING)
        )

    def _word(self, data: bytearray) -> None:
        at = self._place(data)
        data[at : at + self._random.choice((0, 0, 1, 4))] = self._random.choice(WORDS)

    def _delete(self, data: bytearray) -> None:
        at = self._place(data)
        del data[at : at + 1 + int(self._random.expovariate(0.2))]

    def _repeat(self, data: bytearray) -> None:
        """A piece again, once or often."""
        at = self._place(data)
        piece = bytes(data[at : at + 1 + int(self._random.expovariate(0.1))])
        data[at:at] = piece * self._random.choice((1, 1, 2, 30))

    def _grow(self, data: bytearray) -> None:
        """A short piece, very often."""
        at = self._place(data)
        piece = bytes(data[at : at + 1 + int(self._random.expovariate(0.1))]) or b"0"
        data[at:at] = piece * (self._random.randrange(1000, LARGE) // len(piece))

    def _cut(self, data: bytearray) -> None:
        del data[self._place(data) :]

    def _splice(self, data: bytearray) -> None:
        """Go on with another seed."""
        other = self._random.choice(self._seeds)
        data[self._place(data) :] = other[self._random.randrange(len(other) + 1) :]

    _WAYS = (_flip, _flip, _byte, _number, _digits, _digits, _word, _word, _delete, _repeat, _cut,
             _splice)  # fmt: skip
