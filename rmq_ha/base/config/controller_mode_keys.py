"""The keys of a broker in controller mode.

Spec: controller.md, section 2.1.
"""

from dataclasses import dataclass

from rmq_ha.base.config.fields import key_of_5


@dataclass(slots=True, kw_only=True)
class ControllerModeConfig:
    """
    The keys of controller mode that 5.3.3's broker and store read. Those of 4.9.7 ignore them.
    """

    enable_controller_mode: bool = key_of_5(
        "enableControllerMode", False, "controllers say who of the brokers of this name is master"
    )
    controller_addr: str | None = key_of_5(
        "controllerAddr",
        None,
        "host:port of every controller, separated by ;",
        dialled=True,
        needs="enableControllerMode",
    )
    sync_controller_metadata_period: int = key_of_5(
        "syncControllerMetadataPeriod",
        10_000,
        "ms between questions which controller leads",
        needs="enableControllerMode",
    )
    sync_broker_metadata_period: int = key_of_5(
        "syncBrokerMetadataPeriod",
        5_000,
        "ms between questions who is master",
        needs="enableControllerMode",
    )
    broker_heartbeat_interval: int = key_of_5(
        "brokerHeartbeatInterval",
        1_000,
        "ms between heartbeats to the controllers",
        needs="enableControllerMode",
    )
    controller_heart_beat_timeout_mills: int = key_of_5(
        "controllerHeartBeatTimeoutMills",
        10_000,
        "ms of silence after which controllers take this broker for dead; as a master it "
        "accepts nothing after 0.8 of it",
        needs="enableControllerMode",
    )
    broker_election_priority: int = key_of_5(
        "brokerElectionPriority",
        2**31 - 1,
        "of two brokers with the same log the smaller number is elected",
        needs="enableControllerMode",
    )
    all_ack_in_sync_state_set: bool = key_of_5(
        "allAckInSyncStateSet",
        False,
        "a put waits for every broker that is in sync",
        needs="enableControllerMode",
    )
    in_sync_replicas: int = key_of_5(
        "inSyncReplicas",
        1,
        "without allAckInSyncStateSet: how many have to hold a put, the master among them; "
        "with 1 an election may lose what was acknowledged",
        needs="enableControllerMode",
    )
    min_in_sync_replicas: int = key_of_5(
        "minInSyncReplicas",
        1,
        "puts are refused while fewer are in sync",
        needs="enableControllerMode",
    )
    ha_max_time_slave_not_catchup: int = key_of_5(
        "haMaxTimeSlaveNotCatchup",
        15_000,
        "ms without progress after which a slave is not in sync",
        needs="enableControllerMode",
    )
    ha_flow_control_enable: bool = key_of_5(
        "haFlowControlEnable",
        False,
        "send a slave no more than maxHaTransferByteInSecond",
        needs="enableControllerMode",
    )
    max_ha_transfer_byte_in_second: int = key_of_5(
        "maxHaTransferByteInSecond",
        100 << 20,
        "with haFlowControlEnable: bytes to each slave in a second",
        least=4096,
        needs="enableControllerMode",
    )
    sync_from_last_file: bool = key_of_5(
        "syncFromLastFile",
        False,
        "a slave with an empty store fetches only the master's last file",
        needs="enableControllerMode",
    )
    async_learner: bool = key_of_5(
        "asyncLearner", False, "follow a master, but never be in sync", needs="enableControllerMode"
    )
    store_path_epoch_file: str | None = key_of_5(
        "storePathEpochFile",
        None,
        "file that says which master wrote what; empty: epochFileCheckpoint in storePathRootDir",
        needs="enableControllerMode",
    )
    store_path_broker_identity: str | None = key_of_5(
        "storePathBrokerIdentity",
        None,
        "file with the id of this broker; empty: brokerIdentity in storePathRootDir",
        needs="enableControllerMode",
    )

    @property
    def most_per_second(self) -> int:
        """Most bytes to one slave in a second; 0: no limit."""
        return self.max_ha_transfer_byte_in_second if self.ha_flow_control_enable else 0

    @property
    def controllers(self) -> tuple[str, ...]:
        """The addresses in `controllerAddr`, each once."""
        parts = (self.controller_addr or "").split(";")
        return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
