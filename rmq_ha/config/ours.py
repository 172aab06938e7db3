"""The keys that only rmq-ha knows; RocketMQ's Java broker ignores them."""

from dataclasses import dataclass

from rmq_ha.config.fields import key
from rmq_ha.config.log_format import LogFormat


@dataclass(slots=True, kw_only=True)
class RmqHaConfig:
    """Extension points by name, and the settings by which we differ from 4.9.7 on purpose."""

    commit_log_plug_in: str = key(
        "commitLogPlugIn", "default", "ICommitLogPlugin that makes the commit log"
    )
    ha_plug_in: str = key("haPlugIn", "default", "IReplicationPlugin that makes the HA service")
    dispatcher_plug_in: str = key(
        "dispatcherPlugIn", "", "extra ICommitLogDispatcher plugins, comma-separated"
    )
    hook_plug_in: str = key(
        "hookPlugIn", "", "send and consume hook plugins, comma-separated, in this order"
    )
    acl_plug_in: str = key(
        "aclPlugIn", "", "access validator plugins, comma-separated; with aclEnable=true: plain"
    )
    acl_directory: str | None = key(
        "aclDirectory",
        None,
        "where plain_acl.yml and the folder acl are; without it rocketmqHome/conf, "
        "or the directory of this file",
    )
    acl_strict: bool = key(
        "aclStrict",
        True,
        "refuse also what 4.9.7 forgets to check: batches to topics without PUB, "
        "and the ACL commands (but for the version) without admin",
    )
    acl_access_key: str = key(
        "aclAccessKey", "", "signs this broker's own requests, as a slave's to its master"
    )
    acl_secret_key: str = key("aclSecretKey", "", "belongs to aclAccessKey", secret=True)
    verify_log_at_start: bool = key(
        "verifyLogAtStart",
        False,
        "after a clean stop, read the last three commit-log files as RocketMQ does and cut the log "
        "at the first damaged record; false: begin at the last message",
    )
    bind_address: str = key(
        "bindAddress", "", "interface to listen on; empty: all, as the Java broker does"
    )
    ha_transfer_batch_max: int = key(
        "haTransferBatchMax",
        262144,
        "largest body of one HA frame when more than haTransferBatchSize is waiting; "
        "a Java slave's receive buffer holds 4 MiB",
    )
    embedded_namesrv_port: int = key(
        "embeddedNamesrvPort",
        9876,
        "a master without namesrvAddr runs its own name server on this port; 0: any free one",
    )
    metrics_port: int = key(
        "metricsPort", 0, "serve /metrics (Prometheus) and /healthz over HTTP here; 0: do not"
    )
    metrics_address: str = key(
        "metricsAddress", "127.0.0.1", "interface of metricsPort; empty: all"
    )
    metrics_series_limit: int = key(
        "metricsSeriesLimit",
        200,
        "how many topics, and how many pairs of topic and group, have series of their own",
    )
    log_format: LogFormat = key(
        "logFormat", LogFormat.text, "text, or json: one object a line, with every field"
    )
