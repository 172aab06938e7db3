"""One member of the controllers' Raft group, with its ledger, its calls to the others and its one
timer.

Spec: controller.md, section 10.2; dledger.md, chapters 2, 5 and 10.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.config.dledger_settings import DLedgerSettings
from rmq_ha.base.errors import NotNow, RemotingError, RequestRejected, StoreError
from rmq_ha.base.model.networks import Networks
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.remoting.dispatcher import Handler
from rmq_ha.base.seams import Host, Lock
from rmq_ha.base.store_format.dledger_values import MemberRole
from rmq_ha.base.timing.timer import rearm, wait_at_most
from rmq_ha.base.wire.codes import ResponseCode as RemotingCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.controller.codes import ControllerResponseCode
from rmq_ha.server.dledger.actions import (
    Action,
    AnswerRequest,
    Persist,
    PutsCompleted,
    RoleChanged,
    SendRequest,
    Sync,
)
from rmq_ha.server.dledger.codes import DLedgerRequestCode, DLedgerResponseCode
from rmq_ha.server.dledger.ledger import Ledger
from rmq_ha.server.dledger.ledger_sync import SyncJob
from rmq_ha.server.dledger.lookups import Lookups
from rmq_ha.server.dledger.member import NEVER
from rmq_ha.server.dledger.members import Members
from rmq_ha.server.dledger.messages import GroupMessage
from rmq_ha.server.dledger.node import Node
from rmq_ha.server.dledger.protocol import Answered, PeerRequests, read_response, request_frame
from rmq_ha.server.dledger.term_file import GroupFile, TermFile
from rmq_ha.server.dledger.transfer import HAND_OVER_S, order_to_best

_NOTHING = b"-"
"""The body of the first entry of a leader's term, which commits the entries before it."""
_INDEX_FILE_SIZE = 1 << 20
"""Size of an index file in bytes: 32,768 entries, of which an election takes one."""
_RETRY_S = 1.0
_SYNC_AGAIN_S = 0.5
_THOROUGH_S = 3.0


