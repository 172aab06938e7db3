"""
The face of both makers of runs: what goes into each function, and what comes out.

A maker is a module with `VERSION`, `cut`, `walk` and `concat`. `VERSION` equals `FACE_VERSION`
here, else `maker` does not use that module. The functions are pure: only `index_put` writes into
what it is given, and only `lay_out` changes the dictionary `numbers`.

**What is ordinary.** `cut` and `walk` take what is ordinary from the front, and stop before the
first message that is not. Their caller handles that message the general way, and calls again
behind it. A maker may stop earlier than the pure one: a message that it leaves out is only slower.
It never takes a message that the pure maker would leave out, and never gives other bytes.

Bytes are big-endian. `bytes` is exactly `bytes`: no maker has to take a `memoryview`. A maker
raises nothing for any content of the bytes.

**A fault of the maker itself**, such as a panic in Rust. Then `cut`, `walk`, `concat`, `units` and
`lay_out` return None, as for a message that is not ordinary. All others raise `RuntimeError`:
`index_put` may have written a part of its items by then, and no other function has changed
anything.
"""

from abc import abstractmethod
from collections.abc import Collection, Sequence
from typing import Any, Protocol

from rmq_ha.base.model.message import Address, Draft, Row
from rmq_ha.base.model.properties import (
    CLUSTER,
    DELAY,
    SENT_BY,
    TIMER_SRC,
    TRAN_MSG,
    WAIT,
    WRITTEN_BY_POPS,
)
from rmq_ha.base.model.unserved_properties import UNSERVED
from rmq_ha.base.wire.frame import Frame

FACE_VERSION = 2
"""Goes up when a function here changes its arguments, its result or its meaning."""

QueueKey = tuple[str, int]
"""The key of a queue of a broker: topic and queue id."""

UnitRun = tuple[QueueKey, int, bytes, int, int]
"""
Units of one queue without a hole: topic and queue id; queue offset of the first unit; 20 bytes for
each unit (int64 physical offset, int32 size, int64 hash of the tag); physical offset of the first
record; physical offset behind the last record.
"""

IndexNumbers = tuple[int, int, int, int, int, int]
"""
The numbers of an IndexFile's header, in its order: store time in ms of the first and of the last
indexed record; physical offsets of the same two records; number of slots in use; number that the
next item gets, at least 1.
"""

AnswerTemplate = tuple[bytes, bytes, bytes, bytes, bytes]
"""
The JSON header of an answer, cut at the four places where its numbers go: queue id, physical offset
(16 upper-case hexadecimal digits), queue offset, opaque. The other three are decimal.
"""


class Rows(Sequence[Row]):
    """
    Records that follow each other in the log, in log order; at least one, unless a caller made it.

    It is a sequence of `Row`: tuples of 12 values in this order. A maker may make a row only when
    somebody asks for it. It has no slices: `part` returns some of the rows, and `list` makes a list
    of them.

    ====  =================================================================================
    0     topic, `str`
    1     queue id, int32
    2     physical offset of the record, int64
    3     size of the record in bytes
    4     Java's hash of the property TAGS; 0 without tags or with empty ones
    5     store timestamp, ms
    6     queue offset, int64
    7     property KEYS, `str`; empty without
    8     property UNIQ_KEY, `str`; empty without
    9     sysFlag, int32, as stored
    10    physical offset of the half message (prepared transaction offset), int64
    11    all properties as stored, `str`
    ====  =================================================================================

    If a property is there twice, the last one counts. A property with an empty value counts as
    missing (`rmq_ha.base.model.properties.decode_properties`).

    Rows wait until they are dispatched and answered, thousands of them beside a slow slave. So a
    maker keeps no bodies alive with them: it copies what it needs of each record.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def start(self) -> int:
        """Physical offset of the first record."""

    @property
    @abstractmethod
    def end(self) -> int:
        """Physical offset behind the last record."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Bytes of all records, without gaps between them."""

    @property
    @abstractmethod
    def work(self) -> int:
        """Characters of all KEYS (the sum of `len(row[7])`), which bounds the work of the index."""

    @property
    @abstractmethod
    def topics(self) -> Collection[str]:
        """The topics, each once, in no order."""

    @property
    @abstractmethod
    def names(self) -> Collection[QueueKey]:
        """Topic and queue id of the records, each pair once, in no order."""

    @abstractmethod
    def part(self, first: int, end: int) -> "Rows":
        """Return the rows from index `first` up to, without, index `end`: at least one."""

    @abstractmethod
    def units(self) -> list[UnitRun] | None:
        """
        Return the consume queue units of the records that consumers may see, one run a queue, in
        the order of each queue's first such record.

        A record whose sysFlag has bit 0x4 (prepared or rolled back) gets no unit.

        :returns: None if the queue offsets of a queue do not rise by one from record to record.
        """

    @abstractmethod
    def index_put(
        self, buffer: Any, slots: int, room: int, header: IndexNumbers, reached: int
    ) -> IndexNumbers | None:
        """
        Insert an item for each key of each record into an IndexFile, and return its new header.

        The caller writes the header into the file afterwards. If there is no key to insert, the
        header comes back as it is.

        Which keys, in this order: the records in log order, without those below the physical offset
        `reached` and without rollbacks (sysFlag has both bits of 0xC). Of a record its UNIQ_KEY, if
        it has one, then the parts of KEYS between blanks that are not empty; a part that is there
        twice is inserted twice.

        The hash of a key: h = Java's String.hashCode of `topic + "#" + key` (int32, over UTF-16
        units); h if it is not negative, else `-h & 0x7FFFFFFF`.

        If header[5] is 1 (the file is empty), header[0] and header[2] become store timestamp and
        physical offset of the first inserted item's record. Then for each item with number n, from
        header[5] on:

        - seconds = (store timestamp - header[0]) // 1000 if header[0] > 0, else 0; below 0 it is 0,
          above 0x7FFFFFFF it is 0x7FFFFFFF;
        - the slot is the int32 at 40 + 4 * (hash % slots); previous = its number. If previous is
          not 0 < previous < n, header[4] grows by one if previous is 0, and previous becomes 0;
        - the item (int32 hash, int64 physical offset, int32 seconds, int32 previous) is written at
          40 + 4 * slots + 20 * n, and after it n into the slot. Do not change this order: if the
          process dies in between, the next start repairs the slots by it.

        At the end header[1] and header[3] are store timestamp and physical offset of the last item,
        and header[5] is the number of the next one.

        :param buffer: the whole file, writable: an `mmap` or a `bytearray`. No view of it is kept.
        :param slots: how many slots the file has.
        :param room: most items that may be inserted.
        :returns: None, and nothing is written, if there are more keys than `room`, or the buffer
            ends before them.
        """

    @abstractmethod
    def answers(self, opaques: Sequence[int | None], template: AnswerTemplate) -> bytes:
        """
        Return the whole frames that answer the sends of these records.

        A frame: int32 number of bytes behind it; int32 length of the header (kind 0 in its highest
        byte); the header: the template with queue id, physical offset, queue offset and opaque.

        :param opaques: one for each record, as `Sends.opaques` gives them. None: one-way, gets no
            frame.
        """

    @abstractmethod
    def counts(self) -> list[tuple[QueueKey, int, int]]:
        """Return for each topic and queue id how many records it has here, and their bytes."""


