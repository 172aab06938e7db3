"""The bloom filter in which a message's units note which consumers' selectors it matched.

Spec: store.md, sections 6.2 and 12.5.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

_MASK = (1 << 64) - 1
_INT_MASK = (1 << 32) - 1
_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F
_BLOCK = Struct("<QQ")


class BloomFilterData(NamedTuple):
    """
    The bits of one consumer.

    :ivar bit_num: length of the bit map to which they belong, in bits.
    :ivar positions: positions of the bits; one may be there twice.
    """

    bit_num: int
    positions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """
    The sizes of a bloom filter.

    :ivar hashes: number of bits of one consumer.
    :ivar bits: length of the bit map in bits; a multiple of 8.
    """

    hashes: int
    bits: int

    @classmethod
    def by_error_rate(cls, percent: int, expected: int) -> "BloomFilter":
        """
        Choose the sizes for an error rate.

        :param percent: how many percent of the messages may falsely seem to match, 1 to 99.
        :param expected: number of consumers.
        """
        error = percent / 100
        hashes = math.ceil(math.log(error) / math.log(0.5))
        log2 = math.log(2)
        bits = math.ceil(expected * (math.log(1 / error) / log2) * (math.log(math.e) / log2))
        return cls(hashes, 8 * math.ceil(bits / 8))

    def generate(self, name: str) -> BloomFilterData:
        """
        Return the bits of a consumer.

        :param name: `<group>#<topic>`.
        """
        hashed = murmur3(name.encode("utf-8", "replace"))
        low, high = hashed & _INT_MASK, hashed >> 32
        positions = []
        for step in range(1, self.hashes + 1):
            value = (low + step * high) & _INT_MASK
            if value >> 31:
                value ^= _INT_MASK
            positions.append(value % self.bits)
        return BloomFilterData(self.bits, tuple(positions))

    def is_valid(self, data: BloomFilterData | None) -> bool:
        """Return whether the bits were made by a filter of the same sizes."""
        return (
            data is not None
            and data.bit_num == self.bits
            and len(data.positions) == self.hashes
            and all(0 <= position < self.bits for position in data.positions)
        )

    def bit_map(self, matched: Iterable[BloomFilterData]) -> bytes:
        """
        Return the bit map in which the bits of these consumers are set; all of these must be valid.
        """
        bits = bytearray(self.bits // 8)
        for data in matched:
            for position in data.positions:
                bits[position >> 3] |= 1 << (position & 7)
        return bytes(bits)


def is_hit(bit_map: bytes, data: BloomFilterData) -> bool:
    """
    Return whether all bits of a consumer are set.

    :param bit_map: has the length `data.bit_num`.
    """
    return all(bit_map[position >> 3] >> (position & 7) & 1 for position in data.positions)


def murmur3(data: bytes) -> int:
    """Return the first 64 bits of MurmurHash3 x64-128 with seed 0, as one little-endian number."""
    h1 = h2 = 0
    whole = len(data) & ~15
    for first, second in _BLOCK.iter_unpack(data[:whole]):
        h1 = _rotate(h1 ^ _mix_first(first), 27) + h2 & _MASK
        h1 = h1 * 5 + 0x52DCE729 & _MASK
        h2 = _rotate(h2 ^ _mix_second(second), 31) + h1 & _MASK
        h2 = h2 * 5 + 0x38495AB5 & _MASK
    first, second = _BLOCK.unpack(data[whole:].ljust(16, b"\0"))
    h1 ^= _mix_first(first) ^ len(data)
    h2 ^= _mix_second(second) ^ len(data)
    h1 = h1 + h2 & _MASK
    h2 = h2 + h1 & _MASK
    return _finish(h1) + _finish(h2) & _MASK


def _rotate(value: int, by: int) -> int:
    return (value << by | value >> 64 - by) & _MASK


def _mix_first(value: int) -> int:
    return _rotate(value * _C1 & _MASK, 31) * _C2 & _MASK


def _mix_second(value: int) -> int:
    return _rotate(value * _C2 & _MASK, 33) * _C1 & _MASK


def _finish(value: int) -> int:
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & _MASK
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33
