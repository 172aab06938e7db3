"""Registration: tells name servers about this broker, and learns from them who its master is.

Spec: remoting.md, sections 9.2 and 9.3; ha.md, section 9.
"""

from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace
from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from rmq_ha.base.config.broker import BrokerConfig
from rmq_ha.base.errors import ProtocolViolation, RemotingError
from rmq_ha.base.model.broker_identity import MASTER_ID, BrokerIdentity
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.timing.periodic import Periodic
from rmq_ha.base.wire.route_bodies import RegisterBrokerBody
from rmq_ha.server.broker.outer_api import BrokerOuterAPI, RegisterBody, RegisterBrokerResult
from rmq_ha.server.broker.succession import Succession
from rmq_ha.server.broker.tables.topics import PERM_RW, TopicConfigManager

T = TypeVar("T")

FIRST_SECONDS = 10.0
MIN_PERIOD_MS, MAX_PERIOD_MS = 10_000, 60_000
UNREGISTER_TIMEOUT_MS = 3000
NEW_TOPIC_SECONDS = 1.0
AGAIN_SECONDS = 2.0
LONGEST_ALONE_SECONDS = 10.0
"""
Longest pause between the rounds of a slave that knows no master, seconds. Such a slave replicates
nothing, which is worse than a broker that clients do not find.
"""
ALONE_ROUNDS = 3
LEASE_LOOK_SECONDS = 0.2
MASTER_LOOK_SECONDS = 2.0
MAX_CHANGES = 1000


class MasterCallbacks(NamedTuple):
    """
    The functions to call with the master's addresses that name servers answer.

    :ivar ha_address: called with the address of the master's replication port, by a slave's
        registrations.
    :ivar master_address: called with the master's address, or None if no name server knows one,
        after every round that any name server answered.
    """

    ha_address: Callable[[str], None]
    master_address: Callable[[str | None], None]


