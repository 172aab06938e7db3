"""The keys that only rmq-ha knows; RocketMQ's Java broker ignores them."""

from dataclasses import dataclass

from rmq_ha.config.fields import key


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
    acl_plug_in: str = key("aclPlugIn", "", "access validator plugins, comma-separated")
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
