"""Work that is too long for one turn of the reactor."""

from collections.abc import Iterator

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure


def in_slices(clock: IReactorTime, slices: Iterator[object]) -> "Deferred[None]":
    """
    The first slice now, each other one in a turn of its own.

    :param slices: does a slice whenever it is asked for the next item.
    :returns: fires when it has no more: at once for little work. Fails with what it raises.
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
    Long works one after the other, a slice a turn: as long as one waits, it has only its input.

    :ivar waiting: works that are not done, by who asked: each of them has one done in turn.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self.waiting: dict[str, dict[Deferred[None], Iterator[object]]] = {}
        self._is_armed = False

    def run(self, host: str, slices: Iterator[object]) -> "Deferred[None]":
        """
        As `in_slices`, but also the first slice has a turn of its own.

        :param host: who asks.
        :returns: may be cancelled: then nothing more of it is done.
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
        """The next work is another host's."""
        works = self.waiting.pop(host, {})
        works.pop(done, None)
        if works:
            self.waiting[host] = works
