"""A broker's side of controller mode: its id, its role, its heartbeats (ReplicasManager).

Spec: controller.md, chapters 3 and 5.
"""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from twisted.logger import Logger

from rmq_ha.base.errors import ProtocolViolation, RequestRejected
from rmq_ha.server.controller.codec import decode_elected, decode_header, decode_set, encode_set
from rmq_ha.server.controller.codes import ControllerRequestCode, ControllerResponseCode
from rmq_ha.server.controller.messages import (
    AlterSyncStateSetRequest,
    ApplyBrokerIdRequest,
    ControllerHeader,
    ElectMasterRequest,
    ElectMasterResponse,
    GetMetadataResponse,
    GetNextBrokerIdRequest,
    GetNextBrokerIdResponse,
    GetReplicaInfoRequest,
    GetReplicaInfoResponse,
    HeartbeatRequest,
    NotifyRoleChangedRequest,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    SyncStateSet,
)
from rmq_ha.server.replication.epochs.roles.actions import (
    Accept,
    Action,
    Adopt,
    Apply,
    AskController,
    ControllerAnswer,
    Follow,
    Lead,
    LogProgress,
    SetRole,
    StepDown,
    Withdraw,
)
from rmq_ha.server.replication.epochs.roles.identity import Identity, KnownIds
from rmq_ha.server.replication.epochs.roles.lease import Lease
from rmq_ha.server.replication.epochs.settings import ManagerSettings

UNCERTAIN_SECONDS = 10.0
"""
How long a controller may still carry out a request that it did not answer, in seconds. A controller
waits 5 s for its log.
"""
_REFUSALS = frozenset(ControllerResponseCode) - {
    ControllerResponseCode.SUCCESS,
    ControllerResponseCode.NOT_LEADER,
}
"""
Codes with which a request is certainly refused. With any other code it may still be carried out,
since it may lie in the log of the next leader.
"""

_LeaderAnswer = ElectMasterResponse | GetReplicaInfoResponse


class _LeadershipNews(NamedTuple):
    """
    A controller's answer about the leadership of this set.

    :ivar is_final: whether no set that was proposed before can still be accepted.
    """

    epoch: int
    master_id: int | None
    master_address: str | None
    members: SyncStateSet
    is_final: bool


