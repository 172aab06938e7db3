"""rmq-ha's plugins: the three servers of twistd, and the built-in parts of a broker.

Declarations only. Every `twistd` imports this file, so it imports nothing heavy and no reactor.
"""

from typing import TYPE_CHECKING, Any

from twisted.application.service import ServiceMaker
from zope.interface import implementer

from rmq_ha.base.interfaces import IAccessPlugin, IJournalPlugin, IMessageStorePlugin

if TYPE_CHECKING:
    from rmq_ha.base.interfaces import IAccessControl, IBrokerContext
    from rmq_ha.server.store.journal import Journal

broker = ServiceMaker(
    "rmq-ha broker",
    "rmq_ha.ops.app.tap",
    "A RocketMQ 4.9 message broker with replication.",
    "rmqha",
)
namesrv = ServiceMaker(
    "rmq-ha name server", "rmq_ha.ops.app.namesrv_tap", "A RocketMQ 4.9 name server.", "rmqnamesrv"
)
controller = ServiceMaker(
    "rmq-ha controller",
    "rmq_ha.ops.app.controller_tap",
    "A controller for brokers of RocketMQ 5 in controller mode.",
    "rmqcontroller",
)


@implementer(IJournalPlugin)
class ClassicJournalPlugin:
    """RocketMQ's commit log, which slaves follow byte by byte."""

    name = "classic"

    def make_journal(self, broker: "IBrokerContext") -> "Journal":
        from rmq_ha.server.replication.classic.journal import ClassicJournal

        return ClassicJournal(broker.host, broker.configuration)


@implementer(IJournalPlugin)
class GroupJournalPlugin:
    """A DLedger group's log: most members have what is acknowledged, and elect who leads."""

    name = "dledger"

    def make_journal(self, broker: "IBrokerContext") -> "Journal":
        from rmq_ha.server.dledger.journal import GroupJournal

        return GroupJournal(broker.host, broker.configuration)


@implementer(IJournalPlugin)
class EpochJournalPlugin:
    """RocketMQ 5's controller mode: controllers say who leads, and who has to be in sync."""

    name = "controller"

    def make_journal(self, broker: "IBrokerContext") -> "Journal":
        from rmq_ha.server.replication.epochs.journal import EpochJournal

        return EpochJournal(broker.host, broker.configuration)


@implementer(IAccessPlugin)
class PlainAccess:
    """RocketMQ's plain access control: plain_acl.yml and the files of the folder acl."""

    name = "plain"

    def make_validator(self, broker: "IBrokerContext") -> "IAccessControl":
        from rmq_ha.server.acl.service import make_access_control

        return make_access_control(broker)


@implementer(IMessageStorePlugin)
class TieredStorage:
    """Keeps sealed files of the log in an object store, too, and reads them from there."""

    name = "tiered"

    def wrap_store(self, broker: "IBrokerContext", store: Any) -> Any:
        from rmq_ha.server.tiered.plugin import add_tier

        return add_tier(broker, store)


tiered = TieredStorage()
classic = ClassicJournalPlugin()
dledger = GroupJournalPlugin()
controlled = EpochJournalPlugin()
plain_access = PlainAccess()
