"""The keys of a broker in controller mode, and its start rules.

Spec: controller.md, sections 2.1 and 2.2.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmq_ha.config.dledger_settings import parse_peers
from rmq_ha.config.fields import fields_by_key, key
from rmq_ha.config.settings import Notice, Setting
from rmq_ha.model.status import BrokerRole

if TYPE_CHECKING:
    from rmq_ha.config.broker_configuration import BrokerConfiguration

UNDECIDED_BROKER_ID = -1
"""Until a controller says more."""
_OVERWRITTEN = ("brokerRole", "brokerId", "haMasterAddress")


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


def is_controlled(configuration: "BrokerConfiguration") -> bool:
    """Controllers say what this broker is."""
    return configuration.controlled.enable_controller_mode


def apply_controller_mode(
    configuration: "BrokerConfiguration",
    settings: Mapping[str, Setting],
    notices: list[Notice],
) -> None:
    """
    Check the keys of controller mode, and set what an election will overwrite.

    :raises ConfigurationError: a key is missing or does not fit the others.
    """
    mode = configuration.controlled
    if not mode.enable_controller_mode:
        notices += [
            Notice(
                f"{settings[name].where}: {name} has no effect without enableControllerMode=true"
            )
            for name, item in fields_by_key(ControllerModeConfig).items()
            if name in settings and getattr(mode, item.name) != item.default
        ]
        return
    where = settings["enableControllerMode"]
    if configuration.store.enable_dleger_commit_log:
        raise where.error("a DLedger group elects for itself: enableDLegerCommitLog must be false")
    if not mode.controllers and configuration.ours.enable_controller_in_namesrv:
        peers = parse_peers(configuration.controller.controller_dleger_peers)
        mode.controller_addr = ";".join(peers.values())
    if not mode.controllers:
        raise where.error("controllerAddr is missing: host:port of every controller, with ;")
    for address in mode.controllers:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise settings["controllerAddr"].error(f"{address!r} is no host:port")
    for name, value, least in (
        ("inSyncReplicas", mode.in_sync_replicas, 1),
        ("minInSyncReplicas", mode.min_in_sync_replicas, 1),
        ("brokerHeartbeatInterval", mode.broker_heartbeat_interval, 100),
        ("controllerHeartBeatTimeoutMills", mode.controller_heart_beat_timeout_mills, 1000),
    ):
        if value < least:
            raise settings[name].error(f"must be {least} at least")
    configuration.was_slave = configuration.store.broker_role is BrokerRole.SLAVE
    for name in _OVERWRITTEN:
        if name == "brokerRole" and configuration.was_slave:
            told = "brokerRole=SLAVE: never elected before it has followed a master"
            notices.append(Notice(f"{settings[name].where}: {told}"))
        elif name in settings:
            notices.append(
                Notice(f"{settings[name].where}: {name} has no effect: the controllers decide")
            )
    root = configuration.store.store_path_root_dir
    mode.store_path_epoch_file = mode.store_path_epoch_file or f"{root}/epochFileCheckpoint"
    mode.store_path_broker_identity = mode.store_path_broker_identity or f"{root}/brokerIdentity"
    configuration.broker.broker_id = UNDECIDED_BROKER_ID
    configuration.store.broker_role = BrokerRole.ASYNC_MASTER
    configuration.store.ha_master_address = None
    is_embedded = configuration.ours.enable_controller_in_namesrv
    if configuration.broker.namesrv_addr is None and not is_embedded:
        notices.append(
            Notice("without namesrvAddr no client finds this broker, whatever it is elected for")
        )
