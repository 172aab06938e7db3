"""
The greeting of a slave of ours: a first report that also tells a checksum of the log below it.

Twelve words of a report's form, in one write. A master that knows nothing of it takes one of them
for the first report, mostly the last, and the others for acknowledgements. All of them are true
(each is a place at or below P, within the slave's log), and the slave takes the log from any.

====  ==========================================================================
word  value
====  ==========================================================================
0     P: the slave holds the log up to there, and asks for what follows
1     P - MARK
2     P - k: the checksum is of the 2**k bytes in front of P
3-10  P minus one byte each of the checksum (BLAKE2b, 8 bytes)
11    P
====  ==========================================================================

No other slave lowers its report before it was sent anything: so a master of ours knows.
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
"""No word lies further below P."""


class Greeting(NamedTuple):
    """
    What a slave says of its log.

    :ivar place: P, a physical offset.
    :ivar window: that many bytes in front of it are in the checksum.
    """

    place: int
    window: int
    checksum: bytes


def log_checksum(log: LogBytes, start: int, end: int) -> bytes:
    """
    Of the log between two offsets.

    :raises StoreError: the disk cannot read it.
    """
    return blake2b(stretch(log, start, end), digest_size=SUM_SIZE).digest()


def greet(log: LogBytes, place: int) -> Greeting | None:
    """
    What to say of a log that is to be continued at `place`; None: too little lies below.

    :raises StoreError: the disk cannot read it.
    """
    room = place - max(int(log.min_offset), 0)
    if place - DEPTH < lowest_place(log):
        return None
    window = 1 << min(MAX_WINDOW_BITS, room.bit_length() - 1)
    return Greeting(place, window, log_checksum(log, place - window, place))


def encode_greeting(greeting: Greeting) -> bytes:
    """Its twelve words."""
    place, bits = greeting.place, greeting.window.bit_length() - 1
    told = [place - byte for byte in greeting.checksum]
    return _WORDS.pack(place, place - MARK, place - bits, *told, place)


class Progress(Enum):
    """What the words so far are."""

    OPEN = "they may become a greeting"
    IS_NONE = "they are ordinary reports"
    WHOLE = "they are a greeting"


class GreetingReader:
    """
    Tells whether the first words of a connection are a greeting.

    :ivar progress: of the words so far.
    :ivar greeting: when they are one.
    """

    def __init__(self) -> None:
        self.progress = Progress.OPEN
        self.greeting: Greeting | None = None
        self._words: list[int] = []

    @property
    def is_marked(self) -> bool:
        """More came than an ordinary first report."""
        return self.progress is Progress.OPEN and len(self._words) > 1

    def receive_word(self, word: int) -> None:
        """The next word, while the progress is OPEN."""
        words = self._words
        words.append(word)
        place, count = words[0], len(words)
        below = place - word
        if not self._fits(below, count):
            self.progress = Progress.IS_NONE
        elif count == WORD_COUNT:
            self.progress = Progress.WHOLE
            checksum = bytes(place - told for told in words[3:11])
            self.greeting = Greeting(place, 1 << place - words[2], checksum)

    def _fits(self, below: int, count: int) -> bool:
        if count in (1, WORD_COUNT):
            return below == 0
        if count == 2:
            return below == MARK
        return 0 <= below <= (MAX_WINDOW_BITS if count == 3 else DEPTH)
