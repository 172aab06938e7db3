"""A whole controller, with its port, its group and its watch over the brokers.

Spec: controller.md, chapter 10.
"""

from collections.abc import Mapping
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionRefusedError
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmq_ha.base.config.controller import ControllerConfig
from rmq_ha.base.config.netty import NettyClientConfig, NettyServerConfig
from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.host_port import parse_host_port
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.remoting.dispatcher import RequestDispatcher
from rmq_ha.base.remoting.server import RemotingServer
from rmq_ha.base.seams import Host
from rmq_ha.base.timing.periodic import Periodic
from rmq_ha.base.timing.timer import next_turn
from rmq_ha.base.tls.reload import TlsReload
from rmq_ha.base.tls.server import ServerTls
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.ext_fields import ext_fields
from rmq_ha.server.controller.access import ControllerAccess
from rmq_ha.server.controller.broker_sets import BrokerSets
from rmq_ha.server.controller.codes import ControllerRequestCode
from rmq_ha.server.controller.events import Event, MasterElected, decode_event, event_text
from rmq_ha.server.controller.group import ControllerGroup
from rmq_ha.server.controller.liveness import Key, Liveness
from rmq_ha.server.controller.messages import ElectMasterRequest
from rmq_ha.server.controller.protocol import ControllerRequests, knock
from rmq_ha.server.controller.replicas import ReplicasInfoManager, RoleChangeNotice
from rmq_ha.server.controller.settings import ControllerSettings, group_settings

_SCAN_FIRST_S = 2.0
_KNOCK_S = 1.0
_KNOCK_AGAIN_S = 0.5
_ASK_AGAIN_S = 1.0
_REFUSALS_OF_THE_DEAD = 2


