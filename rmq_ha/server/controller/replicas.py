"""A leading controller's decisions: its answers, and the events that must be in the log for them.

The hazards that comments name are those of chapter 14.

Spec: controller.md, chapters 5, 10 and 14.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rmq_ha.server.controller.broker_sets import BrokerSet, BrokerSets
from rmq_ha.server.controller.codec import encode_elected, encode_replicas, encode_set
from rmq_ha.server.controller.codes import ControllerResponseCode
from rmq_ha.server.controller.election import best_candidate, is_behind
from rmq_ha.server.controller.events import (
    AddressUpdated,
    BrokerDataCleaned,
    BrokerIdApplied,
    Event,
    MasterElected,
    SyncStateSetAltered,
)
from rmq_ha.server.controller.liveness import Heartbeat, Liveness
from rmq_ha.server.controller.messages import (
    ANYONE,
    AlterSyncStateSetRequest,
    AlterSyncStateSetResponse,
    ApplyBrokerIdRequest,
    ApplyBrokerIdResponse,
    CleanBrokerDataRequest,
    ControllerHeader,
    ElectedBody,
    ElectMasterRequest,
    ElectMasterResponse,
    GetNextBrokerIdRequest,
    GetNextBrokerIdResponse,
    GetReplicaInfoResponse,
    NotifyRoleChangedRequest,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    ReplicasInfo,
    SetReplica,
    SyncStateSet,
)

_LAST_ID = (1 << 31) - 2
_LAST_EPOCH = (1 << 31) - 2


class Decision(NamedTuple):
    """
    An answer, and the event that it depends on.

    :ivar event: must be committed and applied before the answer is given; None: nothing changes.
    """

    code: int
    remark: str | None = None
    header: ControllerHeader | None = None
    body: bytes | None = None
    event: Event | None = None


class RoleChangeNotice(NamedTuple):
    """Request 1008 for one broker."""

    address: str
    header: NotifyRoleChangedRequest
    body: bytes


class ReplicasInfoManager:
    """
    Decides over the present tables. The caller has each event applied before it asks again.

    No I/O, and no clock: the time comes with each question, in milliseconds of a clock that nobody
    can set.

    :param is_unclean_allowed: returns whether a master may be elected from outside the set, if no
        member of the set is alive.
    """

    def __init__(
        self, sets: BrokerSets, liveness: Liveness, is_unclean_allowed: Callable[[], bool]
    ) -> None:
        self._sets = sets
        self._liveness = liveness
        self._is_unclean_allowed = is_unclean_allowed

    def address_of(self, name: str, number: int) -> str | None:
        """Return the address that a broker has registered; None: there is no such broker."""
        broker_set = self._sets.get(name)
        known = None if broker_set is None else broker_set.brokers.get(number)
        return None if known is None else known.address

    # ------------------------------------------------------------ ids

    def next_broker_id(self, request: GetNextBrokerIdRequest) -> Decision:
        """Answer 1012 with the next free id; the id is not reserved."""
        broker_set = self._sets.get(request.broker_name)
        header = GetNextBrokerIdResponse(
            cluster_name=request.cluster_name,
            broker_name=request.broker_name,
            next_broker_id=1 if broker_set is None else broker_set.next_id,
        )
        return Decision(ControllerResponseCode.SUCCESS, None, header)

    def apply_broker_id(self, request: ApplyBrokerIdRequest) -> Decision:
        """
        Answer 1013: give an id. The same check code gets it again, in case the first answer was
        lost.
        """
        name, number = request.broker_name, request.applied_broker_id
        header = ApplyBrokerIdResponse(cluster_name=request.cluster_name, broker_name=name)
        refused = self._why_no_id(request)
        if refused is not None:
            return Decision(ControllerResponseCode.BROKER_ID_INVALID, refused, header)
        broker_set = self._sets.get(name)
        if broker_set is not None and number in broker_set.brokers:
            return Decision(ControllerResponseCode.SUCCESS, None, header)
        event = BrokerIdApplied(
            request.cluster_name,
            name,
            number,
            request.register_check_code.partition(";")[0],
            request.register_check_code,
        )
        return Decision(ControllerResponseCode.SUCCESS, None, header, None, event)

    def _why_no_id(self, request: ApplyBrokerIdRequest) -> str | None:
        name, number = request.broker_name, request.applied_broker_id
        broker_set = self._sets.get(name)
        if broker_set is None:
            if number == 1:
                return None
            return (
                f"Broker-set: {name} hasn't been registered in controller, but broker try to "
                f"apply brokerId: {number}"
            )
        if broker_set.cluster_name != request.cluster_name:  # Java mixes up both sets (hazard 27)
            return (
                f"brokerName {name} is one of cluster {broker_set.cluster_name}: a controller "
                f"knows each name once, so give the brokers of {request.cluster_name} another one"
            )
        known = broker_set.brokers.get(number)
        if known is None and 1 <= number <= _LAST_ID:
            return None
        if known is not None and known.check_code == request.register_check_code:
            return None
        return f"Fail to apply brokerId: {number} in broker-set: {name}"

    def register_broker(self, request: RegisterBrokerRequest, now: int) -> Decision:
        """Answer 1003: a broker with an id tells its address, and asks who leads."""
        name, number = request.broker_name, request.broker_id
        header = RegisterBrokerResponse(cluster_name=request.cluster_name, broker_name=name)
        broker_set = self._sets.get(name)
        if broker_set is None:
            return Decision(
                ControllerResponseCode.NEED_TO_BE_REGISTERED,
                f"Broker-set: {name} hasn't been registered in controller",
                header,
            )
        if number not in broker_set.brokers:
            return Decision(
                ControllerResponseCode.NEED_TO_BE_REGISTERED,
                f"BrokerId: {number} hasn't been registered in broker-set: {name}",
                header,
            )
        moved = broker_set.brokers[number].address != request.broker_address
        event = AddressUpdated(name, number, request.broker_address) if moved else None
        master = broker_set.master
        if master is not None and self._liveness.is_alive(name, master, now):
            header = RegisterBrokerResponse(
                cluster_name=request.cluster_name,
                broker_name=name,
                master_broker_id=master,
                master_address=request.broker_address
                if master == number
                else broker_set.master_address,
                master_epoch=broker_set.master_epoch,
                sync_state_set_epoch=broker_set.set_epoch,
            )
        body = encode_set(broker_set.sync_state_set)
        return Decision(ControllerResponseCode.SUCCESS, None, header, body, event)

    # ------------------------------------------------------------ the set

    def alter_sync_state_set(
        self, request: AlterSyncStateSetRequest, proposal: SyncStateSet, now: int
    ) -> Decision:
        """Answer 1001: the master says which brokers are in sync with it."""
        refused = self._why_no_change(request, proposal, now)
        if refused is not None:
            code, reason = refused
            return Decision(code, reason, AlterSyncStateSetResponse())
        broker_set = self._sets.get(request.broker_name)
        assert broker_set is not None
        new = SyncStateSet(proposal.members, broker_set.set_epoch + 1)
        return Decision(
            ControllerResponseCode.SUCCESS,
            None,
            AlterSyncStateSetResponse(new_sync_state_set_epoch=new.epoch),
            encode_set(new),
            SyncStateSetAltered(request.broker_name, proposal.members),
        )

    def shrinks(self, broker_name: str, proposal: SyncStateSet) -> bool:
        """Whether a member of the present set is missing in the proposal."""
        broker_set = self._sets.get(broker_name)
        return broker_set is not None and not set(broker_set.members) <= set(proposal.members)

    def _why_no_change(
        self, request: AlterSyncStateSetRequest, proposal: SyncStateSet, now: int
    ) -> tuple[int, str] | None:
        """
        Return code and reason of a refusal; None: accept. The checks are in Java's order. Spec:
        controller.md, section 5.3.
        """
        name, rejecting = request.broker_name, "Rejecting alter syncStateSet request because the"
        broker_set = self._sets.get(name)
        if broker_set is None:
            return (
                ControllerResponseCode.ALTER_SYNC_STATE_SET_FAILED,
                "Broker metadata is not existed",
            )
        if proposal.members == broker_set.members:
            return (
                ControllerResponseCode.ALTER_SYNC_STATE_SET_FAILED,
                "The newSyncStateSet is equal with oldSyncStateSet, no needed to update "
                "syncStateSet",
            )
        if broker_set.master != request.master_broker_id:
            current = "null" if broker_set.master is None else broker_set.master
            return (
                ControllerResponseCode.INVALID_MASTER,
                f"{rejecting} current leader is:{{{current}}}, not {{{request.master_broker_id}}}",
            )
        if broker_set.master_epoch != request.master_epoch:
            return (
                ControllerResponseCode.FENCED_MASTER_EPOCH,
                f"{rejecting} current master epoch is:{{{broker_set.master_epoch}}}, "
                f"not {{{request.master_epoch}}}",
            )
        if broker_set.set_epoch != proposal.epoch:
            return (
                ControllerResponseCode.FENCED_SYNC_STATE_SET_EPOCH,
                f"{rejecting} current syncStateSet epoch is:{{{broker_set.set_epoch}}}, "
                f"not {{{proposal.epoch}}}",
            )
        for number in proposal.members:
            if number not in broker_set.brokers:
                return (
                    ControllerResponseCode.INVALID_REPLICAS,
                    f"{rejecting} replicas {{{number}}} don't exist",
                )
            # The master has just sent this request. A controller that leads only now may not have
            # heard the other members yet, and a Java master never gets over a refusal (hazard 5).
            if number != broker_set.master and not self._may_live(broker_set, name, number, now):
                return (
                    ControllerResponseCode.BROKER_NOT_ALIVE,
                    f"{rejecting} replicas {{{number}}} don't alive",
                )
        if broker_set.master not in proposal.members:
            return (
                ControllerResponseCode.ALTER_SYNC_STATE_SET_FAILED,
                f"{rejecting} newSyncStateSet don't contains origin leader {{{broker_set.master}}}",
            )
        return None

    # ------------------------------------------------------------ the master

    def elect_master(self, request: ElectMasterRequest, now: int) -> Decision:
        """
        Answer 1002: a broker finds no master, or an operator or this controller wants another one.

        A living master stays, unless another broker is designated. Nobody is elected while it is
        not known whether the master lives. If nobody can be elected, only the loss of the master is
        noted, and only if this controller or an operator asked for no particular broker.
        """
        name, asker = request.broker_name, request.broker_id
        broker_set = self._sets.get(name)
        if broker_set is None or (asker != ANYONE and asker not in broker_set.brokers):
            reason = "Broker hasn't been registered"
            return Decision(
                ControllerResponseCode.NEED_TO_BE_REGISTERED, reason, ElectMasterResponse()
            )
        living = self._living(broker_set, name, now)
        designated = request.designate_elect and asker != ANYONE
        if broker_set.master_epoch == 0 and asker != ANYONE:
            return self._first_election(broker_set, name, asker, living, designated)
        master = broker_set.master
        if master in living and (not designated or asker == master):
            return _still_there(broker_set, name)
        if (
            master is not None
            and master not in living
            and self._may_live(broker_set, name, master, now)
        ):
            return Decision(
                ControllerResponseCode.ELECT_MASTER_FAILED,
                f"it is not known yet whether master {master} is alive: this controller leads only "
                "since a moment ago; ask again",
                ElectMasterResponse(),
            )
        chosen = self._choose_master(broker_set, asker if designated else None, living)
        if chosen is not None:
            return self._election_decision(
                broker_set, name, chosen, broker_set.master_epoch + 1, living
            )
        if asker != ANYONE:
            return Decision(
                ControllerResponseCode.ELECT_MASTER_FAILED,
                "Failed to elect a new master",
                ElectMasterResponse(),
            )
        # In Java each failed election costs an epoch (hazard 18). Here, only the loss of the master
        # becomes an event in the log.
        gone = (
            MasterElected(name, None, broker_set.master_epoch + 1) if master is not None else None
        )
        return Decision(
            ControllerResponseCode.MASTER_NOT_AVAILABLE,
            "Old master has down and failed to elect a new broker master",
            ElectMasterResponse(),
            None,
            gone,
        )

    def _first_election(
        self,
        broker_set: BrokerSet,
        name: str,
        asker: int,
        living: dict[int, Heartbeat],
        designated: bool,
    ) -> Decision:
        """
        Decide the first election of a set: the asking broker wins, as with Java, unless another one
        has more data (hazard 25).

        The epoch begins above all epochs that the brokers know: this controller may have lost its
        data, and brokers accept no epoch that is not above their own (hazard 24).
        """
        own = living.get(asker)
        better = [i for i, beat in living.items() if not designated and is_behind(own, beat)]
        if better and own is None:
            return Decision(
                ControllerResponseCode.ELECT_MASTER_FAILED,
                f"no heartbeat of {asker} has come yet, and others have data; ask again",
                ElectMasterResponse(),
            )
        chosen = best_candidate(better, living) if better else asker
        seen = [beat.epoch for beat in living.values() if 0 <= beat.epoch < _LAST_EPOCH]
        assert chosen is not None
        return self._election_decision(broker_set, name, chosen, max(seen, default=0) + 1, living)

    def _choose_master(
        self, broker_set: BrokerSet, designated: int | None, living: dict[int, Heartbeat]
    ) -> int | None:
        pools: list[Sequence[int]] = [broker_set.members]
        if self._is_unclean_allowed():
            pools.append(tuple(broker_set.brokers))
        for pool in pools:
            chosen = best_candidate([i for i in pool if designated in (None, i)], living)
            if chosen is not None:
                return chosen
        return None

    def _election_decision(
        self,
        broker_set: BrokerSet,
        name: str,
        chosen: int,
        epoch: int,
        living: dict[int, Heartbeat],
    ) -> Decision:
        known = living.get(chosen)
        header = ElectMasterResponse(
            master_broker_id=chosen,
            master_address=broker_set.brokers[chosen].address,
            master_epoch=epoch,
            sync_state_set_epoch=broker_set.set_epoch + 1,
        )
        body = ElectedBody((chosen,), broker_set.addresses, name, broker_set.cluster_name)
        event = MasterElected(name, chosen, epoch, known.silence_ms if known else 0)
        return Decision(ControllerResponseCode.SUCCESS, None, header, encode_elected(body), event)

    def notices(self, broker_name: str, now: int) -> list[RoleChangeNotice]:
        """Return a NOTIFY_BROKER_ROLE_CHANGED (1008) for each living broker of the set, with the
        present state of the set."""
        broker_set = self._sets.get(broker_name)
        if broker_set is None:
            return []
        header = NotifyRoleChangedRequest(
            master_address=broker_set.master_address,
            master_epoch=broker_set.master_epoch,
            sync_state_set_epoch=broker_set.set_epoch,
            master_broker_id=broker_set.master,
        )
        body = encode_set(broker_set.sync_state_set)
        living = self._living(broker_set, broker_name, now)
        return [
            RoleChangeNotice(broker_set.brokers[number].address, header, body)
            for number in sorted(living)
        ]

    def without_master(self, now: int) -> list[str]:
        """
        Return the sets whose master is dead, or that have none although a possible master is alive.

        An election for each of them either changes something, or finds that nobody can be elected.
        """
        names = []
        for name in self._sets.names():
            broker_set = self._sets.get(name)
            if broker_set is None or broker_set.master_epoch == 0:
                continue
            master = broker_set.master
            if master is not None and self._may_live(broker_set, name, master, now):
                continue
            living = self._living(broker_set, name, now)
            if master is not None or self._choose_master(broker_set, None, living) is not None:
                names.append(name)
        return names

    def awaited(self, broker_name: str, now: int) -> list[str]:
        """
        Return the brokers of which one has to be started so that a set has a master again.

        :returns: ids and addresses of those in sync, for people; empty when the set has a master,
            or can elect one.
        """
        broker_set = self._sets.get(broker_name)
        if broker_set is None or broker_set.master is not None:
            return []
        if (
            self._choose_master(broker_set, None, self._living(broker_set, broker_name, now))
            is not None
        ):
            return []
        return [
            f"broker {number} at {broker_set.brokers[number].address}"
            for number in broker_set.members
        ]

    # ------------------------------------------------------------ questions

    def replica_info(self, broker_name: str) -> Decision:
        """
        Answer GET_REPLICA_INFO (1004) with the master and the brokers in sync, even if the master
        is dead.
        """
        broker_set = self._sets.get(broker_name)
        if broker_set is None:
            return Decision(
                ControllerResponseCode.METADATA_NOT_EXIST,
                "Broker metadata is not existed",
                GetReplicaInfoResponse(),
            )
        header = GetReplicaInfoResponse(
            master_broker_id=broker_set.master,
            master_address=broker_set.master_address,
            master_epoch=broker_set.master_epoch,
        )
        return Decision(
            ControllerResponseCode.SUCCESS, None, header, encode_set(broker_set.sync_state_set)
        )

    def sync_state_data(self, names: Sequence[str], now: int) -> Decision:
        """
        Answer 1006: all facts of some sets; unknown sets are left out.

        :param names: names of the sets; if empty, all sets are told, where Java tells none.
        """
        known = {name: self._sets.get(name) for name in names or self._sets.names()}
        table = {
            name: self._info(broker_set, name, now)
            for name, broker_set in known.items()
            if broker_set
        }
        return Decision(ControllerResponseCode.SUCCESS, None, None, encode_replicas(table))

    def _info(self, broker_set: BrokerSet, name: str, now: int) -> ReplicasInfo:
        replicas = [
            SetReplica(name, number, address, self._liveness.is_alive(name, number, now))
            for number, address in broker_set.addresses.items()
        ]
        return ReplicasInfo(
            broker_set.master_epoch,
            broker_set.set_epoch,
            tuple(item for item in replicas if item.broker_id in broker_set.members),
            tuple(item for item in replicas if item.broker_id not in broker_set.members),
            broker_set.master,
            broker_set.master_address,
        )

    # ------------------------------------------------------------ forgetting

    def clean_broker_data(self, request: CleanBrokerDataRequest, now: int) -> Decision:
        """Answer 1011: forget some brokers, or a whole set."""
        name = request.broker_name
        broker_set = self._sets.get(name)
        if broker_set is None:
            return _not_cleaned(f"Broker {name} is not existed,clean broker data failure.")
        text = (request.broker_controller_ids_to_clean or "").strip()
        try:
            numbers = sorted({int(part) for part in text.split(";") if part.strip()})
        except ValueError:
            return _not_cleaned(
                "Please set the option <brokerControllerIdsToClean> according to the format, "
                f"numbers with semicolons between them: {text!r}"
            )
        if not request.is_clean_living_broker:
            living = self._living(broker_set, name, now)
            alive = [number for number in numbers if number in living]
            if alive:
                shown = ", ".join(map(str, alive))
                return _not_cleaned(f"Broker [{name},  {shown}] is still alive, clean up failure")
            if not text and (broker_set.master is not None or living):
                return _not_cleaned(f"Broker {name} is still alive, clean up failure")
        known = tuple(number for number in numbers if number in broker_set.brokers)
        event = BrokerDataCleaned(name, known) if known or not text else None
        return Decision(ControllerResponseCode.SUCCESS, None, None, None, event)

    # ------------------------------------------------------------ living brokers

    def _living(self, broker_set: BrokerSet, name: str, now: int) -> dict[int, Heartbeat]:
        heard = {
            number: self._liveness.last_heartbeat(name, number, now)
            for number in broker_set.brokers
        }
        return {number: beat for number, beat in heard.items() if beat is not None}

    def _may_live(self, broker_set: BrokerSet, name: str, number: int, now: int) -> bool:
        return self._liveness.may_live(name, number, now, broker_set.silence_ms)


def _still_there(broker_set: BrokerSet, name: str) -> Decision:
    """
    Answer 2011 (the old master is still alive), which brokers take for success. It has all fields
    of a success but the group.
    """
    header = ElectMasterResponse(
        master_broker_id=broker_set.master,
        master_address=broker_set.master_address,
        master_epoch=broker_set.master_epoch,
        sync_state_set_epoch=broker_set.set_epoch,
    )
    return Decision(
        ControllerResponseCode.MASTER_STILL_EXIST,
        f"The old master {broker_set.master} is still alive, not need to elect new master for "
        f"broker {name}",
        header,
        encode_elected(ElectedBody(broker_set.members)),
    )


def _not_cleaned(reason: str) -> Decision:
    return Decision(ControllerResponseCode.INVALID_CLEAN_BROKER_METADATA, reason)
