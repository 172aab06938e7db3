"""Replication lag in seconds: for how long the log has been longer than an offset.

A slave acknowledges offsets, not times. The master notes when its log reached which offset, and can
then tell since when it has bytes that a slave lacks.
"""

from bisect import bisect_right

RESOLUTION_S = 0.01
ERROR_SHARE = 0.04
CAPACITY = 1024


class AppendTimes:
    """
    Samples of the log's end with the times at which it was reached; old samples are thinned out.

    Appends within `RESOLUTION_S` share one sample. When there are `CAPACITY` samples, some are
    dropped: each one whose next one is so near that an answer changes by less than `ERROR_SHARE` of
    its age. This leaves some hundred samples, whatever time they span.

    Pure: the times come with the calls, in seconds of any clock that does not jump.
    """

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._times: list[float] = []

    def __len__(self) -> int:
        return len(self._offsets)

    def note(self, offset: int, now: float) -> None:
        """
        Note that the log ends at `offset` now. Call it once a turn.

        The samples begin anew when the log has become shorter (it was truncated).
        """
        offsets, times = self._offsets, self._times
        if offsets:
            last = offsets[-1]
            if offset == last:
                return
            if offset < last:
                offsets.clear()
                times.clear()
            elif now - times[-1] < RESOLUTION_S:
                offsets[-1] = offset
                return
            elif len(offsets) >= CAPACITY:
                self._thin_out(now)
        offsets.append(offset)
        times.append(now)

    def seconds_behind(self, offset: int, now: float) -> float:
        """
        Return for how many seconds the log has been longer than `offset`; 0 while it is not.

        For bytes from before the first `note`, the time since the first `note` is returned.
        """
        index = bisect_right(self._offsets, offset)
        if index == len(self._offsets):
            return 0.0
        return max(0.0, now - self._times[index])

    def _thin_out(self, now: float) -> None:
        share = ERROR_SHARE
        while len(self._offsets) > CAPACITY * 3 // 4:  # the share doubles only after decades
            self._keep(share, now)
            share *= 2

    def _keep(self, share: float, now: float) -> None:
        """
        Drop samples, beginning with the newest: a sample stays if the next newer one that stays is
        too far from it.
        """
        offsets, times = [self._offsets[-1]], [self._times[-1]]
        pairs = zip(reversed(self._offsets[:-1]), reversed(self._times[:-1]), strict=True)
        for offset, time in pairs:
            if times[-1] - time > share * (now - time):
                offsets.append(offset)
                times.append(time)
        self._offsets, self._times = offsets[::-1], times[::-1]
