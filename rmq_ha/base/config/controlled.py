"""The keys of a broker in controller mode.

Spec: controller.md, section 2.1.
"""

from dataclasses import dataclass

from rmq_ha.base.config.fields import key


@dataclass(slots=True, kw_only=True)
class ControllerModeConfig:
    """What 5.3.3's broker and store know of controller mode; 4.9.7's ignore it."""

    enable_controller_mode: bool = key(
        "enableControllerMode", False, "controllers say who of the brokers of this name is master"
    )
    controller_addr: str | None = key(
        "controllerAddr", None, "host:port of every controller, separated by ;"
    )
    sync_controller_metadata_period: int = key(
        "syncControllerMetadataPeriod", 10_000, "ms between questions which controller leads"
    )
    sync_broker_metadata_period: int = key(
        "syncBrokerMetadataPeriod", 5_000, "ms between questions who is master"
    )
    broker_heartbeat_interval: int = key(
        "brokerHeartbeatInterval", 1_000, "ms between heartbeats to the controllers"
    )
    controller_heart_beat_timeout_mills: int = key(
        "controllerHeartBeatTimeoutMills",
        10_000,
        "ms of silence after which controllers take this broker for dead; as a master it accepts "
        "nothing after 0.8 of it",
    )
    broker_election_priority: int = key(
        "brokerElectionPriority", 2**31 - 1, "of two with the same log the smaller one is elected"
    )
    all_ack_in_sync_state_set: bool = key(
        "allAckInSyncStateSet", False, "a put waits for every broker that is in sync"
    )
    in_sync_replicas: int = key(
        "inSyncReplicas",
        1,
        "without allAckInSyncStateSet: how many have to hold a put, the master among them; with 1 "
        "an election may lose what was acknowledged",
    )
    min_in_sync_replicas: int = key(
        "minInSyncReplicas", 1, "puts are refused while fewer are in sync"
    )
    ha_max_time_slave_not_catchup: int = key(
        "haMaxTimeSlaveNotCatchup", 15_000, "ms without progress after which a slave is not in sync"
    )
    ha_flow_control_enable: bool = key(
        "haFlowControlEnable", False, "send a slave no more than maxHaTransferByteInSecond"
    )
    max_ha_transfer_byte_in_second: int = key(
        "maxHaTransferByteInSecond", 100 << 20, "with haFlowControlEnable: bytes, to each slave"
    )
    sync_from_last_file: bool = key(
        "syncFromLastFile", False, "as an empty slave: only the master's last file"
    )
    async_learner: bool = key("asyncLearner", False, "follow a master, but never be in sync")
    store_path_epoch_file: str | None = key(
        "storePathEpochFile", None, "which master wrote what; storePathRootDir/epochFileCheckpoint"
    )
    store_path_broker_identity: str | None = key(
        "storePathBrokerIdentity", None, "id of this broker; storePathRootDir/brokerIdentity"
    )

    @property
    def most_per_second(self) -> int:
        """Bytes to one slave; 0: as many as can be."""
        return self.max_ha_transfer_byte_in_second if self.ha_flow_control_enable else 0

    @property
    def controllers(self) -> tuple[str, ...]:
        """`controllerAddr`, one by one."""
        parts = (self.controller_addr or "").split(";")
        return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
