"""HeaderDecoder: reads the header blocks of HTTP/2. The package hpack has the tables.

A gRPC client repeats nearly all headers of its last call, as numbers of a table. So an entry of the
table is kept as the pair of texts that the caller gets.

It follows RFC 7541.
"""

from hpack.exceptions import HPACKDecodingError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

OVERHEAD = 32
"""Bytes that HTTP/2 counts for each header besides its name and value."""
_MOST_DIGITS = 4
"""Most bytes after the first one of a number."""

Header = tuple[str, str]
_Entry = tuple[Header, int]
"""A header, and its size as the limits count it."""


def _entry(name: str, value: str) -> _Entry:
    return (name, value), len(name) + len(value) + OVERHEAD


_STATIC = [
    _entry("", ""),  # numbers begin with 1
    *(_entry(name.decode(), value.decode()) for name, value in HeaderTable.STATIC_TABLE),
]
_FIRST = len(_STATIC)


class HeaderDecoder:
    """
    Decodes the blocks of one connection, in their order.

    :param most_table: most bytes of headers that the peer may have this side remember.
    :param most_list: most bytes of the headers of one block.
    """

    def __init__(self, most_table: int, most_list: int) -> None:
        self._most_table, self._most_list = most_table, most_list
        self._limit = most_table
        # The static headers, then those that the peer had this side remember, newest first.
        self._table = list(_STATIC)
        self._size = 0

    def decode(self, block: bytes) -> list[Header]:
        """
        Return the headers of a block. Each byte of their text is one character.

        :raises HPACKDecodingError: the block is wrong or too large.
        """
        headers: list[Header] = []
        at, end, left, table = 0, len(block), self._most_list, self._table
        while at < end:
            first = block[at]
            if first & 0x80:
                index, at = (first & 0x7F, at + 1) if first < 0xFF else _number(block, at, 0x7F)
                if not 0 < index < len(table):
                    raise HPACKDecodingError(f"the table has no header {index}")
                header, size = table[index]
            elif first & 0x40:
                name, value, at = self._literal(block, at, 0x3F)
                header, size = entry = _entry(name, value)
                self._remember(entry)
            elif first & 0x20:
                if headers:
                    raise HPACKDecodingError("the size of the table changes within a block")
                limit, at = _number(block, at, 0x1F)
                self._resize(limit)
                continue
            else:
                name, value, at = self._literal(block, at, 0x0F)
                header, size = _entry(name, value)
            left -= size
            if left < 0:
                raise HPACKDecodingError(f"more than {self._most_list} bytes of headers")
            headers.append(header)
        return headers

    def _literal(self, block: bytes, at: int, most: int) -> tuple[str, str, int]:
        index, at = _number(block, at, most)
        if index == 0:
            name, at = _text(block, at)
        elif index < len(self._table):
            name = self._table[index][0][0]
        else:
            raise HPACKDecodingError(f"the table has no header {index}")
        value, at = _text(block, at)
        return name, value, at

    def _remember(self, entry: _Entry) -> None:
        self._table.insert(_FIRST, entry)
        self._size += entry[1]
        self._shrink()

    def _resize(self, limit: int) -> None:
        if limit > self._most_table:
            raise HPACKDecodingError(f"a table of {limit} bytes; {self._most_table} are the most")
        self._limit = limit
        self._shrink()

    def _shrink(self) -> None:
        while self._size > self._limit:
            self._size -= self._table.pop()[1]


def _number(block: bytes, at: int, most: int) -> tuple[int, int]:
    """Read a number that begins in the bits `most` of a byte; return it and the place after it."""
    if at >= len(block):
        raise HPACKDecodingError("the block ends too early")
    number = block[at] & most
    at += 1
    if number < most:
        return number, at
    for shift, byte in enumerate(block[at : at + _MOST_DIGITS]):
        number += (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return number, at + shift + 1
    raise HPACKDecodingError("a number is too large, or the block ends too early")


def _text(block: bytes, at: int) -> tuple[str, int]:
    """Read a text; return it and the place after it."""
    size, start = _number(block, at, 0x7F)
    end = start + size
    if end > len(block):
        raise HPACKDecodingError("the block ends too early")
    text = block[start:end]
    if block[at] & 0x80:
        text = decode_huffman(text)
    return text.decode("latin-1"), end
