"""The server that `twistd rmqha` runs."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.logger import LogEvent, Logger

from rmq_ha.base.config.addresses import ANY_ADDRESS
from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.controller import ControllerConfig
from rmq_ha.base.config.dledger import dledger_port, is_dledger
from rmq_ha.base.config.journal import CLASSIC, CONTROLLER, journal_name
from rmq_ha.base.config.load import PLAIN_ACL
from rmq_ha.base.config.namesrv import NamesrvConfig
from rmq_ha.base.config.plans import embeds_namesrv, port_plan
from rmq_ha.base.config.ports import PlannedPort
from rmq_ha.base.config.unserved_keys import Section
from rmq_ha.base.model.host_port import HostPort
from rmq_ha.base.model.networks import EVERYBODY, canonical
from rmq_ha.base.runs.maker import CHOICE
from rmq_ha.base.seams import Host
from rmq_ha.base.tls.options import TlsOptions
from rmq_ha.ops.app.exposure import (
    controller_exposure,
    exposure,
    group_exposure,
    replication_exposure,
)
from rmq_ha.ops.app.namesrv_part import NamesrvPart
from rmq_ha.ops.app.page.broker import BrokerBoard
from rmq_ha.ops.app.page.port import PageSettings
from rmq_ha.ops.app.status.broker import BrokerStatus
from rmq_ha.ops.app.status.certificates import CertificatesStatus
from rmq_ha.ops.app.status.health import Health
from rmq_ha.ops.app.status.server import StatusServer
from rmq_ha.server.acl.service import PlainAccessControl
from rmq_ha.server.broker.broker import Broker
from rmq_ha.server.plugins import split_names


class BrokerServer:
    """
    A broker, and the name server that it embeds if no other is configured, or if a controller is to
    run in it.

    :param make_broker: builds the broker; called after the name server has started, because the
        broker needs its address.
    """

    log = Logger()

    def __init__(
        self,
        host: Host,
        configuration: BrokerConfiguration,
        make_broker: Callable[[Host, BrokerConfiguration], Any] = Broker,
    ) -> None:
        self._host = host
        self._configuration = configuration
        self._make_broker = make_broker
        self._ports = port_plan(configuration)
        self._namesrv: NamesrvPart | None = None
        self._broker: Any = None
        self._status: StatusServer | None = None

    def start(self) -> Deferred[Any]:
        """Start the name server first, because the broker registers with it while it starts."""
        return Deferred.fromCoroutine(self._start())

    def stop(self) -> Deferred[Any]:
        """Stop the broker before the name server of this process, from which it unregisters."""
        return Deferred.fromCoroutine(self._stop())

    def ports(self) -> list[PlannedPort]:
        """Return the ports that this server was planned to listen on."""
        return self._ports

    def reload(self) -> None:
        """Read the TLS certificates again, for new connections; open connections go on."""
        for part in (self._namesrv, self._broker):
            if part is not None:
                part.tls.reload()

    def observe(self, event: LogEvent) -> None:
        """Pass an event of this process's log to the page."""
        if self._status is not None:
            self._status.observe(event)

    def facts(self) -> dict[str, Any]:
        configuration = self._configuration
        port = configuration.server.listen_port
        facts = {
            "brokerName": configuration.broker.broker_name,
            "brokerRole": configuration.store.broker_role.name,
            "listenPort": port,
            "fastPort": port - 2,
        }
        if is_dledger(configuration):
            facts["dledgerPort"] = dledger_port(configuration)
        elif journal_name(configuration) in (CLASSIC, CONTROLLER):
            facts["haListenPort"] = configuration.store.ha_listen_port
        if self._namesrv is not None:
            facts["namesrvPort"] = self._namesrv.port
            facts |= self._namesrv.facts()
        if grpc := configuration.ours.grpc_server_port:
            facts["grpcServerPort"] = grpc
        if self._status is not None:
            facts["metricsPort"] = self._status.port
        return facts

    async def _start(self) -> None:
        configuration = self._configuration
        own = configuration.ours
        self._warn_if_exposed()
        self.log.info("{text}", text=CHOICE.text())
        if own.metrics_port:
            self._status = StatusServer(
                self._host,
                "rmqha",
                own.metrics_port,
                own.metrics_address,
                self._page_settings(),
                own.metrics_host_names,
            )
            await self._status.start()
        if embeds_namesrv(configuration):
            await self._start_namesrv()
        self._broker = self._make_broker(self._host, configuration)
        if self._namesrv is not None and self._namesrv.controller is not None:
            self._namesrv.controller.settings.file = self._broker.config_file
        await self._broker.start()
        if self._status is not None:
            status = BrokerStatus(self._broker)
            self._status.add(status)
            self._status.add(CertificatesStatus("rmqha", self._broker.tls))
            self._status.health = lambda: self._health(status.health())
            self._show(self._status, status)

    def _health(self, own: Health) -> Health:
        """
        Return the health of the broker combined with that of the controller in it, on which other
        brokers depend.
        """
        told = None if self._namesrv is None else self._namesrv.controller_health()
        return own if told is None else own.combine(told)

    def _page_settings(self) -> PageSettings | None:
        own = self._configuration.ours
        if not own.page_enable:
            return None
        names = split_names(own.acl_plug_in)
        return PageSettings(own.page_token, PLAIN_ACL in names, bool(names))

    def _show(self, server: StatusServer, status: BrokerStatus) -> None:
        if server.page is None:
            return
        for control in self._broker.access_controls:
            if isinstance(control, PlainAccessControl):
                server.page.administrator = control.is_administrator
        server.show(BrokerBoard(self._broker, status, server.reactor_lag))

    def _warn_if_exposed(self) -> None:
        own = self._configuration.ours
        options = self._tls_modes()
        warning = exposure(own.bind_address, options, has_acl=bool(own.acl_plug_in))
        if warning is None and is_dledger(self._configuration):
            port = dledger_port(self._configuration)
            warning = group_exposure(own.bind_address, options, port)
        elif warning is None:
            port = self._configuration.server.listen_port + 1
            warning = replication_exposure(
                own.bind_address,
                options,
                port,
                own.ha_allowed_slaves,
            )
        if warning is not None:
            self.log.warn("{warning}", warning=warning)

    def _tls_modes(self) -> dict[str, str]:
        tls = TlsOptions(self._configuration.plugin_options, self._host.disk.read_bytes)
        return {key: tls.text(key) for key in ("tls.server.mode", "tls.ha.mode")}

    async def _start_namesrv(self) -> None:
        configuration, own = self._configuration, self._configuration.ours
        interface = own.embedded_namesrv_address or own.bind_address or "127.0.0.1"
        address = "127.0.0.1" if interface in ANY_ADDRESS else interface
        namesrv = self._namesrv = NamesrvPart(
            self._host,
            self._namesrv_config(address),
            self._controller_config(address) if own.enable_controller_in_namesrv else None,
            replace(configuration.server, listen_port=own.embedded_namesrv_port),
            interface,
            configuration.plugin_options,
        )
        namesrv.namesrv.settings.unserved = configuration.unserved.part(
            Section.NAMESRV, Section.SERVER
        )
        if namesrv.controller is not None:
            told = self._controller_config(address)
            warning = controller_exposure(interface, self._tls_modes(), told)
            if warning is not None:
                self.log.warn("{warning}", warning=warning)
        await namesrv.start()
        if self._status is not None:
            namesrv.add_to(self._status)
        address = str(HostPort(address, namesrv.port))
        configuration.broker.namesrv_addr = configuration.broker.namesrv_addr or address
        self.log.info("embedded name server on {address}", address=address)

    def _namesrv_config(self, address: str) -> NamesrvConfig:
        """
        Return the settings of the embedded name server. Changes of settings need a signature as at
        the broker; a broker that registers is recognised by its address, because a Java slave
        cannot sign.

        :param address: the address from which this broker connects.
        """
        own = self._configuration.ours
        root = self._configuration.store.store_path_root_dir
        allowed, here = own.namesrv_allowed_brokers, canonical(address) or "localhost"
        return NamesrvConfig(
            kv_config_path=f"{root}/namesrv/kvConfig.json",
            namesrv_allowed_brokers=f"{allowed},{here}" if allowed else EVERYBODY,
            acl_enable=PLAIN_ACL in split_names(own.acl_plug_in),
            acl_directory=own.acl_directory,
            acl_requires_tls=own.acl_requires_tls,
            acl_requires_signed_time=own.acl_requires_signed_time,
            acl_signed_time_window=own.acl_signed_time_window,
            acl_signed_sessions=own.acl_signed_sessions,
        )

    def _controller_config(self, address: str) -> ControllerConfig:
        """
        Return the settings of the controller in the embedded name server; this broker may always
        use it.

        :param address: the address from which this broker connects.
        """
        own = self._configuration.controller
        allowed, here = own.controller_allowed_brokers, canonical(address) or "localhost"
        has_acl = PLAIN_ACL in split_names(self._configuration.ours.acl_plug_in)
        listed = f"{allowed},{here}".strip(",") if allowed or has_acl else ""
        return replace(own, controller_allowed_brokers=listed, acl_enable=has_acl)

    async def _stop(self) -> None:
        if self._status is not None:
            self._status.withdraw(Health(False, "stopping"))
        try:
            await (self._broker.stop() if self._broker is not None else succeed(None))
        finally:
            if self._namesrv is not None:
                await self._namesrv.stop()
            if self._status is not None:
                await self._status.stop()
