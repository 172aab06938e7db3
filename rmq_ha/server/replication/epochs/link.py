"""A slave's connection to the master that the controllers named, which is renewed whenever it ends.

Spec: controller.md, sections 3.4 and 7.3.
"""

from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rmq_ha.base.errors import (
    DivergedLog,
    NothingInCommon,
    RemotingError,
    StoreError,
    StrandedLog,
)
from rmq_ha.base.model.host_port import parse_host_port
from rmq_ha.base.remoting.calls import Calls
from rmq_ha.base.seams import Host
from rmq_ha.base.wire.bodies import decode_kv_table
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.replication.connector import MasterConnector
from rmq_ha.server.replication.epochs.replica import Cut, EpochReplica, Remember
from rmq_ha.server.replication.epochs.requests import MASTER_BEGINS
from rmq_ha.server.replication.link import MasterLink
from rmq_ha.server.replication.protocol import ReplicaProtocol
from rmq_ha.server.replication.statistics import FOLLOWING, STRANDED, MasterStatistics

ASK_TIMEOUT_MS = 3000
RETRY_SECONDS = (0.1, 0.3)
"""Range of the random pause between the first connects, in seconds."""
MOST_SECONDS = 2.0
MENDED_SECONDS = 5.0
"""Pause in seconds after an error that somebody has to mend."""


class LinkOwner(Protocol):
    """The log that a link makes equal to the master's, and the broker around it."""

    def comes_back(self) -> None:
        """
        Send a heartbeat now that the slave connects, before the master reports it in sync.

        The controllers refuse a member that has sent no heartbeat, and the master asks again later.
        """

    def make_replica(self) -> EpochReplica:
        """Make the replica for one connection, with this broker's log as it is now."""

    def fulfil(self, task: Cut | Remember) -> "Deferred[None]":
        """Do the task and bring it to the disk; fails with `StoreError` or `OSError`."""

    def refetch_refusal(self, stranded: StrandedLog) -> str:
        """
        Return why this log may not be replaced by the master's, and how an operator can mend that;
        empty: it may be replaced.
        """

    def begin_anew(self, stranded: StrandedLog) -> "Deferred[None]":
        """Set all of this broker's log aside; fails with `StoreError` or `OSError`."""

    def confirmed(self, offset: int) -> None:
        """Let the log below an offset be read, as the master said."""

    def trusts(self, address: str) -> bool:
        """Whether the broker at that address may be followed (`haTrustedMasters`)."""


