"""Numbers and texts in few bytes, as the POP journal and its snapshot store them."""

from rmq_ha.base.errors import CorruptRecord

_MOST_BITS = 60
"""Larger numbers are refused, so that sums of a few numbers still fit into 64 bits."""


def put_number(out: bytearray, number: int) -> None:
    """Append a number that is not negative, seven bits a byte, the lowest first."""
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def put_signed(out: bytearray, number: int) -> None:
    """Append any number; numbers from -64 to 63 take one byte."""
    put_number(out, number << 1 if number >= 0 else (-number << 1) - 1)


def put_text(out: bytearray, text: str) -> None:
    """Append a text behind its length in bytes."""
    data = text.encode("utf-8", "surrogatepass")
    put_number(out, len(data))
    out += data


class NumberReader:
    """
    Reads numbers and texts one after the other.

    All methods raise `CorruptRecord` if the bytes do not have the number or text that is asked for.

    :ivar position: index of the next byte.
    :ivar end: index behind the last byte that may be read.
    """

    __slots__ = ("_data", "end", "position")

    def __init__(self, data: bytes, position: int = 0, end: int | None = None) -> None:
        self._data = data
        self.position = position
        self.end = len(data) if end is None else end

    @property
    def is_over(self) -> bool:
        """Whether all is read."""
        return self.position >= self.end

    def number(self) -> int:
        """Return the next number that is not negative."""
        data, position, end = self._data, self.position, self.end
        number = shift = 0
        while position < end:
            byte = data[position]
            position += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.position = position
                if number >> _MOST_BITS:
                    break
                return number
            shift += 7
            if shift > _MOST_BITS:
                break
        raise CorruptRecord(f"there is no number at byte {self.position}")

    def signed(self) -> int:
        """Return the next number that `put_signed` wrote."""
        number = self.number()
        return -((number + 1) >> 1) if number & 1 else number >> 1

    def count(self) -> int:
        """
        Return the next number, which counts items that follow.

        Each item takes at least one byte, so a number that is too large is found at once.
        """
        number = self.number()
        if number > self.end - self.position:
            raise CorruptRecord(f"{number} items do not fit behind byte {self.position}")
        return number

    def text(self) -> str:
        """Return the next text."""
        size = self.count()
        start, self.position = self.position, self.position + size
        try:
            return self._data[start : start + size].decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise CorruptRecord(f"the text at byte {start} is none") from error

    def part(self) -> "NumberReader":
        """Return a reader of the next part, which stands behind its length in bytes."""
        size = self.count()
        start, self.position = self.position, self.position + size
        return NumberReader(self._data, start, start + size)
