"""The keys of a controller properties file.

Spec: controller.md, section 2.3.
"""

from dataclasses import dataclass, field

from rmq_ha.base.config.fields import key
from rmq_ha.base.config.log_format import LogFormat
from rmq_ha.base.config.log_level import LogThreshold
from rmq_ha.base.config.netty import NettyServerConfig


@dataclass(slots=True, kw_only=True)
class ControllerConfig:
    controller_type: str = key("controllerType", "DLedger", "DLedger is the only one here")
    controller_dleger_group: str = key(
        "controllerDLegerGroup", "controller", "name of the controllers' group"
    )
    controller_dleger_peers: str = key(
        "controllerDLegerPeers",
        "",
        "all controllers, n0-host:port;n1-host:port; brokers and tools use these ports, too",
    )
    controller_dleger_self_id: str = key(
        "controllerDLegerSelfId", "n0", "which of them this one is"
    )
    controller_store_path: str = key(
        "controllerStorePath", "", "where the log is; empty: DLedgerController below the home"
    )
    mapped_file_size: int = key("mappedFileSize", 1 << 30, "of the log's files")
    scan_not_active_broker_interval: int = key(
        "scanNotActiveBrokerInterval", 5000, "looks for brokers that were silent for too long"
    )
    scan_inactive_master_interval: int = key(
        "scanInactiveMasterInterval", 5000, "looks for sets whose master is dead"
    )
    enable_elect_unclean_master: bool = key(
        "enableElectUncleanMaster",
        False,
        "elect from outside the SyncStateSet if nobody in it lives: loses acknowledged messages",
    )
    notify_broker_role_changed: bool = key(
        "notifyBrokerRoleChanged", True, "tell brokers of an election at once"
    )
    config_store_path: str | None = key(
        "configStorePath", None, "the file that updateControllerConfig changes"
    )
    controller_allowed_brokers: str = key(
        "controllerAllowedBrokers",
        "",
        "ours: addresses and networks, comma-separated, from which brokers get ids, and speak for "
        "brokers that have registered another address (NAT); empty: each broker from the host that "
        "it registers, a new one from anywhere",
    )
    controller_operator_hosts: str = key(
        "controllerOperatorHosts",
        "",
        "ours: addresses and networks, comma-separated, from which operators elect, forget brokers "
        "and configure, besides the controllers' own machines",
    )
    controller_open_to_all: bool = key(
        "controllerOpenToAll",
        False,
        "ours: ask nobody who he is, as RocketMQ: whoever reaches the port elects masters, changes "
        "sets and keeps dead brokers alive",
    )
    acl_enable: bool = key(
        "aclEnable",
        False,
        "ours: brokers (unless they are in controllerAllowedBrokers) and operators need an admin's "
        "signature, by plain_acl.yml",
    )
    acl_directory: str | None = key(
        "aclDirectory",
        None,
        "ours: where plain_acl.yml and the folder acl are; without it the directory of this file",
    )
    acl_requires_tls: bool = key(
        "aclRequiresTls", False, "ours: refuse signed requests that come by plain TCP"
    )
    acl_requires_signed_time: bool = key(
        "aclRequiresSignedTime",
        False,
        "ours: take only signatures that cover code, time and number of a request",
    )
    acl_signed_time_window: int = key(
        "aclSignedTimeWindow",
        300,
        "ours: seconds by which the time of a signed request may differ from this server's clock",
    )
    acl_signed_sessions: int = key(
        "aclSignedSessions", 10000, "ours: clients' sessions of one account that are remembered"
    )
    bind_address: str = key(
        "bindAddress", "", "ours: interface to listen on; empty: all of IPv4 and IPv6"
    )
    metrics_port: int = key(
        "metricsPort", 0, "ours: serve /metrics (of the process) and /healthz here; 0: do not"
    )
    metrics_address: str = key(
        "metricsAddress", "127.0.0.1", "ours: interface of metricsPort; empty: all"
    )
    metrics_host_names: str = key(
        "metricsHostNames",
        "",
        "ours: names, comma-separated, by which /metrics may be asked for, beside addresses, names "
        "without a dot and private ones; *: any; empty: this machine's own",
    )
    page_enable: bool = key(
        "pageEnable",
        True,
        "ours: show a page for people on metricsPort; false: /metrics and /healthz only",
    )
    page_token: str = key(
        "pageToken",
        "",
        "ours: who knows it may look at the page, at least 16 characters; needed where "
        "metricsAddress is not loopback",
        secret=True,
    )
    log_format: LogFormat = key(
        "logFormat", LogFormat.text, "ours: text, or json: one object a line, with every field"
    )
    private_files: bool = key(
        "privateFiles", True, "ours: new files and folders are for owner and group only"
    )
    log_level: LogThreshold = key(
        "logLevel", LogThreshold.info, "ours: debug, info, warn, error or critical: what is logged"
    )
    log_max_files: int = key(
        "logMaxFiles", 100, "ours: rotated log files, of 1 MB each, that are kept; 0: all"
    )


@dataclass(slots=True)
class ControllerConfiguration:
    """
    What one properties file feeds.

    :ivar plugin_options: the `tls.` settings.
    """

    controller: ControllerConfig = field(default_factory=ControllerConfig)
    server: NettyServerConfig = field(default_factory=NettyServerConfig)
    plugin_options: dict[str, str] = field(default_factory=dict)
