"""Knows which half messages of a queue are settled by op messages, and which op messages are used
up.

Spec: store.md, section 11.3.
"""

from array import array
from collections.abc import Callable

from rmq_ha.server.broker.transactions.messages import OpMark

WINDOW = 1 << 20
"""Most half messages (a byte each) and op messages (eight bytes each) in one pass."""
_EARLY_AT_MOST = 1 << 16
_EARLY_REST_MS = 60_000
"""
Longest time in ms from an op message to a copy of its half message that is stored after it. When
the head of the half queue is later than that, the op message is not kept for a copy any more.
"""

_SETTLED = 1
_ENDED = 2


class OpMarks:
    """
    What the op messages say about the half messages, for one pass over a half queue.

    An op message is used up when it settles nothing at or after the head of the half queue. If it
    ends a half message that has a resting copy, it is kept longer. A resting copy is one whose
    producer asked for a time without checks; the copy is found by its original's offset.

    :param half_start: queue offset where this pass begins.
    :param op_start: queue offset of the first op message that is not used up.
    :param rests: returns for a queue offset before `half_start` whether that half message may have
        a resting copy.
    :param window: how many half messages, and how many op messages, one pass takes at most.
    """

    def __init__(
        self,
        half_start: int,
        op_start: int,
        rests: Callable[[int], bool],
        window: int = WINDOW,
    ) -> None:
        self._start = half_start
        self._op_start = op_start
        self._rests = rests
        self._window = window
        self._states = bytearray()
        self._values = array("q")
        self._early: dict[int, tuple[int, int]] = {}

    @property
    def end(self) -> int:
        """Queue offset of the first half message that is too far for this pass."""
        return self._start + self._window

    def add(self, mark: OpMark) -> None:
        """Add one op message; they come in the order of their queue."""
        offset = mark.half_offset
        index = offset - self._start
        if index < 0:
            if offset >= 0 and not mark.is_moved and self._rests(offset):
                self._keep_early(mark)
        elif index < self._window:
            states = self._states
            if index >= len(states):
                states.extend(bytes(index + 1 - len(states)))
            states[index] |= _SETTLED if mark.is_moved else _SETTLED | _ENDED
        place = mark.op_offset - self._op_start
        if len(self._values) <= place < self._window:
            # Op messages that cannot be read settle nothing.
            self._values.extend([-1] * (place - len(self._values)))
            self._values.append(offset)

    def _keep_early(self, mark: OpMark) -> None:
        if len(self._early) < _EARLY_AT_MOST:
            self._early.setdefault(mark.half_offset, (mark.op_offset, mark.stored_ms))

    def is_settled(self, half_offset: int) -> bool:
        index = half_offset - self._start
        return 0 <= index < len(self._states) and self._states[index] != 0

    def next_open(self, half_offset: int) -> int:
        """
        Return the first queue offset, from this one on, of a half message that no op message of
        this pass names; at most `end`.
        """
        index = half_offset - self._start
        if index < 0:
            return half_offset
        states = self._states
        unnamed = states.find(0, index) if index < len(states) else index
        return min(self._start + (len(states) if unnamed < 0 else unnamed), self.end)

    def take_ended(self, half_offset: int) -> bool:
        """
        Return whether the producer ended the half message at this offset, of which a copy is being
        looked at. Then the copy is settled too, and the op message is used up.
        """
        index = half_offset - self._start
        if index < 0:
            return self._early.pop(half_offset, None) is not None
        return index < len(self._states) and bool(self._states[index] & _ENDED)

    def op_progress(self, half_head: int, head_stored_ms: int) -> int:
        """
        Return the queue offset of the first op message that is not used up.

        :param half_head: queue offset where the next pass begins.
        :param head_stored_ms: store time of that half message, ms; the present time if there is
            none.
        """
        kept = [
            op_offset
            for op_offset, stored_ms in self._early.values()
            if stored_ms + _EARLY_REST_MS > head_stored_ms
        ]
        used = next(
            (place for place, value in enumerate(self._values) if value >= half_head),
            len(self._values),
        )
        return min([self._op_start + used, *kept])