class Sends(Protocol):
    """
    Ordinary sends that arrived directly one after the other; at least one.

    They may keep the chunk alive that they were cut from, as they live until they are appended.

    An ordinary send is a whole frame with a JSON header (kind 0), at most 16,777,216 bytes with its
    length word, whose header says all of the following. White space of JSON (blank, tab, CR, LF)
    may stand between tokens.

    - It begins with the member `"code"`, whose value is 310 or 10, and another member follows. A
      maker may leave out 10.
    - `opaque` is there; `opaque`, `flag` (0 without) and `version` are plain int32. `flag` is 0 or
      2 (one-way). Other members but `extFields` may have any value that is JSON.
    - `extFields` is an object. In the names of code 310: `b` topic and `e` queue id are there; `i`
      properties (empty without); `f` sysFlag, `h` flag, `j` reconsume times (0 without) are int32,
      `g` born timestamp int64 (0 without); `d` and `l` are int32; `k` is a boolean; `m`, if it is
      there, is false. Code 10 has the same in long names: topic, queueId, properties, sysFlag,
      flag, reconsumeTimes, bornTimestamp, defaultTopicQueueNums, maxReconsumeTimes, unitMode,
      batch. Other ext fields are ignored. Numbers and booleans may be JSON strings that spell them;
      a maker may leave out any but `"0"`, `"-?[1-9][0-9]*"`, `"true"` and `"false"`.
    - The bits 0xC of sysFlag are 0. A maker may leave out a topic that `lay_out` does not take.
    - The properties have at most 7,679 characters. The first `\\x02WAIT\\x01true` is taken out of
      them, if `\\x02` or the end follows it; then one `\\x02` at their end. The rest is empty, or
      pieces with `\\x02` between them. Each piece is a name, `\\x01` and a value. The value ends
      with the piece and may contain `\\x01`; neither is empty. No name is one of
      `UNUSUAL_PROPERTIES`. KEYS has not both more than 128 characters and more than 64 blanks.

    A maker may leave out duplicate members, characters beyond ASCII, and escapes of JSON. But every
    maker reads `\\u0001` and `\\u0002`, with which clients write the separators of properties, and
    `\\"`, `\\\\`, `\\/`.

    :ivar end: position in the chunk behind the last of them.
    :ivar size: bytes of their frames.
    :ivar topics: their topics, each once, in the order of their first sends.
    """

    @property
    def end(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def topics(self) -> Sequence[str]: ...

    def __len__(self) -> int: ...

    def part(self, first: int, end: int) -> "Sends":
        """Return the sends from number `first` up to, without, number `end`: at least one."""

    def fit(self, queues: Sequence[int]) -> int:
        """
        Return how many of the first sends name a queue that exists; the next one, if any, does not.

        :param queues: for each of `topics`: a queue id exists if it is not negative and below this
            number. 0: none exists.
        """

    def opaques(self) -> Sequence[int | None]:
        """Return the opaque of each send; None for a one-way send."""

    def uniq_keys(self) -> list[tuple[str, str]]:
        """Return topic and UNIQ_KEY (empty without) of each send."""

    def frames(self) -> list[Frame]:
        """Return kind (0), header and body of each send, as they arrived."""

    def drafts(self, born: Address, store: Address, tail: str) -> list[Draft]:
        """
        Return the sends as drafts for `records.lay_out`, if `lay_out` here cannot lay them out.

        :param tail: see `lay_out`.
        """

    def lay_out(
        self,
        position: int,
        room_end: int,
        max_body: int,
        largest: int,
        stamp: int,
        numbers: dict[QueueKey, int],
        born: Address,
        store: Address,
        tail: str,
        gap: int,
    ) -> tuple[bytes, Rows] | None:
        """
        Lay all sends out as records, and number them.

        The records have the form in `rmq_ha.base.store_format.commitlog`. Of the send: queue id,
        flag, sysFlag, born timestamp, reconsume times, body, topic, properties. The body's CRC is
        CRC-32 & 0x7FFFFFFF, 0 for an empty body. The bits 0x30 of sysFlag become 0, for hosts of 4
        bytes. The prepared transaction offset is 0. The stored properties are those that remain
        (see `Sends`) and `tail`; without any, `tail` without its first character.

        :param position: physical offset of the first record.
        :param room_end: physical offset that no record may reach beyond.
        :param max_body: most bytes of a body.
        :param largest: most bytes of a record.
        :param stamp: store timestamp of all, ms.
        :param numbers: next queue offset by topic and queue id; 0 without entry. Each send takes
            one.
        :param born: address bytes (4 or 16) and port of the sender; `store` those of this broker.
        :param tail: properties to be added at the end, with `\\x02` in front.
        :param gap: bytes, all zero, between one record and the next, as DLedger has 48; not before
            the first and not behind the last.
        :returns: the bytes of records and gaps between them, and their rows. None, and `numbers` is
            as before, if a body, a record or the properties (32,767 bytes) are too large,
            `room_end` is too near, or a topic does not have 1 to 127 characters of
            `%|a-zA-Z0-9_-` or is in `HOLD_TIMES`. A maker may return it for an address of 16
            bytes.
        """


class Maker(Protocol):
    """
    A module that makes runs.

    A maker with faults of its own also has a function `faults`, without parameters. It returns how
    often each of the maker's functions has failed in this process, by the function's name.

    :ivar VERSION: the `FACE_VERSION` that it was made for.
    """

    VERSION: int

    def cut(self, data: bytes, at: int, max_header: int) -> Sends | None:
        """
        Return the ordinary sends at the front of a chunk; None if it does not begin with one.

        :param data: bytes of a connection.
        :param at: position in `data` where a frame begins.
        :param max_header: a longer header, in bytes, is not ordinary.
        """

    def walk(
        self,
        data: bytes,
        at: int,
        position: int,
        max_count: int,
        max_work: int,
        check_crc: bool,
        gap: int,
    ) -> Rows | None:
        """
        Return the ordinary records at the front of a stretch of the log; None if there is none.

        An ordinary record is whole within `data` and begins with its size (int32, at least 91) and
        0xDAA320A7. It says the physical offset at which it is. Its sysFlag has none of the bits
        0x30. Body length, topic length (1 to 127) and properties length (at most 32,767) are not
        negative and add up to its size. The topic has no `/` and no NUL, is not `.`, not `..` and
        not in `HOLD_TIMES`. A maker may leave out topics and properties that are not UTF-8.

        :param data: bytes of one file of the log, cut off anywhere.
        :param at: position in `data` where the first record begins.
        :param position: physical offset of that record.
        :param max_count: most records, at least one.
        :param max_work: the record with which `Rows.work` reaches it is the last one.
        :param check_crc: an ordinary record has the right CRC of its body (if that is not empty),
            and its properties contain no 512 zero bytes in a row.
        :param gap: bytes before each record: 0 for a commit log; 48 for DLedger. Then `at` is
            behind the first record's gap, and each gap has to be the header of an entry: int32 at 0
            is 1, int32 at 4 is 48 and the record's size, int64 at 24 is its own physical offset.
        """

    def concat(self, parts: Sequence[Rows]) -> Rows | None:
        """
        Return the rows of all parts as one; None if one of the parts is another maker's.

        :param parts: at least one; each begins at or behind the end of the one before it.
        """


UNUSUAL_PROPERTIES = frozenset(
    {DELAY, TRAN_MSG, WAIT, CLUSTER, SENT_BY, TIMER_SRC, *WRITTEN_BY_POPS, *UNSERVED}
)
"""
Properties of unusual messages. A message with one of them is stored in another topic or form, or
not at all.
"""
