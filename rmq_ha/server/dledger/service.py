"""DLedgerService: one member of a group, with its port, its calls to the others and its one timer.

Spec: dledger.md, chapters 2, 5 and 10; section 18.2.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.dledger import dledger_port
from rmq_ha.base.config.dledger_settings import DLedgerSettings
from rmq_ha.base.config.netty import NettyClientConfig
from rmq_ha.base.errors import RemotingError, RequestRejected
from rmq_ha.base.model.message import Address
from rmq_ha.base.model.status import Decided, PutMessageStatus
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.remoting.dispatcher import RequestDispatcher
from rmq_ha.base.remoting.server import RemotingServer
from rmq_ha.base.seams import Host
from rmq_ha.base.store_format.dledger_values import MemberRole
from rmq_ha.base.timing.masterless_time import MasterlessTime
from rmq_ha.base.timing.timer import rearm, wait_at_most
from rmq_ha.base.tls.ha import HaCalls, HaTls
from rmq_ha.base.tls.refusals import Refusals
from rmq_ha.base.wire.codes import ResponseCode as RemotingCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.dledger.actions import (
    Action,
    AnswerRequest,
    CommitIndexMoved,
    Persist,
    PutsCompleted,
    RoleChanged,
    SendRequest,
    Sync,
)
from rmq_ha.server.dledger.assembly import dledger_directory, make_members, make_settings
from rmq_ha.server.dledger.codes import DLedgerRequestCode, DLedgerResponseCode
from rmq_ha.server.dledger.commit_log import DLedgerCommitLog
from rmq_ha.server.dledger.flush import LedgerFlusher
from rmq_ha.server.dledger.lookups import Lookups
from rmq_ha.server.dledger.member import NEVER
from rmq_ha.server.dledger.messages import GroupMessage, LeadershipTransferRequest
from rmq_ha.server.dledger.node import Node
from rmq_ha.server.dledger.protocol import Answered, PeerRequests, read_response, request_frame
from rmq_ha.server.dledger.put_refusal import why_no_puts
from rmq_ha.server.dledger.puts import WaitingPuts
from rmq_ha.server.dledger.resignation import LeaderResignation
from rmq_ha.server.dledger.statistics import DLedgerStatistics, statistics_of
from rmq_ha.server.dledger.term_file import TermFile
from rmq_ha.server.dledger.transfer import HAND_OVER_S, order_to_best
from rmq_ha.server.store.journal import Role

_RETRY_S = 1.0
_LAST_PUTS_S = 1.0
"""How long a stop waits for the puts that are still being replicated, in seconds."""


class DLedgerService:
    """
    Passes requests, answers and the time to the core, and carries out the core's actions in order.

    No action that follows a term or vote is done before these are on the disk. For the store, this
    service is the replication: a put is replicated when a quorum has stored it.

    :param log: the commit log whose ledger the group agrees on; load it before `start`.
    :param settings: settings for tests, instead of those from the configuration.
    :ivar role: the broker's role, as the group decides it.
    :ivar node: the core; None until `start`.
    :ivar tls: decides who may connect, and how this member connects to the others.
    """

    log = Logger()

    def __init__(
        self,
        host: Host,
        configuration: BrokerConfiguration,
        log: DLedgerCommitLog,
        settings: DLedgerSettings | None = None,
    ) -> None:
        self._host = host
        self._configuration = configuration
        self._log = log
        self._ledger = log.ledger
        self.settings = settings or make_settings(configuration)
        self.port = dledger_port(configuration)
        self.role = Role(configuration.store, self)
        self._flusher: LedgerFlusher | None = None
        self.node: Node | None = None
        broker = configuration.broker
        self._address = Address.parse(
            broker.broker_ip1 or "127.0.0.1", configuration.server.listen_port
        )
        self._term_file = TermFile(host.disk, dledger_directory(configuration))
        self._members = make_members(configuration, self.settings)
        self._lookups = Lookups(host, self._members)
        self._refusals = Refusals(host.clock)
        self._refused_requests = 0
        requests = PeerRequests(self._serve, self._members, self._refused)
        dispatcher = RequestDispatcher()
        dispatcher.routes.update(requests.routes())
        self.tls = HaTls(configuration.plugin_options, host.disk.read_bytes, host.now_ms)
        self._server = RemotingServer(host, configuration.server, dispatcher, self.tls)
        self._client = RemotingClient(host, NettyClientConfig(), HaCalls(self.tls))
        self._actions: deque[Action] = deque()
        # Barred: a term or a vote is on its way to the disk. Until it is there, nothing that
        # follows from it may leave, as this member could vote twice after a crash (dledger.md,
        # chapter 5).
        self._is_barred = self._is_running = self._is_stopped = False
        self._timer: IDelayedCall | None = None
        self._again: IDelayedCall | None = None
        self._puts = WaitingPuts(host.clock)
        self._told_index = self._seen_end = -1
        self._rests_until = 0.0
        self._resignation = LeaderResignation(
            host.clock, self.settings, configuration.store, log, lambda: self.node
        )
        self._elections = 0
        self._silent: dict[str, str] = {}
        self._alone = MasterlessTime(host.clock, self._tell_alone)
        self._do: dict[type[Any], Callable[[Any], None]] = {
            Persist: self._persist,
            SendRequest: self._send,
            AnswerRequest: self._answer,
            Sync: self._sync,
            PutsCompleted: self._completed,
            RoleChanged: self._role_changed,
            CommitIndexMoved: self._committed,
        }
        # Last, because the log asks `leadership` whether it may take puts.
        log.leadership = self

    def attach(self, flusher: LedgerFlusher) -> None:
        """:param flusher: syncs the ledger; set it before `start`."""
        self._flusher = flusher

    @property
    def slave_id(self) -> int:
        """Return the brokerId of this broker while it is a slave."""
        return int(self.settings.self_id[1:]) + 1

    @property
    def epoch(self) -> int | None:
        """Return None, as `Electorate` asks: members of 4.9.7 tell no name server their term."""
        return None

    # ------------------------------------------------------------ beginning and end

    def start(self) -> "Deferred[None]":
        """
        Listen, and take part in the group.

        :returns: fires when listening; fails with CannotListenError, or with StoreError when term
            and vote cannot be read.
        """
        return Deferred.fromCoroutine(self._start())

    async def _start(self) -> None:
        state = self._term_file.load()
        self.node = Node(self.settings, self._ledger, state, self._host.random, self._now())
        self._told_index = self._seen_end = self._ledger.end_index
        self._lookups.start()
        self._alone.begin()
        await self._server.listen(self.port, self._configuration.ours.bind_address)
        self.log.info(
            "member {self_id} of DLedger group {group} listens on port {port}, term {term}",
            self_id=self.settings.self_id,
            group=self.settings.group,
            port=self.port,
            term=self.node.term,
        )
        self._run()

    def stop(self) -> "Deferred[None]":
        """
        Let running puts end, then hand over, close the port and send nothing more.

        :returns: fires when every connection is closed and every put is answered.
        """
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        self._log.admits = False
        if self._puts:
            await wait_at_most(self._host.clock, _LAST_PUTS_S, self._puts.drained())
        await self._hand_over()
        self._is_stopped = True
        self._alone.end()
        if self._again is not None:
            self._again.cancel()
            self._again = None
        self._timer = rearm(self._host.clock, self._timer, None, self._on_time)
        await self._server.stop()
        await self._client.stop()
        self._puts.fail()
        while self._is_barred:
            later: Deferred[None] = Deferred()
            self._host.clock.callLater(0.005, later.callback, None)
            await later

    async def _hand_over(self) -> None:
        """
        Ask the best follower to lead, because this leader stops. Otherwise the group would have no
        leader for six seconds.
        """
        order = None if self.node is None else order_to_best(self.node, self.settings)
        if order is not None:
            await self._order(order)

    async def _order(self, order: LeadershipTransferRequest) -> None:
        """Serve an order as if an operator had sent it, and wait until it is done."""
        answered: Answered = Deferred()
        self._serve(DLedgerRequestCode.LEADERSHIP_TRANSFER, order, answered)
        await wait_at_most(self._host.clock, HAND_OVER_S, answered)

    # ------------------------------------------------------------ in

    def _now(self) -> int:
        """Return milliseconds of a clock that nobody can set."""
        return int(self._host.clock.seconds() * 1000 + 0.001)

    def _serve(self, code: int, message: GroupMessage, answered: Answered) -> None:
        if self.node is None or self._is_stopped:
            raise RequestRejected(
                RemotingCode.SYSTEM_ERROR, "this member does not take part yet, or not any more"
            )
        if not self._enter(self.node.request, code, message, answered) and not answered.called:
            reason = "this member failed; its log says why"
            answered.errback(RequestRejected(RemotingCode.SYSTEM_ERROR, reason))

    def _refused(self, host: str, code: int, reason: str) -> None:
        """
        Log a request from an address that is no known member's.

        The members' names are looked up again, because a member may have a new address by now.
        """
        self._refused_requests += 1
        self._lookups.look_up_doubtful()
        more = self._refusals.admit(host, reason)
        if more is not None:
            self.log.warn(
                "{host} refused on the DLedger port, request {code}: {reason}; if it is a member "
                "that others see at another address (NAT, several interfaces), add that to "
                "dLegerPeerHosts{more}",
                host=host,
                code=code,
                reason=reason,
                more=more,
            )

    def _enter(self, function: Callable[..., None], *args: Any) -> bool:
        """
        Call a function of the core, then carry out the core's actions.

        An exception of the core is logged and must not end the member.

        :returns: whether the function raised no exception.
        """
        is_done = True
        try:
            function(*args, self._now())
        except Exception:
            is_done = False
            self.log.failure("the DLedger member goes on after a failure")
            # A tick that fails would be due again at once and spin, so it rests. A message of a
            # peer that fails sets no rest: it must not delay this member's own heartbeats.
            if not args:
                self._rests_until = self._host.clock.seconds() + _RETRY_S
        self._run()
        return is_done

    def _on_time(self) -> None:
        if self.node is not None and not self._is_stopped:
            self._enter(self.node.tick)

    def _called(self, answer: "RemotingCommand | Failure", send: SendRequest) -> None:
        if self.node is None or self._is_stopped:
            return
        message = None
        if isinstance(answer, Failure):
            self._silent[send.peer] = answer.getErrorMessage()
        else:
            self._silent.pop(send.peer, None)
            try:
                message = read_response(send.code, answer)
            except RemotingError as error:
                self.log.debug("{peer} answered: {error}", peer=send.peer, error=error)
        self._enter(self.node.response, send.peer, send.call_id, message)

    def appended(self) -> None:
        """
        Pass new entries on to the core. The store calls this once a turn when the log grew, or more
        of it is committed.
        """
        self._tell_appended()

    def _tell_appended(self) -> None:
        node, end = self.node, self._ledger.end_index
        if node is not None and node.role is MemberRole.LEADER and end > self._told_index:
            self._told_index = self._seen_end = end
            self._enter(node.appended, end)

    # ------------------------------------------------------------ out

    def _run(self) -> None:
        """Carry out the core's actions, in order, up to a state that must be on the disk first."""
        if self._is_running or self.node is None:
            return
        self._is_running = True
        try:
            while True:
                self._actions.extend(self.node.outbox)
                self.node.outbox.clear()
                if self._is_barred or not self._actions:
                    break
                self._act(self._actions.popleft())
        finally:
            self._is_running = False
        if self._ledger.end_index != self._seen_end:
            self._seen_end = self._ledger.end_index
            self._act(CommitIndexMoved(self._ledger.committed_index))
        self._resign()
        self._arm()

    def _resign(self) -> None:
        """
        Hand over if this leader cannot write any more: otherwise it would keep all clients from
        sending.
        """
        order = None if self._is_stopped else self._resignation.order()
        if order is not None:
            Deferred.fromCoroutine(self._order(order)).addErrback(self._surprised)

    def deletes_early(self) -> bool:
        """Return whether unexpired files may be deleted for want of disk space."""
        return self._resignation.deletes_early()

    def _act(self, action: Action) -> None:
        """Carry out one action. A failure must stop neither the other actions nor the timer."""
        try:
            self._do[type(action)](action)
        except Exception:
            self.log.failure(
                "the DLedger member could not do {action}", action=type(action).__name__
            )

    def _arm(self) -> None:
        if self.node is None or self._is_stopped:
            return
        wake = self.node.next_wake
        deadline = None if wake >= NEVER else max(wake / 1000 + 0.0001, self._rests_until)
        self._timer = rearm(self._host.clock, self._timer, deadline, self._on_time)

    def _persist(self, action: Persist) -> None:
        self._is_barred = True
        saved = self._host.worker.call(self._term_file.save, action.state)
        saved.addCallbacks(self._persisted, self._not_persisted)
        saved.addErrback(self._surprised)

    def _persisted(self, _: None) -> None:
        self._is_barred = False
        self._run()

    def _not_persisted(self, failure: Failure) -> None:
        """
        Leave the group until the next start: a member that cannot store its vote must neither vote
        nor lead.
        """
        self._is_barred = False
        self._is_stopped = True
        self._log.fault = f"term and vote cannot be kept: {failure.getErrorMessage()}"
        self.log.critical(
            "this member leaves the group until its next start: {reason}", reason=self._log.fault
        )
        self._actions.clear()
        self._timer = rearm(self._host.clock, self._timer, None, self._on_time)
        self._puts.fail()

    def _surprised(self, failure: Failure) -> None:
        self.log.failure("the DLedger member failed", failure)

    def _send(self, action: SendRequest) -> None:
        if self._is_stopped:
            return
        address = self.settings.peers[action.peer]
        frame = request_frame(action.code, action.message)
        called = self._client.invoke(address, frame, action.timeout_ms)
        called.addBoth(self._called, action).addErrback(self._surprised)

    def _answer(self, action: AnswerRequest) -> None:
        action.token.callback(action.message)

    def _sync(self, action: Sync) -> None:
        if self._flusher is not None:
            self._flusher.sync(self._synced)

    def _synced(self, index: int) -> None:
        if self.node is not None and not self._is_stopped:
            self._enter(self.node.synced, index)

    def _completed(self, action: PutsCompleted) -> None:
        self._puts.complete(action.index, action.code)

    def _committed(self, action: CommitIndexMoved) -> None:
        self._log.grown()

    def _role_changed(self, action: RoleChanged) -> None:
        self._elections += action.role is MemberRole.CANDIDATE
        self.log.info(
            "member {self_id} is {role} in term {term}; the leader is {leader}",
            self_id=self.settings.self_id,
            role=action.role.value,
            term=action.term,
            leader=action.leader_id or "not known",
        )
        if action.leader_id is not None:
            self._alone.end()
        elif not self._is_stopped:
            self._alone.begin()
        if action.role is MemberRole.LEADER:
            self._told_index = self._ledger.end_index  # it was of another leadership
            self._begin_term(action.term)
        else:
            self._log.admits = False
            self._log.pending.clear()
        if action.role is MemberRole.LEADER:
            self.role.lead(action.term)
        elif action.role is MemberRole.FOLLOWER:
            self.role.follow()
        else:
            self.role.stand()

    def _tell_alone(self) -> None:
        self.log.warn(
            "this member knows no leader since {seconds:.0f} s: {why}; what it serves gets old",
            seconds=self._alone.seconds or 0.0,
            why=self.why_no_puts(),
        )

    def _begin_term(self, term: int) -> None:
        """
        Write the first entry of this term. With `commit_own_term_only` nothing is committed before
        it.
        """
        if not self.settings.commit_own_term_only or not self.leads(term):
            return
        is_begun = self._log.begin_term(term, self._address, self._host.now_ms())
        if not is_begun and not self._is_stopped:
            if self._again is not None:  # the timer is of an earlier term
                self._again.cancel()
            self._again = self._host.clock.callLater(_RETRY_S, self._begin_again, term)

    def _begin_again(self, term: int) -> None:
        self._again = None
        self._begin_term(term)

    # ------------------------------------------------------------ questions of others

    def term_to_append(self) -> int | None:
        """Return the term in which a put may be appended; None while none may."""
        node = self.node
        if node is None or self._is_stopped or self._is_barred:
            return None
        return node.term if node.why_not_append() == DLedgerResponseCode.SUCCESS else None

    def leads(self, term: int) -> bool:
        """Whether this member is still the leader of that term."""
        node = self.node
        return node is not None and node.role is MemberRole.LEADER and node.term == term

    @property
    def is_sure_to_lead(self) -> bool:
        """
        Whether a quorum answered this leader so recently that no other leader can have been
        elected.
        """
        node = self.node
        return (
            node is not None
            and node.role is MemberRole.LEADER
            and self._now() - node.member.last_quorum < node.settings.leader_silence / 2
        )

    def is_settled(self) -> bool:
        """Whether every entry of the ledger is committed."""
        return self._ledger.committed_index >= self._ledger.end_index

    def admit_puts(self, admitted: bool) -> None:
        """Decide whether the log takes clients' messages."""
        self._log.admits = admitted

    # ------------------------------------------------------------ as the store's replication

    def when_replicated(
        self, next_offset: int, start_offset: int, decided: Decided
    ) -> PutMessageStatus | None:
        """
        Ask whether a quorum has stored the put's entry. Call it in the turn of the append, while
        the put's entry is the ledger's last one; the offsets are not used.

        :returns: SERVICE_NOT_AVAILABLE if this member does not lead; else None, and `decided` is
            called later.
        """
        if self.node is None or self.node.role is not MemberRole.LEADER or self._is_stopped:
            return PutMessageStatus.SERVICE_NOT_AVAILABLE
        self._puts.add(self._ledger.end_index, decided)
        self._tell_appended()
        return None

    def is_replicated(self, start_offset: int, next_offset: int) -> bool:
        """Whether a majority of the group has stored this entry."""
        return next_offset <= self._ledger.committed_pos

    def replicated_offset(self) -> int:
        """Return the offset up to which a quorum has stored the log."""
        return self._log.max_offset

    def set_master_address(self, address: str | None) -> None:
        """Do nothing: the group finds its leader itself."""

    def why_no_puts(self) -> str:
        """
        Return the reason for clients whose puts are refused: which members answer, which do not,
        and how an operator can mend that.
        """
        return why_no_puts(self.settings, self.node, self._silent, len(self._puts))

    def statistics(self) -> DLedgerStatistics:
        """Return the state of the member and, if it leads, of its followers."""
        return replace(
            statistics_of(self.settings, self.node, self._ledger),
            refuses=self._log.fault or self._ledger.refuses,
            waiting=len(self._puts),
            elections=self._elections,
            refused=self._refused_requests,
            alone_seconds=self._alone.seconds,
        )
