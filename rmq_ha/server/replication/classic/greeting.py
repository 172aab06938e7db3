"""
The greeting of a rmq-ha slave: a first report that also tells a checksum of the log below it.

A greeting is twelve words of a report's form, in one write. A Java master takes one of them for the
first report, mostly the last, and the others for acknowledgements. All are true reports, since
each is an offset at or below P within the slave's log. The slave accepts the log from any of them.

====  ==========================================================================
word  value
====  ==========================================================================
0     P: the slave holds the log up to there, and asks for what follows
1     P - MARK
2     P - k: the checksum is of the 2**k bytes in front of P
3-10  P minus one byte each of the checksum (BLAKE2b, 8 bytes)
11    P
====  ==========================================================================

No other slave lowers its report before it was sent bytes, so a rmq-ha master recognizes a greeting.
"""

from enum import Enum
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from rmq_ha.server.replication.places import lowest_place, stretch
from rmq_ha.server.store.log.journal_log import LogBytes

MARK = 0xA5
MAX_WINDOW_BITS = 20
SUM_SIZE = 8
_WORDS = Struct(">12q")
WORD_COUNT = 12
DEPTH = 255
"""No word lies more than this number of bytes below P."""


class Greeting(NamedTuple):
    """
    A slave's claim about its log.

    :ivar place: P, a physical offset.
    :ivar window: number of bytes before P that the checksum covers.
    """

    place: int
    window: int
    checksum: bytes


def log_checksum(log: LogBytes, start: int, end: int) -> bytes:
    """
    Return the checksum of the log between two offsets.

    :raises StoreError: the disk cannot read it.
    """
    return blake2b(stretch(log, start, end), digest_size=SUM_SIZE).digest()


def greet(log: LogBytes, place: int) -> Greeting | None:
    """
    Make the greeting for a log that is to be continued at `place`; None: too few bytes lie below.

    :raises StoreError: the disk cannot read them.
    """
    room = place - max(int(log.min_offset), 0)
    if place - DEPTH < lowest_place(log):
        return None
    window = 1 << min(MAX_WINDOW_BITS, room.bit_length() - 1)
    return Greeting(place, window, log_checksum(log, place - window, place))


def encode_greeting(greeting: Greeting) -> bytes:
    """Encode a greeting as twelve words."""
    place, bits = greeting.place, greeting.window.bit_length() - 1
    told = [place - byte for byte in greeting.checksum]
    return _WORDS.pack(place, place - MARK, place - bits, *told, place)


class GreetingProgress(Enum):
    """What the words (64-bit numbers) that a slave has sent so far can be."""

    OPEN = "they may become a greeting"
    IS_NONE = "they are ordinary reports"
    WHOLE = "they are a greeting"


class GreetingReader:
    """
    Tells whether the first words of a connection are a greeting.

    :ivar progress: kind of the words that have come so far.
    :ivar greeting: the greeting, once it is complete; otherwise None.
    """

    def __init__(self) -> None:
        self.progress = GreetingProgress.OPEN
        self.greeting: Greeting | None = None
        self._words: list[int] = []

    @property
    def is_marked(self) -> bool:
        """
        Whether the words may become a greeting, since more of them came than an ordinary first
        report has.
        """
        return self.progress is GreetingProgress.OPEN and len(self._words) > 1

    def receive_word(self, word: int) -> None:
        """Take the next word; only while the progress is OPEN."""
        words = self._words
        words.append(word)
        place, count = words[0], len(words)
        below = place - word
        if not self._fits(below, count):
            self.progress = GreetingProgress.IS_NONE
        elif count == WORD_COUNT:
            self.progress = GreetingProgress.WHOLE
            checksum = bytes(place - told for told in words[3:11])
            self.greeting = Greeting(place, 1 << place - words[2], checksum)

    def _fits(self, below: int, count: int) -> bool:
        if count in (1, WORD_COUNT):
            return below == 0
        if count == 2:
            return below == MARK
        return 0 <= below <= (MAX_WINDOW_BITS if count == 3 else DEPTH)
