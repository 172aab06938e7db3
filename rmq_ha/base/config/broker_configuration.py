"""The whole configuration of one broker, as one properties file gives it."""

from dataclasses import dataclass, field
from typing import Any

from rmq_ha.base.config.broker import BrokerConfig
from rmq_ha.base.config.controller import ControllerConfig
from rmq_ha.base.config.controller_mode_keys import ControllerModeConfig
from rmq_ha.base.config.fields import keys_of
from rmq_ha.base.config.netty import NettyClientConfig, NettyServerConfig
from rmq_ha.base.config.own_keys import RmqHaConfig
from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.config.unserved_keys import Section, UnservedValues
from rmq_ha.base.model.message import Address


@dataclass(slots=True)
class BrokerConfiguration:
    """
    The objects that a broker's properties file fills, after the start rules.

    Spec: store.md, section 13.

    :ivar unserved: keys without effect in rmq-ha.
    :ivar controller: the controller of the embedded name server; read only with
        `enableControllerInNamesrv`.
    :ivar plugin_options: the keys with a dot: `<plugin name>.<key>` and `tls.` settings.
    :ivar was_slave: in controller mode, whether the file says brokerRole=SLAVE. The broker was then
        the slave of a pair before, and its store may lack messages.
    :ivar config_file: absolute path of the properties file; None without a file.
    """

    broker: BrokerConfig = field(default_factory=BrokerConfig)
    store: MessageStoreConfig = field(default_factory=MessageStoreConfig)
    server: NettyServerConfig = field(default_factory=NettyServerConfig)
    client: NettyClientConfig = field(default_factory=NettyClientConfig)
    ours: RmqHaConfig = field(default_factory=RmqHaConfig)
    controlled: ControllerModeConfig = field(default_factory=ControllerModeConfig)
    unserved: UnservedValues = field(
        default_factory=lambda: UnservedValues(
            Section.BROKER, Section.SERVER, Section.CLIENT, Section.STORE
        )
    )
    controller: ControllerConfig = field(default_factory=ControllerConfig)
    plugin_options: dict[str, str] = field(default_factory=dict)
    was_slave: bool = False
    config_file: str | None = None

    @property
    def own_objects(self) -> tuple[Any, ...]:
        """The objects that hold a broker's own keys, in the order in which settings are shown."""
        return (self.broker, self.server, self.client, self.store, self.ours, self.controlled)

    @property
    def runs_controller(self) -> bool:
        """Whether the name server in this process runs a controller."""
        return self.ours.enable_controller_in_namesrv

    def dialled_addresses(self) -> dict[str, list[str]]:
        """
        Return the addresses to connect to, by key; those of controllerAddr also where controller
        mode is off.
        """
        return {
            row.name: [
                address.strip()
                for address in (getattr(target, row.attribute) or "").split(";")
                if address.strip()
            ]
            for target in self.own_objects
            for row in keys_of(target).values()
            if row.is_dialled
        }

    @property
    def store_host(self) -> Address:
        """This broker's address, as records and clients have it."""
        return Address.parse(self.broker.broker_ip1 or "127.0.0.1", self.server.listen_port)
