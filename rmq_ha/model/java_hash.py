"""Java's String.hashCode, on which tags and index keys depend.

Spec: remoting.md, section 5.8; store.md, section 3.1.
"""

from functools import lru_cache


def java_hash(text: str) -> int:
    """h = 31 h + UTF-16 unit, as a signed 32-bit integer."""
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = value * 31 + unit
    else:
        data = text.encode("utf-16-be", "surrogatepass")
        for position in range(0, len(data), 2):
            value = value * 31 + (data[position] << 8 | data[position + 1])
    value &= 0xFFFFFFFF
    return value - 0x100000000 if value & 0x80000000 else value


@lru_cache(maxsize=4096)
def tags_code(tags: str) -> int:
    """The consume queue's number for a tag string; 0 for none."""
    return java_hash(tags) if tags else 0
