"""PairHandover: the master and a slave of a classic pair exchange their roles while both run.

Messages between the two brokers, in order::

    operator -> master   HAND_OVER_PAIR            "hand over to that slave"
    master   -> slave    TAKE_OVER_PAIR  look      is the slave able to?
                         the master takes no messages from here on, until the slave has all
    master   -> slave    TAKE_OVER_PAIR  take      "your log has to end at this offset"
    slave    -> master   tables are copied; then TAKE_OVER_PAIR confirm
                         the point of no return: the master now takes no message by itself again
    slave                becomes the master, registers, and answers `take`
    master               becomes a slave

If anything fails before the confirmation, both brokers keep their roles. After it, the master asks
the slave (`look`) until that one says whether it leads.
"""

from collections.abc import Callable
from dataclasses import dataclass

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import ProtocolViolation, RemotingError, RequestRejected
from rmq_ha.base.model.broker_identity import MASTER_ID
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.properties_file import PropertiesFile
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.store_flags import Flag
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.broker.outer_api import BrokerOuterAPI
from rmq_ha.server.broker.processors import fields
from rmq_ha.server.broker.processors.fields import Answer, Handler
from rmq_ha.server.broker.role import RoleParts, RoleSteps
from rmq_ha.server.broker.standing import Standing
from rmq_ha.server.broker.tables.promotions import Promotions
from rmq_ha.server.store.journal import PairReplication

LOOK_S = 0.02
CATCH_UP_S = 3.0
"""How long the other broker may take to have all messages, in seconds. No message is taken then."""
TAKE_MS = 6000
"""How long a slave may take to take over, in ms."""
REGISTER_S = 1.0
"""How long the old master waits for the registration of the new one, in seconds."""
FOLLOW_S = 1.0
"""How long forwarded requests wait until the old master follows the new one, in seconds."""
ASK_S = 0.5
"""Pause between the questions of a master that does not know the outcome, in seconds."""
TELL_S = 10.0

_TAKES = "takes"
_REFUSAL = "refusal"


@dataclass(slots=True)
class _RunningHandover:
    """The hand-over that this master began: to which broker, and whether it is confirmed."""

    name: str
    to: str
    is_confirmed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverParts:
    """
    The parts of a broker that a hand-over changes or asks.

    :ivar pair: the replication of the pair; None: another kind of journal, which elects masters.
    :ivar api: asks the other broker of the pair.
    :ivar boot_ms: time of this broker's start, ms since the epoch; it makes names unique.
    """

    role: RoleParts
    pair: PairReplication | None
    api: BrokerOuterAPI
    standing: Standing
    promotions: Promotions
    file: PropertiesFile
    boot_ms: int


