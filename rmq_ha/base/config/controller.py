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

    controller_type: str = key_of_5(
        "controllerType", "DLedger", "The kind of controller. DLedger is the only one in rmq-ha."
    )
    controller_dleger_group: str = key_of_5(
        "controllerDLegerGroup",
        "controller",
        "The name of the controllers' group. It is the same at all controllers.",
        local=Local.CONTROLLERS,
    )
    controller_dleger_peers: str = key_of_5(
        "controllerDLegerPeers",
        "",
        "All controllers of the group, this one included: n0-host:port;n1-host:port. Brokers "
        "and tools connect to the same ports.",
        local=Local.CONTROLLERS,
    )
    controller_dleger_self_id: str = key_of_5(
        "controllerDLegerSelfId",
        "n0",
        "The id of this controller in controllerDLegerPeers.",
        local=Local.CONTROLLERS,
    )
    controller_store_path: str = key_of_5(
        "controllerStorePath",
        "",
        "The directory of the controllers' log. Empty: the folder DLedgerController in the home "
        "directory of the user.",
        local=Local.CONTROLLERS,
    )
    mapped_file_size: int = key_of_5(
        "mappedFileSize",
        1 << 30,
        "The size of one file of the controllers' log, bytes.",
        least=4096,
    )
    scan_not_active_broker_interval: int = key_of_5(
        "scanNotActiveBrokerInterval",
        5000,
        "How often the controller looks for brokers that send no heartbeats, ms.",
        least=100,
    )
    scan_inactive_master_interval: int = key_of_5(
        "scanInactiveMasterInterval",
        5000,
        "How often the controller looks for sets whose master is dead, ms.",
        least=100,
    )
    enable_elect_unclean_master: bool = key_of_5(
        "enableElectUncleanMaster",
        False,
        "true: if no broker in sync lives, elect another broker of the set, which loses "
        "acknowledged messages. false: elect nobody until a broker in sync is back.",
        mutable=True,
    )
    notify_broker_role_changed: bool = key_of_5(
        "notifyBrokerRoleChanged",
        True,
        "true: tell brokers of an election at once. false: they learn of it at their next "
        "question.",
        mutable=True,
    )
    config_store_path: str | None = key_of_5(
        "configStorePath",
        None,
        "The file that mqadmin updateControllerConfig changes. Empty: the properties file.",
        local=Local.FILES,
    )
    controller_allowed_brokers: str = own_key(
        "controllerAllowedBrokers",
        "",
        "The addresses and networks, separated by commas, from which brokers get ids. A broker "
        "there may also speak for a broker that registered another address, for example behind "
        "NAT. Empty: a new broker may connect from anywhere, and then only from the host that "
        "it registers.",
        rule=NETWORKS,
        local=Local.ACCESS,
    )
    controller_operator_hosts: str = own_key(
        "controllerOperatorHosts",
        "",
        "The addresses and networks, separated by commas, from which operators may elect "
        "masters, remove brokers and change settings. The controllers' own machines always may.",
        rule=NETWORKS,
        local=Local.ACCESS,
    )
    controller_open_to_all: bool = own_key(
        "controllerOpenToAll",
        False,
        "true, as RocketMQ: no request is checked, so everybody who reaches the port elects "
        "masters, changes sets and keeps dead brokers alive. false: the host of each "
        "request is checked.",
        local=Local.ACCESS,
    )
    acl_enable: bool = own_key(
        "aclEnable",
        False,
        "true: requests of brokers and operators need the signature of an admin in "
        "plain_acl.yml. Brokers in controllerAllowedBrokers need none.",
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
