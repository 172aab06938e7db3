"""How puts ended and how long that took; counted once a batch."""

from rmq_ha.model.histogram import Histogram
from rmq_ha.model.status import PutMessageStatus


class PutOutcomes:
    """
    What became of the puts of one store since its start.

    :ivar seconds: from the append, which counts, to the moment its answer is known; by message.
    :ivar replica_seconds: of it, waiting for a slave's acknowledgement; by batch that waited.
    :ivar flush_seconds: of it, waiting for the disk; by batch that waited.
    :ivar waiting: messages that are stored and not yet answered.
    :ivar degraded: messages that are stored, but less safely than configured, by reason.
    :ivar refused: messages that were not stored, by reason.
    :ivar known: messages that were stored before, and not again.
    """

    def __init__(self) -> None:
        self.seconds = Histogram()
        self.replica_seconds = Histogram()
        self.flush_seconds = Histogram()
        self.waiting = 0
        self.known = 0
        self.degraded: dict[PutMessageStatus, int] = {}
        self.refused: dict[PutMessageStatus, int] = {}

    def stored_less_safely(self, status: PutMessageStatus, count: int) -> None:
        """:param status: FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE."""
        self.degraded[status] = self.degraded.get(status, 0) + count

    def not_stored(self, status: PutMessageStatus, count: int = 1) -> None:
        """:param status: why."""
        self.refused[status] = self.refused.get(status, 0) + count
