"""BrokerChoice: master or slave, for the next pull of a queue (pullFromWhichNodeTable).

RocketMQ asks the master until the name servers forget it, which takes up to two minutes and a half
of silence. Here a master that cannot be reached is passed over at once, for a while.

Spec: remoting.md, sections 6.4 and 11.4.
"""

from collections.abc import Callable

from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.base.wire.bodies import MessageQueue
from rmq_ha.client.rules.routes import choose_address

AVOID_SECONDS = 5.0


class BrokerChoice:
    """
    Which of a broker's addresses to pull from.

    :param seconds: the clock.
    :ivar connect_broker_by_user: always `default_broker_id`, whatever brokers suggest.
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
        """Whom to ask."""
        if self.connect_broker_by_user:
            return self.default_broker_id
        return self._suggested.get(queue, MASTER_ID)

    def suggest(self, queue: MessageQueue, broker_id: int) -> None:
        """A pull's answer said whom to ask next (suggestWhichBrokerId)."""
        if broker_id == MASTER_ID:
            self._suggested.pop(queue, None)
        else:
            self._suggested[queue] = broker_id

    def forget(self, queue: MessageQueue) -> None:
        """The queue is another member's now."""
        self._suggested.pop(queue, None)

    def failed(self, address: str) -> None:
        """An address could not be reached: others come first for a while."""
        now = self._seconds()
        self._avoided = {key: until for key, until in self._avoided.items() if until > now}
        self._avoided[address] = now + AVOID_SECONDS

    def answered(self, address: str) -> None:
        """An address is there."""
        if self._avoided:
            self._avoided.pop(address, None)

    def is_avoided(self, address: str) -> bool:
        """It could not be reached a short while ago."""
        return self._avoided.get(address, 0.0) > self._seconds()

    def address(self, queue: MessageQueue, addresses: dict[int, str]) -> tuple[str, int] | None:
        """
        Where the next pull goes.

        As `choose_address`; one that could not be reached is passed over while there is another.

        :param addresses: of the queue's broker, by broker id.
        :returns: the address and its broker id; None when there is none.
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
