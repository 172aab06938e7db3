"""NamesrvConfig: the keys of a name server properties file.

Spec: store.md, section 13.
"""

from dataclasses import dataclass

from rmq_ha.base.config.fields import key
from rmq_ha.base.config.log_format import LogFormat
from rmq_ha.base.config.log_level import LogThreshold


@dataclass(slots=True, kw_only=True)
class NamesrvConfig:
    """The keys of a name server."""

    rocketmq_home: str | None = key("rocketmqHome", None, "required")
    kv_config_path: str | None = key("kvConfigPath", None, "kvConfigPath")
    config_store_path: str | None = key("configStorePath", None, "configStorePath")
    product_env_name: str = key("productEnvName", "center", "productEnvName")
    cluster_test: bool = key("clusterTest", False, "clusterTest")
    order_message_enable: bool = key(
        "orderMessageEnable", False, "answer ordered-topic configuration"
    )
    delete_topic_with_broker_registration: bool = key(
        "deleteTopicWithBrokerRegistration",
        True,
        "a broker leaves the route of a topic that it no longer registers, as in RocketMQ 5 with "
        "this key; false: it stays there until name servers are told, as in RocketMQ 4.9",
    )
    keep_wiped_write_perm: bool = key(
        "keepWipedWritePerm",
        True,
        "ours: wipeWritePerm lasts until addWritePerm, over registrations and restarts; false: "
        "until the broker registers changed topics or comes back, as in RocketMQ",
    )
    enable_controller_in_namesrv: bool = key(
        "enableControllerInNamesrv",
        False,
        "run a controller in this process, on the own port of controllerDLegerPeers; a "
        "controller's keys stand beside these",
    )
    bind_address: str = key(
        "bindAddress", "", "ours: interface to listen on; empty: all of IPv4 and IPv6, as Java"
    )
    max_registration_bytes: int = key(
        "maxRegistrationBytes",
        4194304,
        "ours: bytes that a compressed registration may become",
    )
    max_topics_of_broker: int = key(
        "maxTopicsOfBroker", 50000, "ours: topics in one registration; more are refused"
    )
    max_topic_routes: int = key(
        "maxTopicRoutes",
        500000,
        "ours: pairs of topic and broker name in all; a registration that makes it more is refused",
    )
    namesrv_allowed_brokers: str = key(
        "namesrvAllowedBrokers",
        "",
        "ours: addresses and networks, comma-separated, from which brokers register and "
        "unregister; empty: from everywhere, as RocketMQ",
    )
    namesrv_broker_takeover: bool = key(
        "namesrvBrokerTakeover",
        True,
        "ours: another machine may take over name and id of a broker that is connected still, as "
        "in RocketMQ; false: only once that connection is gone, or it was silent for 120 s",
    )
    namesrv_last_registration_wins: bool = key(
        "namesrvLastRegistrationWins",
        False,
        "ours: a brokerName and brokerId belong to whoever registered last, as in RocketMQ 4.9; "
        "false: the higher epoch gets them, and an address that lost id 0 to a broker that lives "
        "does not get it back meanwhile",
    )
    acl_enable: bool = key(
        "aclEnable",
        False,
        "ours: registrations (unless namesrvAllowedBrokers is set) and what changes or shows "
        "settings need an admin's signature, by plain_acl.yml",
    )
    acl_directory: str | None = key(
        "aclDirectory",
        None,
        "ours: where plain_acl.yml and the folder acl are; without it rocketmqHome/conf, or the "
        "directory of this file",
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
    metrics_port: int = key(
        "metricsPort", 0, "ours: serve /metrics (Prometheus) and /healthz over HTTP here; 0: do not"
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
        "ours: who knows it may look at the page, at least 16 characters; needed, or an ACL "
        "account, where metricsAddress is not loopback",
        secret=True,
    )
    log_format: LogFormat = key(
        "logFormat", LogFormat.text, "ours: text, or json: one object a line, with every field"
    )
    private_files: bool = key(
        "privateFiles",
        True,
        "ours: new files and folders are for owner and group only (0640, 0750); false: as the "
        "umask says, as with RocketMQ",
    )
    log_level: LogThreshold = key(
        "logLevel", LogThreshold.info, "ours: debug, info, warn, error or critical: what is logged"
    )
    log_max_files: int = key(
        "logMaxFiles", 100, "ours: rotated log files, of 1 MB each, that are kept; 0: all"
    )