class Registration:
    """
    Registers with all name servers: at start, periodically, and when a topic is created.

    Before `start` no name server is told anything. A broker that cannot serve would replace the
    address of the one that does. And the end of its connection would remove that broker from the
    routes.

    A registration with some of the topics goes only to a name server that has all others. A name
    server ignores the body of a registration whose data version it has seen. So a name server that
    missed an earlier change, or restarted, would otherwise never get the missing topics.

    If a name server did not answer, or none knows a slave's master, this broker is not found by
    some clients, or has no replica. So the next round does not wait for the period: it comes after
    2 s, and later rounds after longer and longer pauses.

    In controller mode a lease says how long no other broker can be elected. A master registers as
    the master only while its lease is valid. When the lease ends, it registers at once with its id
    as a slave. Each registration has the epoch.

    :param succession: looks for another master of this broker's name before each full round.
    :param callbacks: called with the master's addresses that name servers answer.
    :ivar identity: this broker's identity; it may change at run time.
    :ivar rounds: number of finished rounds, including those without any answer.
    :ivar failures: number of failed calls to name servers.
    """

    log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        config: BrokerConfig,
        identity: BrokerIdentity,
        topics: TopicConfigManager,
        api: BrokerOuterAPI,
        succession: Succession,
        callbacks: MasterCallbacks,
    ) -> None:
        self.identity = identity
        self.rounds = 0
        self.failures = 0
        self._clock = clock
        self._config = config
        self._topics = topics
        self._api = api
        self._standing = succession.standing
        self._succession = succession
        self._told_id: int | None = None  # the brokerId of the last round that began
        self._callbacks = callbacks
        self._unreachable: set[str] = set()
        self._is_started = self._is_stopped = False
        self._changes: dict[int, TopicConfig] = {}  # topics by the version counter of their change
        self._waiting: list[Deferred[None]] = []  # callers; each waits for the next round
        self._is_telling = False
        self._again: IDelayedCall | None = None
        self._pause_s = AGAIN_SECONDS
        self._rounds_alone = 0
        period_ms = min(max(config.register_name_server_period, MIN_PERIOD_MS), MAX_PERIOD_MS)
        self._longest_pause_s = period_ms / 1000
        self._periodic = Periodic(
            clock, "registration", self._in_time, period_ms / 1000, FIRST_SECONDS
        )
        self._lease = Periodic(clock, "lease", self._look_at_lease, LEASE_LOOK_SECONDS)
        self._master: str | None = None
        self._new_master = Periodic(
            clock,
            "new master",
            lambda: Deferred.fromCoroutine(self._look_for_master()),
            MASTER_LOOK_SECONDS,
        )

    @property
    def name_servers(self) -> list[str]:
        """Addresses from `namesrvAddr`."""
        text = self._config.namesrv_addr or ""
        return list(dict.fromkeys(item.strip() for item in text.split(";") if item.strip()))

    @property
    def _targets(self) -> list[str]:
        """
        The name servers to register at: none before `start`, while this broker has no role yet, or
        after another broker took its place.
        """
        if not self._is_started or self.identity.broker_id < 0 or self._standing.successor:
            return []
        return self.name_servers

    def start(self) -> "Deferred[None]":
        """
        Register with all name servers, and then periodically; call it when all ports listen.

        :returns: fires when every name server answered, failed or timed out; never fails.
        """
        self._is_started = True
        self._periodic.start()
        if self._standing.has_leases:
            self._lease.start()
        elif not self._standing.is_elected and self.identity.broker_id > MASTER_ID:
            self._new_master.start()
        return Deferred.fromCoroutine(self._register_all())

    def watch_for_master(self, is_wanted: bool) -> None:
        """
        Ask name servers every few seconds for another master, while this slave follows none; or
        stop asking. For a broker of a classic pair whose role changes while it runs.
        """
        if is_wanted and not self._is_stopped:
            self._new_master.start()
        else:
            self._new_master.stop()

    def stop(self) -> "Deferred[None]":
        """
        Register no more, and unregister at every name server.

        A round that is under way is not waited for: its requests were sent before.

        :returns: fires after 3 s at the latest; never fails.
        """
        self._is_stopped = True
        self._periodic.stop()
        self._lease.stop()
        self._new_master.stop()
        if self._again is not None:
            self._again.cancel()
            self._again = None
        return Deferred.fromCoroutine(self._stop())

    def register_all(self) -> "Deferred[None]":
        """
        Register all topics with every name server now, even if a name server does not ask for it.

        :returns: fires when every name server answered, failed or timed out; never fails.
        """
        return Deferred.fromCoroutine(self._register_all())

    def register_new_topic(self, config: TopicConfig) -> "Deferred[None]":
        """
        Register a topic that a client's request created, as the client will ask for its route.

        A slave registers nothing: its master decides about topics.

        :returns: see `register_topic`, but fires after a second in any case, as the client waits.
        """
        if self.identity.broker_id != MASTER_ID:
            return succeed(None)
        told = self.register_topic(config)
        return told.addTimeout(NEW_TOPIC_SECONDS, self._clock).addErrback(lambda _: None)

    def register_topic(self, config: TopicConfig) -> "Deferred[None]":
        """
        Register one changed topic before its request is answered; call it in the turn of the
        change.

        Changes that come during a round share the next round. A name server that did not answer the
        last time is not waited for: it gets all topics when it is asked again.

        :returns: see `register_all`.
        """
        self._changes[self._topics.data_version.counter] = config
        if len(self._changes) > MAX_CHANGES:
            del self._changes[next(iter(self._changes))]
        done: Deferred[None] = Deferred()
        self._waiting.append(done)
        if not self._is_telling:
            self._tell_changes()
        return done

    def _tell_changes(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._is_telling = True
        Deferred.fromCoroutine(self._register_changes()).addBoth(self._changes_registered, waiting)

    def _changes_registered(self, _: object, waiting: "list[Deferred[None]]") -> None:
        self._is_telling = False
        if self._waiting:
            self._tell_changes()
        for done in waiting:
            done.callback(None)

    async def _stop(self) -> None:
        await self._call_all(
            self._targets,
            lambda name_server: self._api.unregister(
                name_server, self._presented_identity, UNREGISTER_TIMEOUT_MS
            ),
        )

    def _in_time(self) -> "Deferred[None]":
        return Deferred.fromCoroutine(self._round())

    async def _round(self) -> None:
        if self._standing.successor:
            await self._ask_versions(self.name_servers)  # they learn that it stands aside
            return
        if self._config.force_register or await self._is_wanted():
            await self._register_all()

    async def _is_wanted(self) -> bool:
        """Return whether any name server wants a registration, or did not answer."""
        names = self._targets
        answers = await self._ask_versions(names)
        return len(answers) < len(names) or any(changed for changed, _ in answers)

    async def _ask_versions(self, name_servers: list[str]) -> list[tuple[bool, DataVersion | None]]:
        version = self._version
        return await self._call_all(
            name_servers,
            lambda name_server: self._api.known_version(
                name_server, self._presented_identity, version, self._timeout_ms
            ),
        )

    async def _register_all(self) -> None:
        await self._succession.look(self._targets)
        body = self._body(self._topics.table.values())
        await self._register(self._targets, lambda name_server: self._send(name_server, body))

    async def _register_changes(self) -> None:
        async def register(name_server: str) -> RegisterBrokerResult:
            _, known = await self._api.known_version(
                name_server, self._presented_identity, self._version, self._timeout_ms
            )
            return await self._send(name_server, self._body(self._changed_since(known)))

        targets = [] if self._is_stopped else self._targets
        reachable = [item for item in targets if item not in self._unreachable]
        await self._register(reachable, register)

    def _changed_since(self, known: DataVersion | None) -> Iterable[TopicConfig]:
        """
        Return the topics that changed since a version that a name server knows; return all topics
        if one of these changes is not remembered any more.
        """
        present = self._topics.data_version.counter
        if known is not None and 0 < present - known.counter <= len(self._changes):
            missing = [self._changes.get(count) for count in range(known.counter + 1, present + 1)]
            changed = [config for config in missing if config is not None]
            if len(changed) == len(missing):
                return changed
        return self._topics.table.values()

    async def _send(self, name_server: str, body: RegisterBody) -> RegisterBrokerResult:
        if self._is_stopped:
            raise RemotingError("registration has ended")
        identity = self._presented_identity
        overruled = self._succession.overruled
        result = await self._register_at(name_server, body, overruled.pop(name_server, ""))
        if result.holder:
            await self._succession.refused(name_server, result.holder)
            if name_server in overruled and name_server in self._targets:
                result = await self._register_at(name_server, body, overruled.pop(name_server))
        if identity.broker_id == MASTER_ID and self._presented_identity.broker_id != MASTER_ID:
            self._told_id = None  # the name server may keep the old id: register again
        return result

    async def _register_at(
        self, name_server: str, body: RegisterBody, takes_over: str
    ) -> RegisterBrokerResult:
        return await self._api.register(
            name_server, self._presented_identity, body, self._timeout_ms, takes_over
        )

    async def _register(
        self,
        name_servers: list[str],
        register: Callable[[str], Coroutine[Any, Any, RegisterBrokerResult]],
    ) -> None:
        """
        Run one round: register at each name server, and learn from an answer who the master is. A
        slave prefers an answer that names a master. Set the time of the next round.

        :param register: registers at one name server, and returns the answer.
        """
        self._told_id = self._presented_identity.broker_id
        answers = await self._call_all(name_servers, register)
        self.rounds += 1
        named = next((item for item in answers if item.master_address), None)
        if answers:
            self._learn(named or answers[0])
        is_alone = self.identity.broker_id > 0 and named is None
        self._tell_alone(is_alone and bool(answers))
        longest_s = LONGEST_ALONE_SECONDS if is_alone else self._longest_pause_s
        targets = self._targets
        is_wanted = bool(targets) and (is_alone or len(answers) < len(targets))
        self._look_again(longest_s, is_wanted=is_wanted)

    def _tell_alone(self, is_alone: bool) -> None:
        """Warn of a missing master, but not at the first round: pairs may start in any order."""
        self._rounds_alone = self._rounds_alone + 1 if is_alone else 0
        if self._rounds_alone == ALONE_ROUNDS:
            self.log.warn(
                "no name server knows a master named {name}: this slave copies no tables, and no "
                "messages unless haMasterAddress is set, until one with this brokerName and "
                "brokerId 0 registers there",
                name=self.identity.broker_name,
            )

    def _look_again(self, longest_s: float, *, is_wanted: bool) -> None:
        if self._is_stopped or not is_wanted:
            self._pause_s = AGAIN_SECONDS
            if self._again is not None:
                self._again.cancel()
                self._again = None
        elif self._again is None:  # even if many topics are created meanwhile
            self._again = self._clock.callLater(self._pause_s, self._on_again)
            self._pause_s = min(self._pause_s * 2, longest_s)

    def _on_again(self) -> None:
        self._again = None
        self.register_all()

    async def _look_for_master(self) -> None:
        """
        Ask who the master is now, if this slave follows none: another slave may have been promoted.

        Register only if the master changed, as a registration carries all topics.
        """
        if not self._standing.lacks_master:
            return
        named: set[str | None] = set()
        for name_server in self._targets:
            with suppress(RemotingError, ProtocolViolation):  # a registration reports such errors
                named.add(await self._api.master_of(name_server, self.identity.broker_name))
        if named - {None, self._master, self.identity.address}:
            await self._register_all()

    def _learn(self, result: RegisterBrokerResult) -> None:
        self._master = result.master_address
        if result.ha_server_address:
            self._callbacks.ha_address(result.ha_server_address)
        self._callbacks.master_address(result.master_address)
        if result.order_topics is not None:
            self._topics.update_order(result.order_topics)

    async def _call_all(
        self, name_servers: list[str], call: Callable[[str], Coroutine[Any, Any, T]]
    ) -> list[T]:
        """
        Call name servers at the same time, and log failures.

        :returns: the answers in the order in which they came.
        """
        answers: list[T] = []

        async def note_answer(name_server: str) -> None:
            try:
                answers.append(await call(name_server))
            except Exception as error:
                self._failed(name_server, error)
            else:
                if name_server in self._unreachable:
                    self._unreachable.discard(name_server)
                    self.log.info("name server {peer} answers again", peer=name_server)

        await DeferredList([Deferred.fromCoroutine(note_answer(item)) for item in name_servers])
        return answers

    def _failed(self, name_server: str, error: Exception) -> None:
        """Log a failure once in an outage, and not in every period."""
        self.failures += 1
        if self._is_stopped:
            return
        if name_server not in self._unreachable:
            self._unreachable.add(name_server)
            self.log.warn(
                "name server {peer}: {error}; clients that use only this one do not find this "
                "broker until it answers again",
                peer=name_server,
                error=error,
            )

    @property
    def _presented_identity(self) -> BrokerIdentity:
        return self._standing.presented(self.identity)

    @property
    def _version(self) -> DataVersion:
        return replace(self._topics.data_version, state_version=self._standing.epoch)

    def _look_at_lease(self) -> None:
        """
        Register at once if the lease ended or began since the last registration, so that clients
        find this broker in its present role.
        """
        if self._targets and self._presented_identity.broker_id != self._told_id:
            self.register_all()

    def _body(self, topics: Iterable[TopicConfig]) -> RegisterBody:
        """
        Return the body of a registration with these topics.

        If `brokerPermission` forbids reading or writing, it replaces the permission of each topic.
        """
        perm = self._config.broker_permission
        if perm & PERM_RW != PERM_RW:
            topics = [replace(config, perm=perm) for config in topics]
        table = {config.topic_name: config for config in topics}
        compressed = self._config.compressed_register
        body = RegisterBrokerBody(self._version, table)
        has_all = len(table) == len(self._topics.table)
        return RegisterBody(body.encode(compressed=compressed), compressed, has_all)

    @property
    def _timeout_ms(self) -> int:
        return self._config.register_broker_timeout_mills
