"""Work that is too long for one turn of the reactor."""

from collections.abc import Iterator

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime


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
