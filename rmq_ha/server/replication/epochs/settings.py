"""The settings of controller mode.

Spec: controller.md, sections 2.1 and 2.2.
"""

from dataclasses import dataclass

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.model.status import FlushDiskType
from rmq_ha.server.controller.messages import LEAST_PRIORITY
from rmq_ha.server.store.log.journal_log import LogBytes


@dataclass(slots=True, kw_only=True)
class ReplicationSettings:
    """
    Settings of replication. They are read at each use, since they may change while the broker runs.
    Times are in milliseconds.

    :ivar all_ack_in_sync_state_set: whether a put waits until every member of the set has it.
    :ivar in_sync_replicas: number of brokers, including the master, that have to hold a put if
        all_ack_in_sync_state_set is false.
    :ivar min_in_sync_replicas: puts are refused while the set is smaller.
    :ivar ha_max_time_slave_not_catchup: a member that is behind leaves the set when it makes no
        progress for this time.
    :ivar broker_heartbeat_interval: interval of the heartbeats to the controllers.
    :ivar ha_send_heartbeat_interval: interval of the heartbeats on an idle connection.
    :ivar ha_housekeeping_interval: a connection is closed when its other end is silent for this
        time.
    :ivar ha_transfer_batch_size: the largest body of a frame in bytes.
    :ivar max_transfer_per_second: bytes to one slave, headers included; 0: no limit.
    :ivar sync_from_last_file: whether this broker, as an empty slave, wants only the master's last
        file.
    :ivar async_learner: whether this broker, as a slave, never joins the set.
    :ivar sync_flush: whether a broker counts only the part of the log that is on the disk, for
        itself and in reports.
    """

    all_ack_in_sync_state_set: bool = False
    in_sync_replicas: int = 1
    min_in_sync_replicas: int = 1
    ha_max_time_slave_not_catchup: int = 15_000
    broker_heartbeat_interval: int = 1_000
    ha_send_heartbeat_interval: int = 5_000
    ha_housekeeping_interval: int = 20_000
    ha_transfer_batch_size: int = 32_768
    max_transfer_per_second: int = 0
    sync_from_last_file: bool = False
    async_learner: bool = False
    sync_flush: bool = False

    def counted(self, log: LogBytes) -> int:
        """Return the offset up to which this broker claims to have its log."""
        return int(log.flushed_offset if self.sync_flush else log.max_offset)


@dataclass(frozen=True, kw_only=True, slots=True)
class ManagerSettings:
    """
    Settings of the manager. Times are in milliseconds. Spec: controller.md, section 2.1.

    :ivar broker_address: `brokerIP1:listenPort`.
    :ivar controllers: the addresses in `controllerAddr`.
    :ivar retry_interval: pause after a failure; 5.3.3 waits 5 s.
    """

    cluster_name: str
    broker_name: str
    broker_address: str
    controllers: tuple[str, ...]
    sync_controller_metadata_period: int = 10_000
    sync_broker_metadata_period: int = 5_000
    broker_heartbeat_interval: int = 1_000
    controller_heart_beat_timeout_mills: int = 10_000
    broker_election_priority: int = LEAST_PRIORITY
    retry_interval: int = 1_000


def replication_settings(configuration: BrokerConfiguration) -> ReplicationSettings:
    """Make the settings of replication from a broker's properties."""
    mode, store = configuration.controlled, configuration.store
    return ReplicationSettings(
        all_ack_in_sync_state_set=mode.all_ack_in_sync_state_set,
        in_sync_replicas=mode.in_sync_replicas,
        min_in_sync_replicas=mode.min_in_sync_replicas,
        ha_max_time_slave_not_catchup=mode.ha_max_time_slave_not_catchup,
        broker_heartbeat_interval=mode.broker_heartbeat_interval,
        ha_send_heartbeat_interval=store.ha_send_heartbeat_interval,
        ha_housekeeping_interval=store.ha_housekeeping_interval,
        ha_transfer_batch_size=store.ha_transfer_batch_size,
        max_transfer_per_second=mode.most_per_second,
        sync_from_last_file=mode.sync_from_last_file,
        async_learner=mode.async_learner,
        sync_flush=store.flush_disk_type is FlushDiskType.SYNC_FLUSH,
    )


def manager_settings(configuration: BrokerConfiguration) -> ManagerSettings:
    """Make the settings of the manager from a broker's properties."""
    broker, mode = configuration.broker, configuration.controlled
    return ManagerSettings(
        cluster_name=broker.broker_cluster_name,
        broker_name=broker.broker_name or "",
        broker_address=f"{broker.broker_ip1}:{configuration.server.listen_port}",
        controllers=mode.controllers,
        sync_controller_metadata_period=mode.sync_controller_metadata_period,
        sync_broker_metadata_period=mode.sync_broker_metadata_period,
        broker_heartbeat_interval=mode.broker_heartbeat_interval,
        controller_heart_beat_timeout_mills=mode.controller_heart_beat_timeout_mills,
        broker_election_priority=mode.broker_election_priority,
    )
