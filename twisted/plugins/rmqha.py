"""rmq-ha's plugins: the three servers of twistd, and the built-in parts of a broker.

Declarations only. Every `twistd` imports this file, so it imports nothing heavy and no reactor.
"""

from typing import TYPE_CHECKING, Any, cast

from twisted.application.service import ServiceMaker
from zope.interface import implementer

from rmq_ha.interfaces import IAccessPlugin, ICommitLogPlugin, IReplicationPlugin

if TYPE_CHECKING:
    from rmq_ha.interfaces import IAccessControl, IBrokerContext, ICommitLog, IReplication

broker = ServiceMaker(
    "rmq-ha broker", "rmq_ha.app.tap", "A RocketMQ 4.9 message broker with replication.", "rmqha"
)
namesrv = ServiceMaker(
    "rmq-ha name server", "rmq_ha.app.namesrv_tap", "A RocketMQ 4.9 name server.", "rmqnamesrv"
)
controller = ServiceMaker(
    "rmq-ha controller",
    "rmq_ha.app.controller_tap",
    "A controller for brokers of RocketMQ 5 in controller mode.",
    "rmqcontroller",
)


@implementer(ICommitLogPlugin)
class DefaultCommitLog:
    """RocketMQ's commit log: files of fixed size below storePathCommitLog; or an elected one's."""

    name = "default"

    def make_commit_log(self, broker: "IBrokerContext") -> "ICommitLog":
        if broker.configuration.store.enable_dleger_commit_log:
            from rmq_ha.dledger.assembly import make_dledger_log

            return make_dledger_log(broker.host.disk, broker.configuration)
        if broker.configuration.controlled.enable_controller_mode:
            from rmq_ha.autoswitch.commit_log import make_epoch_log

            return make_epoch_log(broker.host.disk, broker.configuration.store)
        from rmq_ha.store.layout import make_commit_log

        return make_commit_log(broker.host.disk, broker.configuration.store)


@implementer(IReplicationPlugin)
class DefaultReplication:
    """RocketMQ's HA protocol: slaves follow their master's log byte by byte; or as
    a DLedger group or controllers elect."""

    name = "default"

    def make_replication(self, broker: "IBrokerContext", log: "ICommitLog") -> "IReplication":
        if broker.configuration.store.enable_dleger_commit_log:
            from rmq_ha.dledger.service import DLedgerService

            return DLedgerService(broker.host, broker.configuration, cast("Any", log))
        if broker.configuration.controlled.enable_controller_mode:
            from rmq_ha.autoswitch.ha_service import AutoSwitchHAService

            return AutoSwitchHAService(broker.host, broker.configuration, cast("Any", log))
        from rmq_ha.ha.service import HAService

        return HAService(broker.host, broker.configuration, log)


@implementer(IAccessPlugin)
class PlainAccess:
    """RocketMQ's plain access control: plain_acl.yml and the files of the folder acl."""

    name = "plain"

    def make_validator(self, broker: "IBrokerContext") -> "IAccessControl":
        from rmq_ha.acl.service import make_access_control

        return make_access_control(broker)


default_commit_log = DefaultCommitLog()
default_replication = DefaultReplication()
plain_access = PlainAccess()
