"""JSON strings as fastjson 1.2.69 writes them.

Spec: remoting.md, sections 1.3 and 1.9, appendix A.10.
"""

import re
from collections.abc import Mapping

import msgspec

_encode = msgspec.json.encode
# What fastjson escapes and msgspec does not, or in another way.
_ODD = re.compile("[\x0b\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]").search
_ESCAPES: dict[int, str] = {
    code: f"\\u{code:04X}" for code in (*range(32), *range(127, 160), 0x2028, 0x2029)
}
_ESCAPES |= {ord(key): "\\" + value for key, value in zip('\b\t\n\f\r"\\', 'btnfr"\\', strict=True)}
_NOT_ASCII = re.compile("[^\x00-\x7f]")


def quote(text: str) -> str:
    """Return a text as a JSON string in which control characters are escaped, but `/` is not."""
    if _ODD(text) is None:
        return _encode(text).decode()
    return '"' + text.translate(_ESCAPES) + '"'


def quote_all(texts: Mapping[str, str]) -> str:
    """
    Return names and texts as a JSON object, in which each is written as `quote` writes it. One call
    of msgspec writes all of them, unless a text has a character that fastjson writes otherwise.
    """
    if _ODD("".join([*texts, *texts.values()])) is None:
        return _encode(texts).decode()
    return "{" + ",".join([f"{quote(name)}:{quote(text)}" for name, text in texts.items()]) + "}"


def quote_ascii(text: str) -> str:
    """
    Return a text as a JSON string in fastjson's form "browser compatible": `/` and every character
    beyond ASCII are escaped, too.
    """
    return _NOT_ASCII.sub(_escape_units, quote(text).replace("/", "\\/"))


def to_bytes(text: str) -> bytes:
    """Return a text in UTF-8. As in Java, each lone half of a surrogate pair becomes `?`."""
    return text.encode("utf-8", "replace")


def _escape_units(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join([f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)])
