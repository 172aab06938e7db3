"""Java's String.hashCode, on which tags and index keys depend.

Spec: remoting.md, section 5.8; store.md, section 3.1.
"""

from functools import lru_cache

# The hash is the text read as a number in base 31 whose digits are the characters. A character is
# 31 high + low, so two texts of proper digits give it to int(), four times faster than a loop.
_DIGITS = b"0123456789abcdefghijklmnopqrstu"
_LOW = bytes(_DIGITS[unit % 31] for unit in range(256))
_HIGH = bytes(_DIGITS[unit // 31] for unit in range(256))
# int() is quadratic and refuses more than 4300 digits.
_LONGEST = 256
_POWERS = [pow(31, size, 1 << 32) for size in range(_LONGEST + 1)]


def java_hash(text: str, before: int = 0) -> int:
    """
    Return Java's hash of a text: h = 31 h + UTF-16 unit, as a signed 32-bit integer.

    :param before: the hash of another text in front of this one.
    """
    size = len(text)
    if text.isascii() and 0 < size <= _LONGEST:
        data = text.encode("ascii")
        value = before * _POWERS[size]
        value += int(data.translate(_LOW), 31) + 31 * int(data.translate(_HIGH), 31)
    else:
        value = before
        data = text.encode("utf-16-be", "surrogatepass")
        for position in range(0, len(data), 2):
            value = value * 31 + (data[position] << 8 | data[position + 1]) & 0xFFFFFFFF
    value &= 0xFFFFFFFF
    return value - 0x100000000 if value & 0x80000000 else value


@lru_cache(maxsize=4096)
def tags_code(tags: str) -> int:
    """Return the number that the consume queue stores for a tag; 0 for no tag."""
    return java_hash(tags) if tags else 0