class ControllerService:
    """
    One controller of a group.

    :param tls: the `tls.*` keys; None: no TLS.
    :ivar sets: the tables that are the same at all controllers.
    :ivar settings: the configuration that updateControllerConfig changes. A server that runs this
        controller with one file for both may replace `settings.file`.
    :ivar elections: number of masters that were elected while this controller led.
    """

    log = Logger()

    def __init__(
        self,
        host: Host,
        config: ControllerConfig,
        server_config: NettyServerConfig,
        tls: Mapping[str, str] | None = None,
    ) -> None:
        self._host = host
        self._config = config
        settings = group_settings(config)
        address = settings.peers[settings.self_id]
        self.port = parse_host_port(address).port
        self.sets, self.liveness = BrokerSets(), Liveness()
        self.elections = 0
        self._is_listening = False
        self._knocking: dict[Key, Channel] = {}  # to its connection that was lost last
        self._client = RemotingClient(host, NettyClientConfig(), tls)
        self.group = ControllerGroup(
            host,
            settings,
            f"{config.controller_store_path}/dledger-{settings.self_id}",
            config.mapped_file_size,
            self._client,
            self._apply,
            self._led,
        )
        self.manager = ReplicasInfoManager(
            self.sets, self.liveness, lambda: config.enable_elect_unclean_master
        )
        self.settings = ControllerSettings(host.disk, host.worker, config)
        self._requests = ControllerRequests(
            host,
            self.group,
            self.manager,
            self.liveness,
            self.settings,
            self._decided,
            self._lost,
        )
        self.access = ControllerAccess(
            host,
            config,
            self.sets,
            self.liveness,
            settings.peers.values(),
            lambda: self.group.leads,
        )
        dispatcher = RequestDispatcher([self.access])
        dispatcher.routes.update(self._requests.routes())
        dispatcher.routes.update(self.group.routes())
        rules = None if tls is None else ServerTls(tls, host.disk.read_bytes, host.now_ms)
        if rules is not None and self.access.administrators and config.acl_requires_tls:
            rules.must_be_possible("aclRequiresTls=true")
        self.tls = TlsReload(host, [] if rules is None else [rules])
        self._server = RemotingServer(host, server_config, dispatcher, rules)
        self._scans = [
            Periodic(
                host.clock,
                # In the next turn: heartbeats that arrived while this process was busy are read
                # before brokers are judged by their age.
                "broker expiry",
                lambda: next_turn(host.clock).addCallback(self._expire),
                config.scan_not_active_broker_interval / 1000,
                _SCAN_FIRST_S,
            ),
            Periodic(
                host.clock,
                "search for sets without a master",
                lambda: next_turn(host.clock).addCallback(self._elect_where_needed),
                config.scan_inactive_master_interval / 1000,
            ),
        ]

    # ------------------------------------------------------------ beginning and end

    def start(self) -> "Deferred[None]":
        """
        Read the log, listen, and take part in the group.

        :returns: fires when others can connect; fails with `StoreError` when the log cannot be
            read, with `CannotListenError` when the port is taken.
        """
        return Deferred.fromCoroutine(self._start())

    def stop(self) -> "Deferred[None]":
        """Close everything; fires when nothing is left to write."""
        return Deferred.fromCoroutine(self._stop())

    async def _start(self) -> None:
        self.group.start()
        await self._server.listen(self.port, self._config.bind_address)
        self._is_listening = True
        for scan in self._scans:
            scan.start()
        self.tls.start()
        if self.access.administrators is not None:
            self.access.administrators.start()
        self.log.info("controller listens on port {port}", port=self.port)

    async def _stop(self) -> None:
        self._is_listening = False
        for scan in self._scans:
            await scan.stop()
        await self.tls.stop()
        if self.access.administrators is not None:
            await self.access.administrators.stop()
        await self.group.stop()
        await self._server.stop()
        await self._client.stop()
        await self.settings.file.written()

    # ------------------------------------------------------------ state

    def state(self) -> tuple[bool, str]:
        """
        Return whether brokers can be served, by this controller or the leader that it names; and
        the reason.
        """
        group, settings = self.group, self.group.settings
        if group.fault is not None:
            return False, group.fault
        if not self._is_listening:
            return False, "the controller does not listen"
        if group.leads:
            living, missing = self._living(), self._missing()
            return True, (
                f"{settings.self_id} leads in term {group.term}; {living} brokers of "
                f"{len(self.sets.names())} sets are alive{missing}"
            )
        if group.leader_id not in (None, settings.self_id):
            return True, f"{settings.self_id} follows {group.leader_id} in term {group.term}"
        return False, "no controller leads"

    def _missing(self) -> str:
        """Name the brokers that an operator has to start, for sets without a master."""
        told = []
        for name in self.sets.names():
            members = self.manager.awaited(name, self._host.steady_ms())
            if members:
                told.append(f"; nobody leads {name}: start {' or '.join(members)}, which had all")
        return "".join(told)

    def _living(self) -> int:
        now = self._host.steady_ms()
        return sum(
            self.liveness.is_alive(name, number, now)
            for name in self.sets.names()
            for number in getattr(self.sets.get(name), "brokers", ())
        )

    # ------------------------------------------------------------ the log

    def _apply(self, body: bytes) -> None:
        self.sets.apply(decode_event(body))

    def _led(self, leads: bool) -> None:
        if leads:
            self.liveness.begin(self._host.steady_ms())
            for name in self.sets.names():
                asked = Deferred.fromCoroutine(self._ask_master(name))
                asked.addErrback(lambda failure: self.log.failure("asking a master", failure))

    def _decided(self, event: Event) -> None:
        """Log an applied event, and notify brokers of an election."""
        self.log.info("agreed: {event}", event=event_text(event))
        if isinstance(event, MasterElected) and event.master_id is not None:
            self.elections += 1
            if self._config.notify_broker_role_changed:
                for notice in self.manager.notices(event.broker_name, self._host.steady_ms()):
                    self._notify(notice)

    def _notify(self, notice: RoleChangeNotice) -> None:
        """Send 1008. A broker that does not get it asks within 5 s (1004)."""
        command = RemotingCommand(
            int(ControllerRequestCode.NOTIFY_BROKER_ROLE_CHANGED),
            ext_fields(notice.header),
            notice.body,
        )
        sent = self._client.oneway(notice.address, command)
        sent.addErrback(self._not_notified, notice.address)

    def _not_notified(self, failure: Failure, address: str) -> None:
        self.log.warn(
            "{address} was not told of the election: {reason}",
            address=address,
            reason=failure.getErrorMessage(),
        )

    # ------------------------------------------------------------ the watch

    def _expire(self, _: object) -> "Deferred[None]":
        """
        Close the connections of brokers that were silent for too long, as Java's controller does;
        they are dead.
        """
        for (name, number), heartbeat in self.liveness.expire(self._host.steady_ms()):
            self.log.warn(
                "broker {name} {number} at {address} is dead: no heartbeat for {silence} ms",
                name=name,
                number=number,
                address=heartbeat.address,
                silence=heartbeat.silence_ms,
            )
            heartbeat.channel.close()
        return self._elect_where_needed()

    def _lost(self, channel: Channel) -> None:
        """
        Find out why a connection was lost: its broker was killed, or only reconnects.

        A broker that refuses connections is dead at once. A broker that accepts them may be alive:
        wait for its heartbeats, or for its time-out.

        Spec: controller.md, chapter 14, hazard 16.
        """
        for key in self.liveness.bound_to(channel):
            if not self.group.leads:
                return
            is_watched = key in self._knocking
            self._knocking[key] = channel
            if not is_watched:
                watch = Deferred.fromCoroutine(self._watch(key))
                watch.addErrback(lambda failure: self.log.failure("watching a broker", failure))

    async def _watch(self, key: Key) -> None:
        try:
            await self._knock_until_known(key)
        finally:
            del self._knocking[key]

    async def _knock_until_known(self, key: Key) -> None:
        """Connect to the broker until it is dead, or its heartbeats come by another connection."""
        while self.group.leads and self._is_listening:
            address = self._registered_address(key)
            if address is None or self._is_known_again(key):
                return
            try:
                await knock(self._host, address, _KNOCK_S)
            except (ConnectionRefusedError, ValueError):
                if self._is_known_again(key):
                    return  # the refusal took some time, and the broker came back meanwhile
                self.log.warn("{broker} is dead: it refuses connections", broker=_name_of(key))
                self.liveness.mark_dead([key])
                await self._elect_where_needed()
                return
            except Exception as error:
                self.log.debug("{broker}: {error}", broker=_name_of(key), error=error)
            await self._pause(_KNOCK_AGAIN_S)

    async def _ask_master(self, name: str) -> None:
        """
        Find out whether a set's master is dead, if this new leader has heard nothing of it yet.

        Otherwise the controller would wait for it, since it may be alive. It is dead if its port
        refuses connections twice, a second apart: a single refusal may come from a broker that
        restarts.
        """
        broker_set = self.sets.get(name)
        if broker_set is None or broker_set.master is None:
            return
        key, refusals, term = (name, broker_set.master), 0, self.group.term
        while refusals < _REFUSALS_OF_THE_DEAD:
            await self._pause(_ASK_AGAIN_S if refusals else 0.0)
            address = self._registered_address(key)
            if self.group.term != term or address is None or self.liveness.is_heard(*key):
                return
            try:
                await knock(self._host, address, _KNOCK_S)
                return
            except (ConnectionRefusedError, ValueError):
                refusals += 1
            except Exception as error:
                self.log.debug("{broker}: {error}", broker=_name_of(key), error=error)
                return
        if self.group.leads and not self.liveness.is_heard(*key):
            self.log.warn("{broker} is dead: it refuses connections", broker=_name_of(key))
            self.liveness.mark_dead([key])
            await self._elect_where_needed()

    def _pause(self, seconds: float) -> "Deferred[None]":
        pause: Deferred[None] = Deferred()
        self._host.clock.callLater(seconds, pause.callback, None)
        return pause

    def _is_known_again(self, key: Key) -> bool:
        """
        Whether the broker's last heartbeat came by another connection than the lost one, or is too
        old.
        """
        last = self.liveness.last_heartbeat(*key, self._host.steady_ms())
        return last is None or last.channel is not self._knocking[key]

    def _registered_address(self, key: Key) -> str | None:
        """
        Return a broker's registered address. The address in a heartbeat may come from a stranger.
        """
        return self.manager.address_of(*key)

    def _elect_where_needed(self, _: object = None) -> "Deferred[None]":
        return Deferred.fromCoroutine(self._elect_all())

    async def _elect_all(self) -> None:
        if not self.group.is_ready:
            return
        for name in self.manager.without_master(self._host.steady_ms()):
            request = ElectMasterRequest(broker_name=name)
            try:
                decision: Any = await self._requests.decide(
                    lambda request=request: self.manager.elect_master(  # type: ignore[misc]
                        request, self._host.steady_ms()
                    )
                )
            except RequestRejected as error:
                self.log.info("no election for {name}: {error}", name=name, error=error)
                return
            if decision.remark is not None:
                self.log.warn("{name}: {remark}", name=name, remark=decision.remark)


def _name_of(key: Key) -> str:
    """Return a broker as people read it: `broker 2 of broker-a`."""
    return f"broker {key[1]} of {key[0]}"
