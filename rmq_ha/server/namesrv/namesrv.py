"""Namesrv: a whole name server.

Spec: remoting.md, section 2.3 and chapter 9.
"""

from collections.abc import Mapping, Sequence
from typing import cast

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IListeningPort
from twisted.logger import Logger

from rmq_ha.base.config.namesrv import NamesrvConfig
from rmq_ha.base.config.netty import NettyServerConfig
from rmq_ha.base.model.networks import Networks
from rmq_ha.base.remoting.audit import AuditLog, Describe, by_header, changed_configuration
from rmq_ha.base.remoting.dispatcher import RequestDispatcher
from rmq_ha.base.remoting.server import RemotingServer
from rmq_ha.base.seams import Host
from rmq_ha.base.timing.periodic import Periodic
from rmq_ha.base.timing.timer import next_turn
from rmq_ha.base.tls.reload import TlsReload
from rmq_ha.base.tls.server import ServerTls
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.server.namesrv.access import BrokerAddresses, make_access
from rmq_ha.server.namesrv.config_processor import ConfigProcessor
from rmq_ha.server.namesrv.kv_config import KVConfigManager
from rmq_ha.server.namesrv.processors import RouteProcessor
from rmq_ha.server.namesrv.routes import RouteInfoManager
from rmq_ha.server.namesrv.settings import NamesrvSettings
from rmq_ha.server.namesrv.wiped_brokers import WipedBrokers

ACTS: Mapping[int, Describe] = {
    RequestCode.PUT_KV_CONFIG: by_header("set", "kv", "key", "namespace", "value"),
    RequestCode.DELETE_KV_CONFIG: by_header("deleted", "kv", "key", "namespace"),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: by_header("wiped", "write permission", "brokerName"),
    RequestCode.ADD_WRITE_PERM_OF_BROKER: by_header("gave back", "write permission", "brokerName"),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: by_header("deleted", "route", "topic", "clusterName"),
    RequestCode.UPDATE_NAMESRV_CONFIG: changed_configuration,
}


SCAN_FIRST_SECONDS = 5.0
SCAN_EVERY_SECONDS = 10.0


class Namesrv:
    """
    One name server: a listening port and tables in memory.

    :param interface: address to listen on; empty: `bindAddress`.
    :param tls: the `tls.*` keys; None: no TLS.
    :param controllers: addresses of the controllers, for tools that ask this name server.
    :ivar routes: the registered brokers and topics.
    :ivar kv_config: the key-value store; without a `kvConfigPath` in memory only.
    :ivar tls: reads changed certificates again.
    :ivar settings: the configuration that updateNamesrvConfig changes.
    :ivar access: checks signatures; None if nobody has to sign.
    :ivar addresses: counts the registrations that were refused because of their address.
    """

    log = Logger()

    def __init__(
        self,
        host: Host,
        namesrv_config: NamesrvConfig,
        server_config: NettyServerConfig,
        interface: str = "",
        tls: Mapping[str, str] | None = None,
        controllers: Sequence[str] = (),
    ) -> None:
        self.kv_config = KVConfigManager(
            host.disk, host.worker, namesrv_config.kv_config_path or ""
        )
        # Settings are given as functions, because updateNamesrvConfig changes them at run time.
        wiped = WipedBrokers(self.kv_config, lambda: namesrv_config.keep_wiped_write_perm)
        self.routes = RouteInfoManager(
            wiped.is_wiped, lambda: namesrv_config.namesrv_last_registration_wins
        )
        self._host = host
        self._server_config = server_config
        self._interface = interface or namesrv_config.bind_address
        self._port: IListeningPort | None = None
        route_processor = self._route_processor = RouteProcessor(
            host.clock,
            self.routes,
            self.kv_config,
            wiped,
            namesrv_config,
            controllers,
        )
        self.settings = NamesrvSettings(host.disk, host.worker, namesrv_config, server_config)
        allowed = Networks(namesrv_config.namesrv_allowed_brokers)
        self.addresses = BrokerAddresses(host, allowed)
        self.access = make_access(host, namesrv_config, allowed)
        dispatcher = RequestDispatcher([item for item in (self.addresses, self.access) if item])
        config_processor = ConfigProcessor(self.kv_config, self.settings)
        handlers = route_processor.handlers() | config_processor.handlers()
        audit = AuditLog(host.clock, ACTS)
        for code, handler in handlers.items():
            dispatcher.routes[code] = audit.wrap(code, handler)
        rules = None
        if tls is not None:
            rules = ServerTls(tls, host.disk.read_bytes, host.now_ms)
            if namesrv_config.acl_enable and namesrv_config.acl_requires_tls:
                rules.must_be_possible("aclRequiresTls=true")
        self.tls = TlsReload(host, [] if rules is None else [rules])
        self._server = RemotingServer(host, server_config, dispatcher, rules)
        self._scan = Periodic(
            host.clock,
            "broker expiry",
            lambda: next_turn(host.clock).addCallback(self._expire_brokers),
            SCAN_EVERY_SECONDS,
            SCAN_FIRST_SECONDS,
        )

    @property
    def port(self) -> int:
        """Return the port that it listens on; 0 before the start."""
        return 0 if self._port is None else cast(IPv4Address, self._port.getHost()).port

    @property
    def refused_registrations(self) -> int:
        """Return the number of registrations that were too large, or could not be read."""
        return self._route_processor.refused_registrations

    @property
    def dropped_frames(self) -> dict[str, int]:
        """
        Return the number of connections that were closed for an incomplete frame, by the key that
        limits it.
        """
        return self._server.frames.dropped

    @property
    def connections(self) -> int:
        return self._server.connections

    def start(self) -> "Deferred[None]":
        """
        Load the key-value store and listen.

        :returns: fires when clients can connect; fails with `StoreError` when the key-value file
            and its backup are damaged, with `CannotListenError` when the port is taken.
        """
        return Deferred.fromCoroutine(self._start())

    def stop(self) -> "Deferred[None]":
        """
        Close all connections.

        :returns: fires when that is done and nothing is left to write; never fails.
        """
        return Deferred.fromCoroutine(self._stop())

    async def _start(self) -> None:
        self.kv_config.load()
        self._port = await self._server.listen(self._server_config.listen_port, self._interface)
        self._scan.start()
        if self.access is not None:
            self.access.start()
        self.tls.start()
        self.log.info("name server listens on port {port}", port=self.port)

    async def _stop(self) -> None:
        await self._scan.stop()
        if self.access is not None:
            await self.access.stop()
        await self.tls.stop()
        await self._server.stop()
        await self.kv_config.persist_if_dirty()
        await self.settings.file.written()

    def _expire_brokers(self, _: object) -> None:
        for broker in self.routes.expire(self._host.clock.seconds()):
            self.log.warn(
                "broker {broker} is gone: no registration for 120 s", broker=broker.address
            )
            broker.channel.abort()
