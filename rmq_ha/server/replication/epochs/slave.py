"""What a broker does while the controllers have another one lead: it follows that one.

Spec: controller.md, sections 3.4, 7.3 and 7.5.
"""

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rmq_ha.base.errors import StrandedLog
from rmq_ha.server.replication.anew import why_not_anew
from rmq_ha.server.replication.connector import MasterConnector
from rmq_ha.server.replication.epochs.context import RoleContext
from rmq_ha.server.replication.epochs.epochs import Epochs
from rmq_ha.server.replication.epochs.link import EpochLink
from rmq_ha.server.replication.epochs.replica import Cut, EpochReplica, Remember
from rmq_ha.server.replication.epochs.roles.actions import Follow


class SlaveRole:
    """
    The slave's side of controller mode: the link to whoever leads, and what it does to the log.

    :param connector: opens connections to masters.
    :ivar link: to the master; None: this broker follows nobody.
    :ivar stranger: address of a master that is not in haTrustedMasters; None: there is none.
    """

    log = Logger()

    def __init__(self, context: RoleContext, connector: MasterConnector) -> None:
        self.link: EpochLink | None = None
        self.stranger: str | None = None
        self._context = context
        self._connector = connector
        self._log = context.log

    def follow(self, decision: Follow) -> None:
        """Connect to the master, if this broker may."""
        context = self._context
        broker, master = context.broker, decision.master_address
        self.log.info(
            "follows broker {master_id} at {peer}, epoch {epoch}",
            master_id=decision.master_id,
            peer=master,
            epoch=decision.epoch,
        )
        if not self.trusts(master):
            self.stranger = master
            broker.on_master(None)
            return
        if not context.settings.async_learner:
            broker.tables.awaited()
        broker.on_master(master)
        self.link = EpochLink(
            context.host, broker.client, self._connector, master, decision.master_id, self
        )
        self.link.start()
        self._log.poke()

    async def leave(self) -> None:
        """Until nothing is done to the log any more."""
        self.stranger = None
        link, self.link = self.link, None
        if link is not None:
            await link.stop()

    @property
    def is_following(self) -> bool:
        """It is connected to the master of its epoch, and their handshake is over."""
        connection = None if self.link is None else self.link.connection
        return connection is not None and connection.replica.is_following

    # ------------------------------------------------------------ as `Follower` says

    def comes_back(self) -> None:
        self._context.conversation.beat()

    def make_replica(self) -> EpochReplica:
        context = self._context
        replica = EpochReplica(
            context.broker_id or 1,
            self._log,
            context.history.epochs,
            self._log.confirm_offset,
            context.settings,
            context.now(),
            None if context.settings.async_learner else context.broker.tables,
        )
        replica.sure_to = self._log.confirm_offset
        return replica

    def trusts(self, address: str) -> bool:
        return self._context.broker.masters.trusts(address, "the controller")

    def fulfil(self, task: Cut | Remember) -> "Deferred[None]":
        """First the log, as an epoch without bytes does no harm."""
        return Deferred.fromCoroutine(self._fulfil(task))

    async def _fulfil(self, task: Cut | Remember) -> None:
        context = self._context
        if isinstance(task, Cut):
            context.shared.check(task.end, "" if self.link is None else self.link.master)
            self._log.confirm_offset = min(self._log.confirm_offset, task.end)
            why = "the master of a newer epoch has another"
            await context.broker.journal.set_aside(task.end, why)
            context.shared.note_cut(task.end)
        await context.history.write(task.epochs)

    def why_not_anew(self, stranded: StrandedLog) -> str:
        directory = self._log.directories[0]
        host, configuration = self._context.host, self._context.configuration
        return why_not_anew(host.disk, configuration, directory, stranded, is_elected=True)

    def begin_anew(self, stranded: StrandedLog) -> "Deferred[None]":
        return Deferred.fromCoroutine(self._begin_anew(stranded))

    async def _begin_anew(self, stranded: StrandedLog) -> None:
        """A start that finds no log does not ask what its epochs were."""
        context = self._context
        await context.broker.journal.set_all_aside(str(stranded))
        context.shared.note_cut(0)
        await context.history.write(Epochs())

    def confirmed(self, offset: int) -> None:
        self._log.confirmed(offset)
        self._context.shared.note_confirmed()