class ControllerGroup:
    """
    Drives the core: proposed entries are applied, in order, once most members have them on the
    disk.

    :param directory: directory for this member's files alone.
    :param apply: called once with each committed entry, from the first one on.
    :param led: called with True when this member leads and has applied all earlier entries, and
        with False when it leads no more.
    :ivar fault: the reason why this member takes no part until its next start; None: it takes part.
    """

    log = Logger()

    def __init__(
        self,
        host: Host,
        settings: DLedgerSettings,
        directory: str,
        file_size: int,
        client: RemotingClient,
        apply: Callable[[bytes], None],
        led: Callable[[bool], None],
    ) -> None:
        self._host = host
        self.settings = settings
        self._directory = directory
        self._client = client
        self._apply = apply
        self._led = led
        self._ledger = Ledger(host.disk, directory, file_size, index_file_size=_INDEX_FILE_SIZE)
        self._term_file = TermFile(host.disk, directory)
        self._name = GroupFile(host.disk, directory)
        self._members = Members(settings, Networks(""), Networks(""))
        self._lookups = Lookups(host, self._members)
        self._node: Node | None = None
        self._lock: Lock | None = None
        self._actions: deque[Action] = deque()
        self._waiting: dict[int, Deferred[None]] = {}
        self._applied = -1
        self._term_index: int | None = None  # index of this leadership's first entry
        self._is_leading = self._is_running = self._is_barred = self._is_stopped = False
        self._is_syncing = False
        self._timer: IDelayedCall | None = None
        self._begin_again: IDelayedCall | None = None
        self._sync_again: IDelayedCall | None = None
        self._thorough_at = 0.0
        self.fault: str | None = None

    # ------------------------------------------------------------ questions of others

    @property
    def is_ready(self) -> bool:
        """
        Whether this member leads, and everything that was ever proposed is decided and applied.
        """
        return self._is_leading and self._applied == self._ledger.end_index

    @property
    def leads(self) -> bool:
        """Whether this member leads, and has applied all entries that earlier leaders committed."""
        return self._is_leading

    @property
    def leader_id(self) -> str | None:
        """Return the id of the leader, as far as this member knows it."""
        return None if self._node is None or self._is_stopped else self._node.leader_id

    @property
    def term(self) -> int:
        """Return the current term; -1 before the start."""
        return -1 if self._node is None else self._node.term

    def routes(self) -> dict[int, Handler]:
        """Return the handlers of the other members' requests, by request code."""
        return PeerRequests(self._serve, self._members, self._refused).routes()

    def propose(self, body: bytes) -> "Deferred[None]":
        """
        Have the group agree on an entry.

        :returns: fires when the entry is applied; fails with `RequestRejected`. After a failure it
            may still be applied, unless the code says that this member does not lead.
        """
        node = self._node
        if (
            node is None
            or not self.is_ready
            or node.why_not_append() != DLedgerResponseCode.SUCCESS
        ):
            return fail(not_leader())
        try:
            (entry,) = self._ledger.append(node.term, [body])
        except (StoreError, OSError, ValueError) as error:
            reason = f"the controller cannot write its log: {error}"
            return fail(RequestRejected(RemotingCode.SYSTEM_ERROR, reason))
        done: Deferred[None] = Deferred()
        self._waiting[entry.index] = done
        self._enter(Node.appended, entry.index)
        return done

    # ------------------------------------------------------------ beginning and end

    def start(self) -> None:
        """
        Read the log and take part in the group. Blocks while it reads.

        :raises StoreError: another process uses the files, or they cannot be read.
        """
        self._lock = self._host.disk.lock(f"{self._directory}/lock")
        self._name.claim(self.settings.group, "controllerDLegerGroup")
        self._ledger.load()
        state = self._term_file.load()
        self._node = Node(self.settings, self._ledger, state, self._host.random, self._now())
        self._lookups.start()
        self._run()
        self.log.info(
            "controller {self_id} of {peers}: {count} entries of its log are applied",
            self_id=self.settings.self_id,
            peers=len(self.settings.peers),
            count=self._applied + 1,
        )

    async def stop(self) -> None:
        """
        Hand the lead to another member, leave the group, and wait until nothing is being written.

        Entries that were promised to nobody may not be on the disk yet; they need no sync of their
        own.
        """
        await self._hand_over()
        self._leave("this controller stops")
        while self._is_barred or self._is_syncing:
            later: Deferred[None] = Deferred()
            self._host.clock.callLater(0.005, later.callback, None)
            await later
        if self._lock is not None:
            self._ledger.close()
            self._lock.release()

    async def _hand_over(self) -> None:
        node = None if self._is_stopped else self._node
        order = None if node is None else order_to_best(node, self.settings)
        if order is not None:
            answered: Answered = Deferred()
            self._serve(DLedgerRequestCode.LEADERSHIP_TRANSFER, order, answered)
            await wait_at_most(self._host.clock, HAND_OVER_S, answered)

    def _leave(self, reason: str) -> None:
        self._is_stopped = True
        for timer in (self._timer, self._begin_again, self._sync_again):
            if timer is not None and timer.active():
                timer.cancel()
        self._actions.clear()
        self._lead(False)
        waiting, self._waiting = self._waiting, {}
        for done in waiting.values():
            done.errback(RequestRejected(RemotingCode.SYSTEM_ERROR, reason))

    def _fail(self, reason: str) -> None:
        """
        Leave the group until the next start: a member that cannot store its state must neither lead
        nor vote.
        """
        self.fault = reason
        self.log.critical("this controller takes no part until its next start: {r}", r=reason)
        self._leave(reason)

    # ------------------------------------------------------------ in

    def _now(self) -> int:
        """Return milliseconds of a clock that nobody can set."""
        return int(self._host.clock.seconds() * 1000 + 0.001)

    def _serve(self, code: int, message: GroupMessage, answered: Answered) -> None:
        if self._node is None or self._is_stopped:
            raise RequestRejected(RemotingCode.SYSTEM_ERROR, "this controller takes no part")
        self._enter(Node.request, code, message, answered)

    def _refused(self, host: str, code: int, reason: str) -> None:
        self._lookups.look_up_doubtful()
        self.log.debug("{host}: request {code} refused: {why}", host=host, code=code, why=reason)

    def _enter(self, function: Callable[..., None], *args: Any) -> None:
        """
        Call a function of the core, then carry out the core's actions.

        An exception of the core is logged and must not end the member. A member that takes no part
        any more does nothing.

        :param function: a method of `Node`.
        """
        if self._node is None or self._is_stopped:
            return
        try:
            function(self._node, *args, self._now())
        except Exception:
            self.log.failure("the controllers' group goes on after a failure")
        self._run()

    def _on_time(self) -> None:
        self._timer = None
        self._enter(Node.tick)

    def _called(self, answer: "RemotingCommand | Failure", send: SendRequest) -> None:
        message = None
        if not isinstance(answer, Failure):
            try:
                message = read_response(send.code, answer)
            except RemotingError as error:
                self.log.debug("{peer} answered: {error}", peer=send.peer, error=error)
        self._enter(Node.response, send.peer, send.call_id, message)

    # ------------------------------------------------------------ out

    def _run(self) -> None:
        """Carry out the core's actions, in order, up to a state that must be on the disk first."""
        node = self._node
        if self._is_running or node is None:
            return
        self._is_running = True
        try:
            while not self._is_stopped:
                self._actions.extend(node.outbox)
                node.outbox.clear()
                if self._is_barred or not self._actions:
                    break
                self._act(self._actions.popleft())
        finally:
            self._is_running = False
        self._apply_committed()
        if not self._is_stopped:
            wake = node.next_wake
            deadline = None if wake >= NEVER else wake / 1000 + 0.0001
            self._timer = rearm(self._host.clock, self._timer, deadline, self._on_time)

    def _act(self, action: Action) -> None:
        if isinstance(action, Persist):
            self._is_barred = True
            saved = self._host.worker.call(self._term_file.save, action.state)
            saved.addCallbacks(self._persisted, self._not_persisted)
        elif isinstance(action, SendRequest):
            frame = request_frame(action.code, action.message)
            address = self.settings.peers[action.peer]
            called = self._client.invoke(address, frame, action.timeout_ms)
            called.addBoth(self._called, action)
        elif isinstance(action, AnswerRequest):
            action.token.callback(action.message)
        elif isinstance(action, Sync):
            self._sync()
        elif isinstance(action, PutsCompleted):
            self._completed(action)
        elif isinstance(action, RoleChanged):
            self._role_changed(action)

    def _persisted(self, _: None) -> None:
        self._is_barred = False
        self._run()

    def _not_persisted(self, failure: Failure) -> None:
        self._is_barred = False
        self._fail(f"term and vote cannot be kept: {failure.getErrorMessage()}")

    def _sync(self) -> None:
        """
        Start a sync. Only one runs at a time: the core asks for the next one when it was told of
        this one's end.
        """
        now = self._host.clock.seconds()
        try:
            job = self._ledger.sync_job(thorough=now >= self._thorough_at + _THOROUGH_S)
        except NotNow as error:
            self._sync_later(error)
            return
        except (StoreError, OSError) as error:
            self._fail(f"the log cannot be synced: {error}")
            return
        if job.checkpoint is not None:
            self._thorough_at = now
        self._is_syncing = True
        ran = self._host.worker.call(job.run)
        ran.addCallbacks(self._synced, self._not_synced, callbackArgs=(job,), errbackArgs=(job,))

    def _synced(self, _: None, job: SyncJob) -> None:
        self._is_syncing = False
        self._enter(Node.synced, self._ledger.synced(job))

    def _not_synced(self, failure: Failure, job: SyncJob) -> None:
        self._is_syncing = False
        if isinstance(failure.value, NotNow):
            self._ledger.put_off(job)
            self._sync_later(failure.value)
            return
        self._ledger.sync_failed(job, failure.value)  # type: ignore[arg-type]
        self._fail(f"the log cannot be synced: {failure.getErrorMessage()}")

    def _sync_later(self, error: NotNow) -> None:
        """Try again later. No sync has failed, so callers that wait for it go on waiting."""
        self.log.warn("the log is synced later: {error}", error=error)
        if not self._is_stopped:
            self._sync_again = self._host.clock.callLater(_SYNC_AGAIN_S, self._sync)

    def _role_changed(self, action: RoleChanged) -> None:
        self.log.info(
            "controller {self_id} is {role} in term {term}; the leader is {leader}",
            self_id=self.settings.self_id,
            role=action.role.value,
            term=action.term,
            leader=action.leader_id or "not known",
        )
        self._lead(False)
        if action.role is MemberRole.LEADER:
            self._begin_term(action.term)

    def _begin_term(self, term: int) -> None:
        """
        Write the first entry of this term, which commits the entries of earlier terms with it.
        """
        node = self._node
        if node is None or node.role is not MemberRole.LEADER or node.term != term:
            return
        try:
            (entry,) = self._ledger.append(term, [_NOTHING])
        except (StoreError, OSError) as error:
            self.log.error("this controller cannot begin to lead yet: {error}", error=error)
            self._begin_again = self._host.clock.callLater(_RETRY_S, self._begin_term, term)
            return
        self._term_index = entry.index
        self._enter(Node.appended, entry.index)

    def _apply_committed(self) -> None:
        """
        Apply the committed entries, and begin to lead when the first entry of this term is among
        them.
        """
        while self._applied < self._ledger.committed_index and self.fault is None:
            try:
                entry = self._ledger.entry(self._applied + 1)
                if entry is None:
                    raise StoreError(f"entry {self._applied + 1} is missing")
                if entry.body != _NOTHING:
                    self._apply(entry.body)
            except (StoreError, OSError) as error:
                self._fail(f"the log cannot be read: {error}")
                return
            self._applied += 1
        if self._term_index is not None and self._applied >= self._term_index:
            self._lead(True)

    def _completed(self, action: PutsCompleted) -> None:
        self._apply_committed()
        for index in [index for index in self._waiting if index <= action.index]:
            done = self._waiting.pop(index)
            if action.code == DLedgerResponseCode.SUCCESS:
                done.callback(None)
            else:
                done.errback(_undecided_error(action.code))

    def _lead(self, leads: bool) -> None:
        if not leads:
            self._term_index = None
        if leads is not self._is_leading:
            self._is_leading = leads
            self._led(leads)


def not_leader() -> RequestRejected:
    """Return the answer of a controller that does not lead."""
    return RequestRejected(
        ControllerResponseCode.NOT_LEADER, "The controller is not in leader state"
    )


def _undecided_error(code: int) -> RequestRejected:
    """
    Return the refusal for an entry that is in this log and not committed: the next leader may still
    commit it.
    """
    why = "too few controllers have answered in time"
    if code == DLedgerResponseCode.NOT_LEADER:
        why = "this controller leads no more"
    reason = f"{why}; it may still be done: look, and ask again"
    return RequestRejected(RemotingCode.SYSTEM_ERROR, reason)
