"""A broker's work while another broker is the elected master: it follows that master.

Spec: controller.md, sections 3.4, 7.3 and 7.5.
"""

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rmq_ha.base.errors import StrandedLog
from rmq_ha.server.replication.connector import MasterConnector
from rmq_ha.server.replication.epochs.context import RoleContext
from rmq_ha.server.replication.epochs.epochs import Epochs
from rmq_ha.server.replication.epochs.link import EpochLink
from rmq_ha.server.replication.epochs.replica import Cut, EpochReplica, Remember
from rmq_ha.server.replication.epochs.roles.actions import Follow
from rmq_ha.server.replication.refetch_refusal import refetch_refusal


class SlaveRole:
    """
    The slave's side of controller mode: the link to the master, and the link's access to the log.

    :param connector: opens connections to masters.
    :ivar link: the link to the master; None: this broker follows nobody.
    :ivar stranger: address of the elected master, if it is not in haTrustedMasters; otherwise None.
    """

    log = Logger()

    def __init__(self, context: RoleContext, connector: MasterConnector) -> None:
        self.link: EpochLink | None = None
        self.stranger: str | None = None
        self._context = context
        self._connector = connector
        self._log = context.log

    def follow(self, decision: Follow) -> None:
        """Connect to the master, if this broker may follow it."""
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
        """Stop the link. Returns when no task works on the log any more."""
        self.stranger = None
        link, self.link = self.link, None
        if link is not None:
            await link.stop()

    @property
    def is_following(self) -> bool:
        """
        Whether this broker is connected to the master of its epoch, and their handshake is over.
        """
        connection = None if self.link is None else self.link.connection
        return connection is not None and connection.replica.is_following

    # ------------------------------------------------------------ the methods of `LinkOwner`

    def comes_back(self) -> None:
        self._context.conversation.beat()

    def make_replica(self) -> EpochReplica:
        context = self._context
        replica = EpochReplica(
            context.slave_id,
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
        """
        Do the task: first on the log, then in the epoch file. After a crash in between, the file
        names an epoch without bytes, which does no harm.
        """
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

    def refetch_refusal(self, stranded: StrandedLog) -> str:
        directory = self._log.directories[0]
        host, configuration = self._context.host, self._context.configuration
        return refetch_refusal(host.disk, configuration, directory, stranded, is_elected=True)

    def begin_anew(self, stranded: StrandedLog) -> "Deferred[None]":
        return Deferred.fromCoroutine(self._begin_anew(stranded))

    async def _begin_anew(self, stranded: StrandedLog) -> None:
        """
        Set the log aside, then empty the epoch file: a start that finds no log ignores the epochs.
        """
        context = self._context
        await context.broker.journal.set_all_aside(str(stranded))
        context.shared.note_cut(0)
        await context.history.write(Epochs())

    def confirmed(self, offset: int) -> None:
        self._log.confirmed(offset)
        self._context.shared.note_confirmed()
