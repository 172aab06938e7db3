"""Keeps messages of push consumers invisible until they are acknowledged.

A push consumer does not say how long its messages are to be invisible. So the front renews each
lease for 60 s at a time. After a crash of the broker a message comes again when its last renewal is
over.

Spec: grpc.md, section 6.4.
"""

from collections.abc import Callable
from dataclasses import dataclass

from twisted.logger import Logger

from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.wire.pop_receipt import PopReceipt
from rmq_ha.server.door import BrokerVerbs
from rmq_ha.server.grpc.front.clients import DoorClient
from rmq_ha.server.grpc.front.receives import RENEWED_MS
from rmq_ha.server.pop.face import LeaseChange, LeaseStatus, Receipt

AHEAD_MS = 15_000
"""How long before its end a lease is renewed, ms; `Renewals.look` comes every 5 s."""
LONGEST_MS = 10_800_000
"""How long a message is kept invisible altogether, ms."""
AFTER_CLIENT_MS = 1000
MOST_RENEWED = 500_000


@dataclass(slots=True)
class RenewedLease:
    """
    A lease that is renewed.

    :ivar client: the consumer; None if it has not sent its settings.
    :ivar receipt: the receipt of the lease as it is now.
    :ivar first_ms: when the message was handed out, ms since the epoch.
    :ivar is_asked: whether a renewal is under way.
    """

    client: DoorClient | None
    group: str
    topic: str
    receipt: PopReceipt
    first_ms: int
    is_asked: bool = False


class Renewals:
    """The leases of push consumers, by group and the receipt that the consumer has."""

    log = Logger()

    def __init__(self, verbs: BrokerVerbs, is_alive: Callable[[DoorClient], bool]) -> None:
        self._verbs = verbs
        self._is_alive = is_alive
        self._leases: dict[tuple[str, str], RenewedLease] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def add(
        self, client: DoorClient | None, group: str, topic: str, handle: str, receipt: PopReceipt
    ) -> None:
        """Renew a lease from now on, unless there are too many."""
        if len(self._leases) < MOST_RENEWED:
            lease = RenewedLease(client, group, topic, receipt, receipt.pop_time)
            self._leases[group, handle] = lease

    def take(self, group: str, handle: str) -> PopReceipt | None:
        """
        Return the present receipt of a lease, and stop to renew the lease.

        :param handle: the receipt as the consumer got it.
        :returns: None if the lease is not renewed here.
        """
        lease = self._leases.pop((group, handle), None)
        return None if lease is None else lease.receipt

    def look(self) -> None:
        """
        Renew the leases that end soon; called every 5 s.

        A lease of a client that is gone ends a second later. A message that is out for three hours
        is renewed no more.
        """
        now_ms = self._verbs.now_ms()
        for key, lease in list(self._leases.items()):
            if lease.client is not None and not self._is_alive(lease.client):
                del self._leases[key]
                self._ask(lease, AFTER_CLIENT_MS)
            elif now_ms - lease.first_ms > LONGEST_MS:
                del self._leases[key]
            elif lease.receipt.pop_time + lease.receipt.invisible_ms - now_ms < AHEAD_MS:
                self._ask(lease, RENEWED_MS)

    def _ask(self, lease: RenewedLease, invisible_ms: int) -> None:
        if lease.is_asked:
            return
        receipt = lease.receipt
        place = Receipt(
            lease.group, lease.topic, receipt.queue_id, receipt.pop_time, [receipt.offset]
        )
        lease.is_asked = True
        try:
            changed = self._verbs.change("a renewal", place, invisible_ms)
        except RequestRejected as rejected:
            lease.is_asked = False
            self.log.debug("a lease is not renewed: {why}", why=rejected.remark)
            return
        changed.addCallback(self._note, lease)

    @staticmethod
    def _note(change: LeaseChange, lease: RenewedLease) -> None:
        lease.is_asked = False
        if change.status is LeaseStatus.DONE:
            lease.receipt = lease.receipt._replace(
                pop_time=change.pop_ms, invisible_ms=change.invisible_ms
            )
