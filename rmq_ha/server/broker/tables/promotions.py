"""promotions.json: the evidence that this broker of a classic pair was promoted, and when.

"When" is a count, as clocks of machines differ. RocketMQ ignores this file.
"""

from twisted.internet.defer import Deferred, succeed

from rmq_ha.base.persisted_table import PersistedTable
from rmq_ha.base.seams import Disk, Worker
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.bodies import read_body

NAME = "promotions"
IS_OWN = "isOwn"


class Promotions(PersistedTable):
    """
    Counts the promotions of a classic pair, as far as this broker knows of them.

    A promotion is the start of a broker as the master after it ran as a slave. Example: the count
    of a new master is 0, and its slave copies it. The slave is promoted and has 1. The old master
    comes back with its unchanged file and has 0: so it is the one that has to stand aside.

    :ivar count: promotions of this broker and of the masters that it followed.
    :ivar is_own: this broker was promoted last, as far as it knows, or has always been the master.
    """

    without_file = "forgets whether this broker was promoted"

    def __init__(self, disk: Disk, worker: Worker, folder: str) -> None:
        super().__init__(disk, worker, f"{folder}/{NAME}.json")
        self.count = 0
        self.is_own = True

    def follow(self, count: int = 0) -> "Deferred[bool]":
        """
        Note that another broker is the master, or was the master while this broker ran.

        :param count: the other broker's count; 0 if it is not known.
        :returns: fires with whether the file says so; never fails.
        """
        return self._change(max(count, self.count), is_own=False)

    def lead(self) -> "Deferred[bool]":
        """
        Note that this broker is the master now; call it before clients are served.

        :returns: see `follow`.
        """
        return self._change(self.count + (not self.is_own), is_own=True)

    def _change(self, count: int, *, is_own: bool) -> "Deferred[bool]":
        if (count, is_own) == (self.count, self.is_own):
            return succeed(True)
        self.count, self.is_own = count, is_own
        return self.persist()

    def encode(self) -> bytes:
        return fastjson.pretty({NAME: self.count, IS_OWN: self.is_own})

    def decode(self, data: bytes) -> None:
        """
        Take over a file's count.

        :raises ProtocolViolation: the text does not hold a count.
        """
        self.count, self.is_own = read_body(
            data, lambda document: (int(document[NAME]), bool(document[IS_OWN])), None
        )