class PairHandover:
    """
    Exchanges the roles of this broker and of another one of its pair.

    Differs from RocketMQ on purpose: 4.9 has to stop one broker and restart the other one.
    """

    log = Logger()

    def __init__(
        self, clock: IReactorTime, configuration: BrokerConfiguration, used: HandoverParts
    ) -> None:
        self._clock = clock
        self._configuration = configuration
        self._parts = used.role
        self._pair = used.pair
        self._api = used.api
        self._standing = used.standing
        self._promotions = used.promotions
        self._file = used.file
        self._boot_ms = used.boot_ms
        self._steps = RoleSteps(configuration, used.role)
        self._count = 0
        self._given: _RunningHandover | None = None
        self._taken = ""
        self._is_stopped = False
        # A broker that was a slave at its start does this already (`make_role_keeper`).
        self._is_told_of_arrivals = configuration.store.broker_role is BrokerRole.SLAVE

    def stop(self) -> None:
        """Begin no more hand-overs, and ask no more for the outcome of the last one."""
        self._is_stopped = True

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.HAND_OVER_PAIR: self.hand_over,
            RequestCode.TAKE_OVER_PAIR: self.take_over,
        }

    # ------------------------------------------------------------ the master

    def hand_over(self, channel: Channel, request: RemotingCommand) -> Answer:
        """
        Answer HAND_OVER_PAIR: hand over to the slave whose address is in the field `to`.

        :raises RequestRejected: this broker keeps its role, for the reason in the remark.
        """
        to = fields.header(request).get("to") or ""

        async def answer() -> RemotingCommand | None:
            if why := self._why_not_to_give():
                raise _refusal(why)
            await self._give(to)
            return request.response(ext={"master": to})

        return Deferred.fromCoroutine(answer())

    def _why_not_to_give(self) -> str:
        if why := self._why_not():
            return why
        if self._configuration.store.broker_role is BrokerRole.SLAVE:
            return f"{self._address} is a slave; only the master hands over"
        return self._standing.why_not_master()

    def _why_not(self) -> str:
        """Return why this broker cannot change its role now; empty if it can."""
        if self._pair is None:
            return "the master of this broker is elected: rmqha-admin handover orders an election"
        if self._file.path is None:
            return (
                f"{self._address} was started without a properties file, so its next start would"
                " give it its old role"
            )
        if self._given is not None or self._taken:
            return f"{self._address} is changing its role already"
        return "" if not self._is_stopped else f"{self._address} stops"

    @property
    def _address(self) -> str:
        return self._parts.registration.identity.address

    async def _give(self, to: str) -> None:
        seen = await self._ask(to, {"step": "look"})
        if refusal := seen.get(_REFUSAL):
            raise _refusal(refusal)
        self._count += 1
        given = self._given = _RunningHandover(f"{self._boot_ms}-{self._count}", to)
        self._refuse_puts(to)
        try:
            await self._wait_until(self._other_has_all, f"{to} did not get all messages")
            await self._order(given)
        except Exception:
            leads = given.is_confirmed and await self._took_over(given)
            if not leads:
                self._resume()
                raise
        await self._become_slave(int(seen["brokerId"]))
        await self._forward(to)

    def _refuse_puts(self, to: str) -> None:
        text = f"this broker hands over to {to}; send again"
        self._standing.leaves_for = to
        self._parts.store.flags.hoist(Flag.HANDING_OVER, text)
        self._parts.forwarding.wait()

    def _resume(self) -> None:
        self._given = None
        self._standing.leaves_for = ""
        self._parts.store.flags.lower(Flag.HANDING_OVER)
        self._parts.forwarding.lead()
        self.log.warn("the hand-over failed: this broker stays the master")

    def _other_has_all(self) -> bool:
        assert self._pair is not None
        log, dispatcher = self._parts.store.log, self._parts.store.dispatcher
        return self._pair.replicated_offset() >= log.max_offset and dispatcher.bytes_behind <= 0

    async def _order(self, given: _RunningHandover) -> None:
        """
        Have the slave take over.

        :raises RequestRejected: it does not, or the answer is missing.
        """
        order = {
            "step": "take",
            "name": given.name,
            "master": self._address,
            "end": str(self._parts.store.log.max_offset),
            "role": self._configuration.store.broker_role.value,
        }
        answer = await self._ask(given.to, order, TAKE_MS)
        if refusal := answer.get(_REFUSAL):
            raise _refusal(refusal)

    async def _took_over(self, given: _RunningHandover) -> bool:
        """
        Ask the slave, which had the confirmation, until it says whether it is the master.

        :returns: whether it is; this broker takes no message before the answer.
        :raises RequestRejected: this broker stops, and does not know.
        """
        told_at = self._clock.seconds() + TELL_S
        while not self._is_stopped:
            try:
                seen = await self._ask(given.to, {"step": "look"})
            except RequestRejected as problem:
                if self._clock.seconds() >= told_at:
                    told_at += TELL_S
                    self.log.error(
                        "{peer} may be the master since this broker handed over, and does not "
                        "answer: this broker takes no messages. Start {peer}, or end it for good "
                        "and restart this broker: {problem}",
                        peer=given.to,
                        problem=problem.remark,
                    )
            else:
                if seen.get("leads") == "true":
                    return True
                if seen.get(_TAKES) != given.name:
                    return False
            await deferLater(self._clock, ASK_S, lambda: None)
        raise _refusal(f"{self._address} stops, and does not know whether {given.to} is the master")

    async def _become_slave(self, broker_id: int) -> None:
        assert self._pair is not None
        assert self._given is not None
        self._configuration.store.broker_role = BrokerRole.SLAVE
        self._pair.follow()
        # The count of the new master is copied from it later. Until then it is the larger one, so
        # that the new master, which may ask for it now, does not stand aside.
        await self._promotions.follow()
        await self._write(BrokerRole.SLAVE, broker_id)
        await self._steps.change_to_slave(broker_id)
        if not self._is_told_of_arrivals:
            self._is_told_of_arrivals = True
            self._parts.store.on_arrival(self._parts.slave_synchronize.on_arrival)
        self._standing.leaves_for = ""
        self._parts.store.flags.lower(Flag.HANDING_OVER)
        self._given = None
        self._parts.registration.watch_for_master(True)
        await self._parts.transaction_checks.stop()

    async def _forward(self, to: str) -> None:
        """
        Pass clients' requests on to the new master. They wait until this broker follows it, so that
        a SYNC_MASTER has a slave for the first of them.
        """
        assert self._pair is not None
        deadline = self._clock.seconds() + FOLLOW_S
        while not self._pair.is_following and self._clock.seconds() < deadline:
            await deferLater(self._clock, LOOK_S, lambda: None)
        self._parts.forwarding.follow(to)

    # ------------------------------------------------------------ the slave

    def take_over(self, channel: Channel, request: RemotingCommand) -> Answer:
        """
        Answer TAKE_OVER_PAIR, a question of the other broker of the pair; see this module.

        The answer has the field `refusal` if this broker does not do what is asked.
        """
        asked = fields.header(request)
        step = asked.get("step") or ""

        async def answer() -> RemotingCommand | None:
            if step == "look":
                return request.response(ext=self._look())
            if step == "confirm":
                return request.response(ext=self._confirm(asked.get("name") or ""))
            if step == "take":
                return request.response(ext=await self._take(dict(asked)))
            raise RequestRejected(
                ResponseCode.INVALID_PARAMETER, f"TAKE_OVER_PAIR has no step {step!r}"
            )

        return Deferred.fromCoroutine(answer())

    def _look(self) -> dict[str, str]:
        store, broker = self._configuration.store, self._configuration.broker
        leads = store.broker_role is not BrokerRole.SLAVE and not self._taken
        told = {"leads": str(leads).lower(), "brokerId": str(broker.broker_id)}
        if self._taken:
            told[_TAKES] = self._taken
        if refusal := self._why_not_to_take():
            told[_REFUSAL] = refusal
        return told

    def _why_not_to_take(self) -> str:
        if why := self._why_not():
            return why
        if self._configuration.store.broker_role is not BrokerRole.SLAVE:
            return f"{self._address} is a master"
        assert self._pair is not None
        if not self._pair.is_following:
            return f"{self._address} does not follow its master now"
        if not self._parts.store.flags.is_writable:
            return (
                f"{self._address} takes no messages: {'; '.join(self._parts.store.flags.reasons)}"
            )
        return ""

    def _confirm(self, name: str) -> dict[str, str]:
        """Confirm that the hand-over `name` goes on; from then on only the slave can end it."""
        if self._given is None or self._given.name != name:
            return {_REFUSAL: f"{self._address} does not hand over any more"}
        self._given.is_confirmed = True
        return {}

    async def _take(self, asked: dict[str, str]) -> dict[str, str]:
        if why := self._why_not_to_take():
            return {_REFUSAL: why}
        self._taken = asked.get("name", "")
        try:
            await self._become_master(
                asked.get("master", ""), int(asked.get("end", "-1")), BrokerRole(asked.get("role"))
            )
        except RequestRejected as rejected:
            return {_REFUSAL: rejected.remark}
        except ValueError as error:
            return {_REFUSAL: str(error)}
        finally:
            self._taken = ""
        return {"leads": "true"}

    async def _become_master(self, master: str, end: int, role: BrokerRole) -> None:
        """
        Copy the tables, have the hand-over confirmed, and lead.

        :raises RequestRejected: this broker stays a slave.
        """
        assert self._pair is not None
        parts, pair = self._parts, self._pair
        log, broker_id = parts.store.log, self._configuration.broker.broker_id
        if not await parts.slave_synchronize.fetch_all(master):
            raise _refusal(f"{self._address} could not copy all tables of {master}")
        await parts.delay_offsets.persist_if_dirty()
        await self._wait_until(
            lambda: log.max_offset == end and parts.store.dispatcher.bytes_behind <= 0,
            f"the log of {self._address} does not end at {end}",
        )
        confirmed = await self._ask(master, {"step": "confirm", "name": self._taken})
        if refusal := confirmed.get(_REFUSAL):
            raise _refusal(refusal)
        await pair.lead()
        try:
            if log.max_offset != end:
                raise _refusal(f"the log of {self._address} grew behind {end}")
            await self._promotions.lead()
            registered = self._steps.change_to_master(role, lambda: None, has_all=True)
        except Exception:
            await self._promotions.follow()
            self._configuration.store.broker_role = BrokerRole.SLAVE
            pair.follow()
            await self._steps.change_to_slave(broker_id)
            raise
        # A SYNC_MASTER without a slave answers SLAVE_NOT_AVAILABLE: the first requests wait for it.
        parts.forwarding.lead(lambda: role is BrokerRole.ASYNC_MASTER or self._other_has_all())
        parts.registration.watch_for_master(False)
        await self._write(role, MASTER_ID)
        self.log.info("this broker is the master now: {peer} handed over to it", peer=master)
        # The old master registers with this broker's old id, so this broker comes first.
        told: Deferred[None] = Deferred()
        registered.chainDeferred(told)
        await told.addTimeout(REGISTER_S, self._clock).addErrback(lambda _: None)

    # ------------------------------------------------------------ both

    async def _write(self, role: BrokerRole, broker_id: int) -> None:
        changes = {"brokerRole": role.value, "brokerId": str(broker_id)}
        if self._configuration.store.ha_master_address:
            self._configuration.store.ha_master_address = None
            changes["haMasterAddress"] = ""
        if not await self._file.change(changes):
            self.log.error(
                "write brokerRole={role} and brokerId={broker_id} into {path} by hand: the next "
                "start gives this broker its old role otherwise",
                role=role.value,
                broker_id=broker_id,
                path=self._file.path,
            )

    async def _ask(
        self, address: str, ext: dict[str, str], timeout_ms: int = 3000
    ) -> dict[str, str]:
        """
        Ask the other broker of the pair.

        :raises RequestRejected: it does not answer, or is a broker of Java or an older one.
        """
        try:
            return await self._api.pair_step(address, ext, timeout_ms)
        except (RemotingError, ProtocolViolation) as error:
            raise _refusal(f"{address} cannot take part in a hand-over: {error}") from error

    async def _wait_until(self, is_done: Callable[[], bool], problem: str) -> None:
        """
        Wait until something is done.

        :raises RequestRejected: it is not done in time.
        """
        deadline = self._clock.seconds() + CATCH_UP_S
        while not is_done():
            if self._clock.seconds() >= deadline:
                raise _refusal(f"{problem} within {CATCH_UP_S:g} s")
            await deferLater(self._clock, LOOK_S, lambda: None)


def _refusal(why: str) -> RequestRejected:
    return RequestRejected(ResponseCode.SYSTEM_ERROR, why)
