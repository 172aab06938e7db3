"""BrokerChoice: chooses master or slave for the next pull of a queue (pullFromWhichNodeTable).

RocketMQ asks a silent master until the name servers forget it, which takes up to two and a half
minutes. This client asks another broker of that name at once, for `AVOID_SECONDS`.

Spec: remoting.md, sections 6.4 and 11.4.
"""

from collections.abc import Callable

from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.rules.routes import choose_address

AVOID_SECONDS = 5.0


class BrokerChoice:
    """
    Chooses which of a broker's addresses to pull from.

    :param seconds: returns the time of a steady clock, in seconds.
    :ivar connect_broker_by_user: always pull from `default_broker_id`, whatever brokers suggest.
    """

    def __init__(
        self,
        seconds: Callable[[], float],
        *,
        connect_broker_by_user: bool = False,
        default_broker_id: int = MASTER_ID,
    ) -> None:
        self.connect_broker_by_user = connect_broker_by_user
        self.default_broker_id = default_broker_id
        self._seconds = seconds
        self._suggested: dict[MessageQueue, int] = {}
        self._avoided: dict[str, float] = {}

    def broker_id(self, queue: MessageQueue) -> int:
        """Return the id of the broker to pull a queue from."""
        if self.connect_broker_by_user:
            return self.default_broker_id
        return self._suggested.get(queue, MASTER_ID)

    def suggest(self, queue: MessageQueue, broker_id: int) -> None:
        """Note the broker that an answer suggests for the next pull (suggestWhichBrokerId)."""
        if broker_id == MASTER_ID:
            self._suggested.pop(queue, None)
        else:
            self._suggested[queue] = broker_id

    def forget(self, queue: MessageQueue) -> None:
        """Forget the suggestion for a queue that another member gets now."""
        self._suggested.pop(queue, None)

    def failed(self, address: str) -> None:
        """Note that an address could not be reached: others come first for `AVOID_SECONDS`."""
        now = self._seconds()
        self._avoided = {key: until for key, until in self._avoided.items() if until > now}
        self._avoided[address] = now + AVOID_SECONDS

    def answered(self, address: str) -> None:
        """Note that an address has answered, so it need not be avoided any more."""
        if self._avoided:
            self._avoided.pop(address, None)

    def is_avoided(self, address: str) -> bool:
        """Whether an address could not be reached during the last `AVOID_SECONDS`."""
        return self._avoided.get(address, 0.0) > self._seconds()

    def address(self, queue: MessageQueue, addresses: dict[int, str]) -> tuple[str, int] | None:
        """
        Choose the address for the next pull of a queue.

        The choice is that of `choose_address`, but an address that could not be reached is passed
        over if `addresses` has another one that could be reached. The choice of the user
        (`connect_broker_by_user`) is kept.

        :param addresses: from broker id to address, for the broker name of the queue.
        :returns: the address and its broker id; None if `addresses` is empty.
        """
        suggested = choose_address(addresses, self.broker_id(queue), only_this=False)
        if suggested is None:
            return None
        chosen = suggested[1]
        if self._avoided and not self.connect_broker_by_user and self.is_avoided(addresses[chosen]):
            for broker_id in sorted(addresses):
                if not self.is_avoided(addresses[broker_id]):
                    chosen = broker_id
                    break
        return addresses[chosen], chosen