class EpochLink(MasterLink[EpochReplica]):
    """
    The link to one master, which the controllers named.

    The master itself says where its replication listens (906). Name servers learn that late or not
    at all (hazard 15 of chapter 14).

    :param connector: opens the connections.
    :param master: the master's `host:port` for clients.
    :param master_id: the master's id in its set.
    :ivar ha_address: the master's replication address, as it said last; empty: not known yet.
    :ivar fault: for operators, why this log does not continue the master's; empty: nothing is
        wrong.
    """

    def __init__(
        self,
        host: Host,
        client: Calls,
        connector: MasterConnector,
        master: str,
        master_id: int,
        owner: LinkOwner,
    ) -> None:
        super().__init__(host, connector)
        self.master = master
        self.master_id = master_id
        self.fault = ""
        self.ha_address = ""
        self._client = client
        self._owner = owner
        self._pause_factor = 1.0
        self._is_stranded = False
        self._logged_subject = ""
        self._master_begins = self._master_end = 0
        self._asks_where_log_begins = False

    @property
    def state(self) -> str:
        """Return the link's state for operators."""
        if self._is_stranded:
            return STRANDED
        if self.connection is None:
            return "connecting"
        return FOLLOWING if self.connection.replica.is_following else "handshake"

    def statistics(self) -> MasterStatistics:
        return MasterStatistics(
            address=self.master,
            state=self.state,
            fault=self.fault or None,
            alone_seconds=self._alone.seconds,
            broker_id=self.master_id,
        )

    def _open(self) -> "Deferred[Any]":
        return Deferred.fromCoroutine(self._ask_and_connect())

    async def _ask_and_connect(self) -> ReplicaProtocol[EpochReplica]:
        self._owner.comes_back()
        request = RemotingCommand(RequestCode.EXCHANGE_BROKER_HA_INFO)
        answer = await self._client.invoke(self.master, request, ASK_TIMEOUT_MS)
        address = (answer.ext or {}).get("masterHaAddress", "")
        if not address:
            raise RemotingError(f"{self.master} does not say that it is master yet")
        if not self._owner.trusts(address):
            self.fault = (
                f"{self.master} says that it replicates at {address}, which is not in "
                "haTrustedMasters: add that address if it is the master's brokerIP2"
            )
            raise RemotingError(self.fault)
        self.ha_address = address
        fields = answer.ext or {}
        self._master_end = _place(fields.get("masterFlushOffset"))
        self._master_begins = await self._find_master_begin(fields)
        host, port = parse_host_port(address)
        opened: ReplicaProtocol[EpochReplica] = await self._connector.open(host, port, self._build)
        return opened

    async def _find_master_begin(self, fields: dict[str, str]) -> int:
        """
        Return the physical offset at which the master's log begins; 0: not known. A Java master is
        asked for it only after a handshake that did not end.
        """
        text = fields.get(MASTER_BEGINS)
        if text is None and self._asks_where_log_begins:
            request = RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO)
            answer = await self._client.invoke(self.master, request, ASK_TIMEOUT_MS)
            if answer.code == ResponseCode.SUCCESS and answer.body:
                text = decode_kv_table(answer.body).get("commitLogMinOffset")
        return _place(text)

    def _build(self) -> ReplicaProtocol[EpochReplica]:
        replica = self._owner.make_replica()
        replica.master_begins, replica.master_end = self._master_begins, self._master_end
        return ReplicaProtocol(replica, self, self._host.clock)

    def _failed(self, failure: Failure) -> None:
        self._attempt = None
        if self._is_running:
            self._tell(f"cannot connect: {failure.getErrorMessage()}")
            self._connect_soon()

    def _connect_soon(self) -> None:
        """Connect again, each time a little later, until the master is followed."""
        seconds = self._host.random.uniform(*RETRY_SECONDS) * self._pause_factor
        self._pause_factor = min(self._pause_factor * 1.5, MOST_SECONDS / RETRY_SECONDS[0])
        self._connect_after(min(seconds, MOST_SECONDS))

    def flushed(self) -> None:
        """Tell the connection that more of this broker's log is on the disk."""
        if self.connection is not None:
            self.connection.step(self.connection.replica.flushed)

    # ------------------------------------------------------------ events of the connection

    def stepped(self, connection: ReplicaProtocol[EpochReplica]) -> None:
        """See `ReplicaOwner`. No more is read until the replica's task is done."""
        replica = connection.replica
        if replica.is_following:
            self._note_following(replica.confirm_offset)
        task = replica.task
        if task is not None and not connection.is_held:
            connection.hold(lambda: self._run_task(self._owner.fulfil(task)), replica.done)

    def _note_following(self, confirm_offset: int) -> None:
        """Take note that the master is followed, and that the log below an offset may be read."""
        self._pause_factor, self.fault, self._last_reason, self._logged_subject = 1.0, "", "", ""
        self._is_stranded = self._asks_where_log_begins = False
        self._alone.end()
        self._owner.confirmed(confirm_offset)

    def lost(
        self, connection: ReplicaProtocol[EpochReplica], error: Exception | None, why: str
    ) -> None:
        connection.replica.closed()
        has_no_end = connection.replica.is_comparing
        self._asks_where_log_begins = has_no_end or isinstance(error, NothingInCommon)
        super().lost(connection, error, why)

    def _come_back(
        self, connection: ReplicaProtocol[EpochReplica], error: Exception | None, why: str
    ) -> None:
        """Connect again: soon, or later if somebody has to mend something."""
        if not isinstance(error, DivergedLog | NothingInCommon | StoreError):
            self._tell(why)
            self._connect_soon()
            return
        self._is_stranded = isinstance(error, StrandedLog)
        if isinstance(error, StrandedLog):
            why_not = self._owner.refetch_refusal(error)
            if not why_not:
                self._begin_anew(error)
                return
            self._stay_away(f"{error}. {why_not}", about=f"stranded at {error.end}")
            return
        self._stay_away(why)

    def _begin_anew(self, stranded: StrandedLog) -> None:
        """Set the store aside. `stop` waits for that."""
        self.log.warn(
            "this slave sets its store aside and fetches all from the master at {peer} anew: "
            "{error}",
            peer=self.master,
            error=stranded,
        )
        task = self._owner.begin_anew(stranded)
        self._run_task(task).addCallbacks(self._begun_anew, self._not_begun_anew)

    def _begun_anew(self, _: object) -> None:
        self._is_stranded = False
        if self._is_running:
            self._connect_after(0.0)

    def _not_begun_anew(self, failure: Failure) -> None:
        if self._is_running:
            why = f"its store cannot be set aside, and keeps it from the master's: {failure.value}"
            self._stay_away(why)

    def _stay_away(self, why: str, about: str = "") -> None:
        """
        Connect again only after a long pause, since somebody has to mend something.

        :param about: names the reason without its changing numbers, so that it is logged once.
        """
        self.fault = why
        self._connect_after(MENDED_SECONDS)
        if about and about == self._logged_subject:
            return
        self._logged_subject = about
        self.log.error(
            "this broker does not follow the master at {peer}: {error}",
            peer=self.master,
            error=why,
        )

    def _tell_alone(self) -> None:
        self.log.warn(
            "this broker does not follow {peer} since {seconds:.0f} s: {why}; what it serves gets "
            "old",
            peer=self.master,
            seconds=self._alone.seconds or 0.0,
            why=self.fault or self._last_reason or self.state,
        )

    def _tell(self, why: str) -> None:
        """Log a reason once, not for every attempt."""
        if why != self._last_reason:
            self._last_reason = why
            self.log.warn("replication from {peer}: {error}", peer=self.master, error=why)


def _place(text: str | None) -> int:
    """Read a physical offset from a master's answer; 0 if the text is no offset."""
    return int(text) if text and text.isdecimal() else 0
