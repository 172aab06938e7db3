"""SendTicket: the answers of a broker's policies about ordinary sends, until something changes.

Role, running flags, configuration and topics seldom change, and each run of sends would ask for all
of them. So the answers stay on a ticket. If one of them changes, the ticket is dropped, and the
next run asks the same functions anew. Facts that change with each message are asked for at each
run: offsets, slaves, the time, and how many messages wait.
"""

from dataclasses import dataclass

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.model.flags import PERM_WRITE
from rmq_ha.base.model.properties import CLUSTER
from rmq_ha.server.broker.tables.topics import TopicConfigManager
from rmq_ha.server.store.message_store import DefaultMessageStore
from rmq_ha.server.store.settle import PutTerms


@dataclass(frozen=True, slots=True)
class SendTicket:
    """
    The answers of a broker's policies about ordinary sends.

    :ivar is_allowed: whether brokerPermission lets runs of sends in. If not, each message is
        handled as a request of its own.
    :ivar begins_ms: startAcceptSendRequestTimeStamp, in ms since the epoch.
    :ivar cluster: the property CLUSTER as text to be appended to each message's properties.
    :ivar queues: `TopicConfigManager.ordinary_queues` by topic, for topics that were asked for and
        have queues.
    :ivar terms: what the store says about puts at present.
    """

    is_allowed: bool
    begins_ms: int
    cluster: str
    queues: dict[str, int]
    terms: PutTerms


class SendTickets:
    """
    Keeps the ticket of a broker.

    :ivar current: the ticket; None if it was dropped.
    """

    def __init__(
        self,
        configuration: BrokerConfiguration,
        store: DefaultMessageStore,
        topics: TopicConfigManager,
    ) -> None:
        self._broker = configuration.broker
        self._store = store
        self._topics = topics
        self.current: SendTicket | None = None
        configuration.broker.watch(self.drop)
        configuration.store.watch(self.drop)
        store.flags.on_change = topics.on_any_change = self.drop

    def drop(self) -> None:
        """Drop the ticket, as something that it depends on has changed."""
        self.current = None

    def renew(self) -> SendTicket:
        """Ask all policies, and keep their answers."""
        config = self._broker
        self.current = ticket = SendTicket(
            config.broker_permission & PERM_WRITE != 0,
            config.start_accept_send_request_time_stamp,
            f"\x02{CLUSTER}\x01{config.broker_cluster_name}",
            {},
            self._store.put_terms(),
        )
        return ticket

    def ordinary_queues(self, topic: str) -> int:
        """Return `TopicConfigManager.ordinary_queues`, and keep it on the ticket if it is not 0."""
        queues = self._topics.ordinary_queues(topic)
        if queues and self.current is not None:  # names of no topic would have no end
            self.current.queues[topic] = queues
        return queues
