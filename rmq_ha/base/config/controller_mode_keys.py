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
        "enableControllerMode",
        False,
        "true: controllers elect which of the brokers with this brokerName is the master. They "
        "also decide brokerRole and brokerId. A broker with brokerRole=SLAVE in its file is not "
        "elected before it has followed a master.",
    )
    controller_addr: str | None = key_of_5(
        "controllerAddr",
        None,
        "The host:port of every controller, separated by semicolons.",
        dialled=True,
        needs="enableControllerMode",
    )
    sync_controller_metadata_period: int = key_of_5(
        "syncControllerMetadataPeriod",
        10_000,
        "How often a broker asks the controllers which of them leads, ms.",
        needs="enableControllerMode",
    )
    sync_broker_metadata_period: int = key_of_5(
        "syncBrokerMetadataPeriod",
        5_000,
        "How often a broker asks the controllers which broker is the master, ms.",
        needs="enableControllerMode",
    )
    broker_heartbeat_interval: int = key_of_5(
        "brokerHeartbeatInterval",
        1_000,
        "How often a broker sends a heartbeat to the controllers, ms.",
        needs="enableControllerMode",
    )
    controller_heart_beat_timeout_mills: int = key_of_5(
        "controllerHeartBeatTimeoutMills",
        10_000,
        "After how many ms without a heartbeat the controllers take this broker for dead. A "
        "master takes no messages after 0.8 of this time without an answer, so that it stops "
        "before another broker is elected. A smaller value makes a fail-over quicker, and a "
        "slow network then causes elections.",
        needs="enableControllerMode",
    )
    broker_election_priority: int = key_of_5(
        "brokerElectionPriority",
        2**31 - 1,
        "Which broker is elected if several have the same log: the one with the smallest number.",
        needs="enableControllerMode",
    )
    all_ack_in_sync_state_set: bool = key_of_5(
        "allAckInSyncStateSet",
        False,
        "true: a put waits for every broker in sync, so no election loses an acknowledged "
        "message. false: inSyncReplicas decides.",
        needs="enableControllerMode",
    )
    in_sync_replicas: int = key_of_5(
        "inSyncReplicas",
        1,
        "How many brokers have to have a message before it is acknowledged, if "
        "allAckInSyncStateSet=false. The master counts. With 1, an election may lose "
        "acknowledged messages.",
        needs="enableControllerMode",
    )
    min_in_sync_replicas: int = key_of_5(
        "minInSyncReplicas",
        1,
        "A master refuses messages while fewer brokers than this are in sync. The master counts.",
        needs="enableControllerMode",
    )
    ha_max_time_slave_not_catchup: int = key_of_5(
        "haMaxTimeSlaveNotCatchup",
        15_000,
        "A slave that lacks messages of the master and makes no progress for so many ms no "
        "longer counts as in sync.",
        needs="enableControllerMode",
    )
    ha_flow_control_enable: bool = key_of_5(
        "haFlowControlEnable",
        False,
        "true: a master sends each slave at most maxHaTransferByteInSecond.",
        needs="enableControllerMode",
    )
    max_ha_transfer_byte_in_second: int = key_of_5(
        "maxHaTransferByteInSecond",
        100 << 20,
        "The most bytes that a master sends to each slave in a second, if "
        "haFlowControlEnable=true.",
        least=4096,
        needs="enableControllerMode",
    )
    sync_from_last_file: bool = key_of_5(
        "syncFromLastFile",
        False,
        "true: a slave with an empty store copies only the last file of the master's log. "
        "false: it copies the whole log.",
        needs="enableControllerMode",
    )
    async_learner: bool = key_of_5(
        "asyncLearner",
        False,
        "true: this broker copies the master's log, but never counts as in sync, so it is never "
        "elected.",
        needs="enableControllerMode",
    )
    store_path_epoch_file: str | None = key_of_5(
        "storePathEpochFile",
        None,
        "The file that says at which offset each master began to write the log. Empty: "
        "epochFileCheckpoint in storePathRootDir.",
        needs="enableControllerMode",
    )
    store_path_broker_identity: str | None = key_of_5(
        "storePathBrokerIdentity",
        None,
        "The file with the id that the controllers gave this broker. Empty: brokerIdentity in "
        "storePathRootDir.",
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
