"""The keys of a controller properties file.

Spec: controller.md, section 2.3.
"""

from dataclasses import dataclass, field
from typing import Any

from rmq_ha.base.config.every_server import EveryServerConfig
from rmq_ha.base.config.fields import Local, key_of_5, own_key
from rmq_ha.base.config.netty import NettyServerConfig
from rmq_ha.base.config.text_rules import NETWORKS
from rmq_ha.base.config.unserved_keys import Section, UnservedValues


@dataclass(slots=True, kw_only=True)
class ControllerConfig(EveryServerConfig):
    """The keys of a controller."""

    controller_type: str = key_of_5("controllerType", "DLedger", "DLedger is the only type here")
    controller_dleger_group: str = key_of_5(
        "controllerDLegerGroup",
        "controller",
        "name of the controllers' group",
        local=Local.CONTROLLERS,
    )
    controller_dleger_peers: str = key_of_5(
        "controllerDLegerPeers",
        "",
        "all controllers: n0-host:port;n1-host:port; brokers and tools use these ports, too",
        local=Local.CONTROLLERS,
    )
    controller_dleger_self_id: str = key_of_5(
        "controllerDLegerSelfId",
        "n0",
        "id of this controller in controllerDLegerPeers",
        local=Local.CONTROLLERS,
    )
    controller_store_path: str = key_of_5(
        "controllerStorePath",
        "",
        "directory of the controllers' log; empty: DLedgerController in the home directory",
        local=Local.CONTROLLERS,
    )
    mapped_file_size: int = key_of_5(
        "mappedFileSize", 1 << 30, "bytes of one file of the controllers' log", least=4096
    )
    scan_not_active_broker_interval: int = key_of_5(
        "scanNotActiveBrokerInterval", 5000, "ms between two searches for silent brokers", least=100
    )
    scan_inactive_master_interval: int = key_of_5(
        "scanInactiveMasterInterval",
        5000,
        "ms between two searches for sets whose master is dead",
        least=100,
    )
    enable_elect_unclean_master: bool = key_of_5(
        "enableElectUncleanMaster",
        False,
        "elect from outside the SyncStateSet if nobody in it lives: loses acknowledged messages",
        mutable=True,
    )
    notify_broker_role_changed: bool = key_of_5(
        "notifyBrokerRoleChanged", True, "tell brokers of an election at once", mutable=True
    )
    config_store_path: str | None = key_of_5(
        "configStorePath",
        None,
        "file that updateControllerConfig changes; empty: the properties file",
        local=Local.FILES,
    )
    controller_allowed_brokers: str = own_key(
        "controllerAllowedBrokers",
        "",
        "addresses and networks, comma-separated, from which brokers get ids, and speak for "
        "brokers that have registered another address (NAT); empty: each broker from the host "
        "that it registers, a new one from anywhere",
        rule=NETWORKS,
        local=Local.ACCESS,
    )
    controller_operator_hosts: str = own_key(
        "controllerOperatorHosts",
        "",
        "addresses and networks, comma-separated, from which operators elect, forget brokers "
        "and configure, besides the controllers' own machines",
        rule=NETWORKS,
        local=Local.ACCESS,
    )
    controller_open_to_all: bool = own_key(
        "controllerOpenToAll",
        False,
        "ask nobody who he is, as RocketMQ: whoever reaches the port elects masters, changes "
        "sets and keeps dead brokers alive",
        local=Local.ACCESS,
    )
    acl_enable: bool = own_key(
        "aclEnable",
        False,
        "brokers (unless they are in controllerAllowedBrokers) and operators need an admin's "
        "signature, by plain_acl.yml",
        local=Local.ACCESS,
        same_in_set=True,
    )


@dataclass(slots=True)
class ControllerConfiguration:
    """
    The objects that a controller's properties file fills.

    :ivar unserved: keys without effect in rmq-ha.
    :ivar plugin_options: the `tls.` settings.
    """

    controller: ControllerConfig = field(default_factory=ControllerConfig)
    server: NettyServerConfig = field(default_factory=NettyServerConfig)
    unserved: UnservedValues = field(default_factory=lambda: UnservedValues(Section.SERVER))
    plugin_options: dict[str, str] = field(default_factory=dict)

    @property
    def own_objects(self) -> tuple[Any, ...]:
        """The objects that hold a controller's own keys, in the order in which they are shown."""
        return (self.controller, self.server)
