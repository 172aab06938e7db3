"""Divides work that is too long for one turn of the reactor."""

from collections.abc import Iterator

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure


def in_slices(clock: IReactorTime, slices: Iterator[object]) -> "Deferred[None]":
    """
    Do the first slice of a work now, and each other slice in a turn of its own.

    :param slices: does one slice for each item that is taken from it.
    :returns: fires when all slices are done, which is at once for little work; fails with the
        exception of a slice.
    """
    done: Deferred[None] = Deferred()

    def go_on() -> None:
        try:
            next(slices)
        except StopIteration:
            done.callback(None)
        except Exception:
            done.errback()
        else:
            clock.callLater(0, go_on)

    go_on()
    return done


class Lane:
    """
    Does long works a slice a turn, in turns for the hosts that asked. The works that wait keep only
    their input in memory.

    :ivar waiting: the unfinished works by the host that asked for them.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self.waiting: dict[str, dict[Deferred[None], Iterator[object]]] = {}
        self._is_armed = False

    def run(self, host: str, slices: Iterator[object]) -> "Deferred[None]":
        """
        Do a work as `in_slices` does, but give the first slice a turn of its own, too.

        :param host: the host that asked for the work.
        :returns: fires when the work is done; cancel it to drop the rest of the work.
        """
        done: Deferred[None] = Deferred(lambda it: self._forget(host, it))
        self.waiting.setdefault(host, {})[done] = slices
        self._arm()
        return done

    def _arm(self) -> None:
        if self.waiting and not self._is_armed:
            self._is_armed = True
            self._clock.callLater(0, self._turn)

    def _turn(self) -> None:
        self._is_armed = False
        if not self.waiting:  # all were cancelled
            return
        host, works = next(iter(self.waiting.items()))
        done, slices = next(iter(works.items()))
        try:
            next(slices)
        except StopIteration:
            self._forget(host, done)
            done.callback(None)
        except Exception:
            failure = Failure()  # type: ignore[no-untyped-call]
            self._forget(host, done)
            done.errback(failure)
        self._arm()

    def _forget(self, host: str, done: "Deferred[None]") -> None:
        """Take a work out. The host's other works go behind those of the other hosts."""
        works = self.waiting.pop(host, {})
        works.pop(done, None)
        if works:
            self.waiting[host] = works