class ReplicasManager:
    """
    Decides what to ask the controllers, and which role to take; does no I/O.

    Call `tick` at `deadline`, and after every call carry out the actions that `take` returns, in
    order. Differs from 5.3.3 on purpose. A master without a lease accepts nothing (`may_accept`). A
    deposed master stops leading even if nobody else was elected. A broker that its controllers have
    forgotten applies for its old id. After a refused change of the set, the controllers are asked
    for their set.

    :param progress: returns the present state of the log.
    :param now_ms: returns the wall clock in milliseconds, for requests.
    :param crashed_in: epoch of which this log may have lost bytes that others have; -1: none. This
        broker does not lead that epoch, and is silent until the controllers take it for dead.
    :param may_stand: returns whether this broker may be elected, as far as it can tell itself.
    :ivar identity: the id of this broker; None: it has none yet.
    :ivar role: the role that the controllers told last.
    :ivar epoch: the epoch that the controllers told last; 0: none yet.
    :ivar members: ids of the brokers in sync in that epoch, as the controllers told last.
    :ivar leader: address of the controllers' leader.
    :ivar awaited: ids of the set's brokers of which one has to come back, since nobody leads;
        otherwise empty.
    :ivar is_standing_back: whether this broker was the master when it crashed, and waits to be
        replaced.
    """

    log = Logger()

    def __init__(
        self,
        settings: ManagerSettings,
        ids: KnownIds,
        progress: Callable[[], LogProgress],
        now_ms: Callable[[], int],
        random: Random,
        crashed_in: int = -1,
        may_stand: Callable[[], bool] = lambda: True,
    ) -> None:
        self.identity = ids.identity
        self.role = SetRole.NONE
        self.epoch = 0
        self.members: tuple[int, ...] = ()
        self.leader: str | None = None
        self._settings = settings
        self._application = ids.application
        self._progress = progress
        self._now_ms = now_ms
        self._random = random
        self._crashed_in = crashed_in
        self.is_standing_back = False
        self.awaited: tuple[int, ...] = ()
        self._may_stand = may_stand
        self._outbox: list[Action] = []
        # One step at a time (`_busy`): a question to the leader, or an action that waits for the
        # disk. Beside it run only heartbeats and one change of the set (`_altering`, `_look`).
        self._busy: object | None = None
        self._altering: AskController | None = None
        self._look: AskController | None = None
        self._step_at = self._beat_at = self._leader_at = 0.0
        self._is_registered = False
        self._wants_election = True
        # A refused change of the set sets `_doubts_own_lead`. Nothing is proposed until a question
        # asked after `_uncertain_until` is answered: before, an earlier change may still be done.
        self._doubts_own_lead = self._heard_of_election = False
        self._refused_with = 0
        self._uncertain_until = 0.0
        # `Lease.heard` for the leader when the last question was asked.
        self._heard_before: float | None = None
        self._master_address: str | None = None
        self._turn = 0
        self._lease = Lease(
            len(settings.controllers), settings.controller_heart_beat_timeout_mills / 1000
        )
        self._answers: dict[int, Callable[[AskController, ControllerAnswer, float], None]] = {
            ControllerRequestCode.GET_METADATA_INFO: self._led_by,
            ControllerRequestCode.GET_NEXT_BROKER_ID: self._next_id,
            ControllerRequestCode.APPLY_BROKER_ID: self._applied,
            ControllerRequestCode.REGISTER_BROKER: self._registered,
            ControllerRequestCode.ELECT_MASTER: self._elected,
            ControllerRequestCode.GET_REPLICA_INFO: self._informed,
        }

    # ------------------------------------------------------------ events and actions

    def take(self) -> list[Action]:
        """Return the actions to carry out, each once."""
        actions, self._outbox = self._outbox, []
        return actions

    def may_accept(self, now: float) -> bool:
        """Whether this broker leads, and no other can have been elected yet."""
        return self.role is SetRole.MASTER and self._lease.holds(now)

    @property
    def is_in_sync(self) -> bool:
        """Whether the controllers had this broker in the set when they were asked last."""
        return self.identity is not None and self.identity.broker_id in self.members

    def led_until(self, now: float) -> float:
        """
        Return the time up to which this broker counts as the leader when a put ends.

        The answer to a heartbeat proves that no other master was elected before the heartbeat was
        sent. If the newest proof is at most two brokerHeartbeatIntervals old, the result is `now`:
        another master may have been elected since, but the next answer is not overdue yet.
        Otherwise the result is the time of the newest proof.
        """
        proven = self._lease.proven_until
        in_time = 2 * self._settings.broker_heartbeat_interval / 1000
        return now if now - proven <= in_time else proven

    def deadline(self) -> float:
        """Return when to call `tick` next, in seconds."""
        return self._beat_at if self._busy is not None else min(self._step_at, self._beat_at)

    def tick(self, now: float) -> None:
        """Send a heartbeat or ask the next question, if it is due."""
        if now >= self._beat_at:
            self.beat(now)
        if self._busy is None and now >= self._step_at:
            self._step(now)

    def answered(self, ask: AskController, answer: ControllerAnswer | None, now: float) -> None:
        """
        Take the end of a request.

        :param answer: the answer; None: none came.
        """
        is_step = ask is self._busy
        if is_step:
            self._busy = None
            self._retry_later(now)
        try:
            self._answered(ask, answer, now)
        except (ProtocolViolation, RequestRejected) as error:
            self.log.warn(
                "{address} answers {code} with what cannot be read: {error}",
                address=ask.address,
                code=ask.code,
                error=error,
            )
        if is_step and self._heard_of_election and self._busy is None:
            self._step_at = now

    def write_done(self, now: float) -> None:
        """Take note that the last `Apply`, `Accept` or `Withdraw` is on the disk."""
        done, self._busy = self._busy, None
        if isinstance(done, Apply):
            self._application = done.application
        else:
            self._application = None
            if isinstance(done, Accept):
                self.identity = done.identity
                self._wants_election = True  # also if it was forgotten (hazard 23)
        self._step_at = now

    def write_failed(self, now: float) -> None:
        """Try again later after the disk refused, from the last state that is certainly on it."""
        self._busy = None
        self._retry_later(now)

    def failed(self, now: float) -> None:
        """Give the role up, since it could not be taken; there is none until the next election."""
        self.role = SetRole.NONE
        self._wants_election = True
        self._retry_later(now)

    def notified(self, header: NotifyRoleChangedRequest, now: float) -> None:
        """
        Ask the controllers at once, since request 1008 tells of an election.

        Differs from 5.3.3 on purpose, which believes the request: anybody who reaches the port can
        send one, and a broker that follows a stranger cuts its log.
        """
        if (header.master_epoch or 0) <= self.epoch:
            return
        self._heard_of_election = True
        if self._busy is None:
            self._step_at = now

    def propose(self, proposal: SyncStateSet, now: float) -> None:
        """Ask, as master, for a change of the set, unless an earlier change is under way."""
        if self.role is not SetRole.MASTER or self._altering is not None or self._doubts_own_lead:
            return
        if self.leader is None or self.identity is None:
            return
        request = AlterSyncStateSetRequest(
            broker_name=self._settings.broker_name,
            master_broker_id=self.identity.broker_id,
            master_epoch=self.epoch,
            invoke_time=self._now_ms(),
        )
        self._altering = self._ask(
            self.leader,
            ControllerRequestCode.ALTER_SYNC_STATE_SET,
            request,
            now,
            encode_set(proposal),
        )

    # ------------------------------------------------------------ questions

    def _ask(
        self,
        address: str,
        code: int,
        header: ControllerHeader | None,
        now: float,
        body: bytes = b"",
    ) -> AskController:
        ask = AskController(address, code, header, body, now)
        self._outbox.append(ask)
        return ask

    def _retry_later(self, now: float) -> None:
        pause = self._settings.retry_interval / 1000
        self._step_at = now + pause * (0.75 + self._random.random() / 2)

    def beat(self, now: float) -> None:
        """
        Send heartbeats at once, since the controllers have to know now that this broker lives.
        """
        self._beat_at = now + self._settings.broker_heartbeat_interval / 1000
        self._beat(now)

    def _beat(self, now: float) -> None:
        """Send 904 to every controller. If there are several, ask each who leads them."""
        settings = self._settings
        if self.identity is None or self.is_standing_back:
            return
        epoch, max_offset, confirm_offset = self._progress()
        beat = HeartbeatRequest(
            cluster_name=settings.cluster_name,
            broker_name=settings.broker_name,
            broker_addr=settings.broker_address,
            broker_id=self.identity.broker_id,
            epoch=epoch,
            max_offset=max_offset,
            confirm_offset=confirm_offset,
            heartbeat_timeout_mills=settings.controller_heart_beat_timeout_mills,
            election_priority=settings.broker_election_priority,
        )
        known = dict.fromkeys(settings.controllers)
        if self.leader is not None:
            known.setdefault(self.leader)
        for address in known:
            self._ask(address, ControllerRequestCode.BROKER_HEARTBEAT, beat, now)
        if len(settings.controllers) > 1:
            for address in settings.controllers:
                self._ask(address, ControllerRequestCode.GET_METADATA_INFO, None, now)

    def _step(self, now: float) -> None:
        """Ask the next question that is missing or due."""
        self._heard_of_election = False
        if self.leader is None or now >= self._leader_at:
            self._turn += 1
            address = self._settings.controllers[self._turn % len(self._settings.controllers)]
            self._busy = self._ask(address, ControllerRequestCode.GET_METADATA_INFO, None, now)
            return
        code, header = self._next_request()
        self._heard_before = self._lease.heard(self.leader)
        self._busy = self._ask(self.leader, code, header, now)

    def _next_request(self) -> tuple[int, ControllerHeader]:
        settings = self._settings
        cluster, name = settings.cluster_name, settings.broker_name
        if self._application is not None:
            return ControllerRequestCode.APPLY_BROKER_ID, ApplyBrokerIdRequest(
                cluster_name=cluster,
                broker_name=name,
                applied_broker_id=self._application.broker_id,
                register_check_code=self._application.check_code or "",
            )
        if self.identity is None:
            return ControllerRequestCode.GET_NEXT_BROKER_ID, GetNextBrokerIdRequest(
                cluster_name=cluster, broker_name=name
            )
        own = self.identity.broker_id
        if not self._is_registered:
            return ControllerRequestCode.REGISTER_BROKER, RegisterBrokerRequest(
                cluster_name=cluster,
                broker_name=name,
                broker_id=own,
                broker_address=settings.broker_address,
                invoke_time=self._now_ms(),
            )
        if self._wants_election and self._may_stand():
            return ControllerRequestCode.ELECT_MASTER, ElectMasterRequest(
                cluster_name=cluster,
                broker_name=name,
                broker_id=own,
                invoke_time=self._now_ms(),
            )
        return ControllerRequestCode.GET_REPLICA_INFO, GetReplicaInfoRequest(broker_name=name)

    # ------------------------------------------------------------ answers

    def _answered(self, ask: AskController, answer: ControllerAnswer | None, now: float) -> None:
        if ask is self._look:
            self._note_awaited(answer)
            return
        if ask.code == ControllerRequestCode.BROKER_HEARTBEAT:
            if answer is not None and answer.code == ControllerResponseCode.SUCCESS:
                self._heard(ask, now)
            return
        if ask.code == ControllerRequestCode.ALTER_SYNC_STATE_SET:
            self._altered(ask, answer, now)
            return
        if answer is not None and answer.code != ControllerResponseCode.NOT_LEADER:
            self._answers[ask.code](ask, answer, now)
        elif ask.code != ControllerRequestCode.GET_METADATA_INFO:
            self.leader = None

    def _note_awaited(self, answer: ControllerAnswer | None) -> None:
        """Note for operators which brokers could be elected, since this one was not."""
        self._look = None
        if answer is not None and answer.code == ControllerResponseCode.SUCCESS:
            master = decode_header(GetReplicaInfoResponse, answer.ext).master_broker_id
            self.awaited = decode_set(answer.body).members if master is None else ()

    def _heard(self, ask: AskController, now: float) -> None:
        """
        Take an answered heartbeat. If this master has no lease yet, ask the next question now,
        which begins one.
        """
        self._lease.heartbeat_answered(ask.address, ask.sent, now)
        if (
            self.role is SetRole.MASTER
            and not self._lease.holds(now)
            and ask.address == self.leader
        ):
            self._step_at = now

    def _led_by(self, ask: AskController, answer: ControllerAnswer, now: float) -> None:
        """
        Take the answer to 1005, which names the controllers' leader; an empty name counts as none.
        """
        if answer.code != ControllerResponseCode.SUCCESS:
            return
        address = decode_header(GetMetadataResponse, answer.ext).controller_leader_address
        if not address:
            return
        self._lease.leader_named(ask.address, address, ask.sent, now)
        if self.leader is None or now >= self._leader_at:
            self.leader = address
            self._leader_at = now + self._settings.sync_controller_metadata_period / 1000
            self._step_at = now

    def _next_id(self, ask: AskController, answer: ControllerAnswer, now: float) -> None:
        number = decode_header(GetNextBrokerIdResponse, answer.ext).next_broker_id
        if answer.code != ControllerResponseCode.SUCCESS or number is None or number < 1:
            self._complain(answer)
            return
        self._apply_for(number)

    def _apply_for(self, number: int) -> None:
        settings = self._settings
        application = Identity(
            settings.cluster_name,
            settings.broker_name,
            number,
            f"{settings.broker_address};{self._now_ms()}",
        )
        self._busy = Apply(application)
        self._outbox.append(Apply(application))

    def _applied(self, ask: AskController, answer: ControllerAnswer, now: float) -> None:
        application = self._application
        assert application is not None
        if answer.code == ControllerResponseCode.SUCCESS:
            self._busy = Accept(application._replace(check_code=None))
            self._outbox.append(Accept(application._replace(check_code=None)))
            return
        self._complain(answer)
        if self.identity is None:
            self._busy = Withdraw()
            self._outbox.append(Withdraw())

    def _registered(self, ask: AskController, answer: ControllerAnswer, now: float) -> None:
        assert self.identity is not None
        if answer.code == ControllerResponseCode.NEED_TO_BE_REGISTERED:
            self._complain(answer)
            self._apply_for(self.identity.broker_id)
            return
        if answer.code != ControllerResponseCode.SUCCESS:
            self._complain(answer)
            return
        self._is_registered = True
        header = decode_header(RegisterBrokerResponse, answer.ext)
        self._step_at = now
        self._beat(now)
        if header.master_broker_id is not None:
            self._wants_election = False
            self._take_leader_answer(ask, header, decode_set(answer.body), now)

    def _elected(self, ask: AskController, answer: ControllerAnswer, now: float) -> None:
        """
        Take the answer to a request for an election: success, or the old master still lives (2011).
        """
        if answer.code == ControllerResponseCode.NEED_TO_BE_REGISTERED:
            self._is_registered = False
            self._step_at = now
            return
        if answer.code not in (
            ControllerResponseCode.SUCCESS,
            ControllerResponseCode.MASTER_STILL_EXIST,
        ):
            self._complain(answer)
            self._wants_election = self.role is SetRole.NONE
            who = GetReplicaInfoRequest(broker_name=self._settings.broker_name)
            self._look = self._ask(ask.address, ControllerRequestCode.GET_REPLICA_INFO, who, now)
            return
        header = decode_header(ElectMasterResponse, answer.ext)
        members = decode_elected(answer.body).members
        self._wants_election = False
        self._take_leader_answer(
            ask, header, SyncStateSet(members, header.sync_state_set_epoch or 0), now
        )

    def _informed(self, ask: AskController, answer: ControllerAnswer, now: float) -> None:
        if answer.code != ControllerResponseCode.SUCCESS:
            self._complain(answer)
            self._is_registered = answer.code != ControllerResponseCode.METADATA_NOT_EXIST
            return
        header = decode_header(GetReplicaInfoResponse, answer.ext)
        is_final = self._doubts_own_lead and ask.sent >= self._uncertain_until
        self._take_leader_answer(ask, header, decode_set(answer.body), now, is_final=is_final)
        if self._doubts_own_lead:
            self._retry_later(now)

    def _altered(self, ask: AskController, answer: ControllerAnswer | None, now: float) -> None:
        if ask is not self._altering:
            return
        self._altering = None
        if answer is not None and answer.code == ControllerResponseCode.SUCCESS:
            self._refused_with = 0
            self._outbox.append(Adopt(decode_set(answer.body)))
            return
        if answer is None:
            self._uncertain_until = now + UNCERTAIN_SECONDS
            return
        if answer.code != self._refused_with:
            self._complain(answer)
        self._refused_with = answer.code
        if answer.code == ControllerResponseCode.NOT_LEADER:
            self.leader = None
        if answer.code in _REFUSALS:
            self._doubts_own_lead = True
        else:
            self._uncertain_until = now + UNCERTAIN_SECONDS
        if self._busy is None:
            self._step_at = now

    def _complain(self, answer: ControllerAnswer) -> None:
        self.log.warn(
            "the controller answers {code}: {remark}",
            code=answer.code,
            remark=answer.remark or "it gives no reason",
        )

    # ------------------------------------------------------------ the role

    def _take_leader_answer(
        self,
        ask: AskController,
        header: _LeaderAnswer,
        members: SyncStateSet,
        now: float,
        *,
        is_final: bool = False,
    ) -> None:
        """
        Take the answer to this broker's own question, which may begin a lease. The next question is
        asked after the usual period.
        """
        self._step_at = now + self._settings.sync_broker_metadata_period / 1000
        news = _LeadershipNews(
            header.master_epoch or 0,
            header.master_broker_id,
            header.master_address,
            members,
            is_final,
        )
        assert self.identity is not None
        is_ours = news.master_id == self.identity.broker_id
        self._learn(news, is_ours, now)
        if news.epoch == self.epoch:
            self.members = news.members.members
        if is_ours and news.epoch == self.epoch and self.role is SetRole.MASTER:
            self._lease.confirmed(ask.address, self._heard_before, now)

    def _learn(self, news: _LeadershipNews, is_ours: bool, now: float) -> None:
        """Take a controller's news of the leadership; older news are ignored."""
        if news.epoch < self.epoch:
            return
        if news.epoch == self.epoch and self.role is not SetRole.NONE:
            self._learn_same_epoch(news, is_ours)
            return
        self.is_standing_back = is_ours and news.epoch <= self._crashed_in
        if self.is_standing_back:
            self._stand_back(news, now)
            return
        if news.master_id is None or news.master_address is None:
            self._orphaned(news, now)
            return
        self.epoch = news.epoch
        self.awaited = ()
        self._wants_election = self._doubts_own_lead = False
        self._altering = None
        self._master_address = news.master_address
        self._lease.reset()
        if is_ours:
            self.role = SetRole.MASTER
            self._outbox.append(Lead(news.epoch, news.members))
            self._beat(now)
        else:
            self.role = SetRole.SLAVE
            self._outbox.append(Follow(news.master_id, news.master_address, news.epoch))

    def _learn_same_epoch(self, news: _LeadershipNews, is_ours: bool) -> None:
        if is_ours and self.role is SetRole.MASTER:
            if news.is_final:
                self._doubts_own_lead = False
            lacks_heartbeat = self._refused_with == ControllerResponseCode.BROKER_NOT_ALIVE
            self._outbox.append(Adopt(news.members, news.is_final, lacks_heartbeat))
            return
        address = news.master_address
        if is_ours or self.role is not SetRole.SLAVE or news.master_id is None:
            return
        if address is not None and address != self._master_address:
            self._master_address = address
            self._outbox.append(Follow(news.master_id, address, news.epoch))

    def _stand_back(self, news: _LeadershipNews, now: float) -> None:
        """
        Wait until the epoch in which this broker crashed as master has ended.

        A crash may have taken bytes from this log that other brokers have. They would take new
        bytes at the same offsets for the same ones, since a handshake compares only epochs and
        offsets. Differs from 5.3.3 on purpose, which goes on in the epoch.
        """
        self._retry_later(now)
        if news.epoch > self.epoch:
            self.epoch = news.epoch
            self.log.warn(
                "this broker was the master of epoch {epoch} when it crashed, and may have lost "
                "what others have: it says nothing until the controllers take it for dead, and "
                "another one, or itself anew, is elected",
                epoch=news.epoch,
            )

    def _orphaned(self, news: _LeadershipNews, now: float) -> None:
        """
        Take note that nobody leads. If this broker was the master, it has been deposed.

        Spec: controller.md, chapter 14, hazard 1.
        """
        self.awaited = news.members.members
        if self.role is SetRole.MASTER:
            self.role = SetRole.NONE
            self._outbox.append(
                StepDown(
                    f"epoch {news.epoch} has no master, and this broker was the master of epoch "
                    f"{self.epoch}"
                )
            )
        self._wants_election = True
        if self._may_stand():
            self._step_at = now
