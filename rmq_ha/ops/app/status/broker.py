"""A broker's metrics and health, read from it when somebody asks."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from rmq_ha.base.model.status import PutMessageStatus
from rmq_ha.base.model.topics import SCHEDULE_TOPIC
from rmq_ha.base.remoting.dispatcher import OTHER_CODES
from rmq_ha.base.runs.maker import CHOICE, faults
from rmq_ha.base.wire.codes import ResponseCode
from rmq_ha.base.wire.command import VERSION
from rmq_ha.base.wire.versions import version_name
from rmq_ha.ops.app.journals.journal_view import journal_view
from rmq_ha.ops.app.status.exporter import collect_runtime
from rmq_ha.ops.app.status.health import Health
from rmq_ha.ops.app.status.samples import Samples
from rmq_ha.ops.app.status.traffic import OTHERS, Traffic
from rmq_ha.server.acl.service import PlainAccessControl
from rmq_ha.server.broker.slave import SlaveCopies

_DEGRADED = (
    PutMessageStatus.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.SLAVE_NOT_AVAILABLE,
)
_CODES = {int(code): code.name for code in ResponseCode} | {OTHER_CODES: OTHERS}


class BrokerStatus:
    """
    The metrics and health of a running `Broker`.

    :param broker: a broker, started or not.
    :ivar journal: shows the broker's kind of journal.
    """

    def __init__(self, broker: Any) -> None:
        self._broker = broker
        configuration = broker.configuration
        self._store_config = configuration.store
        self.journal = journal_view(broker)
        self._clock = broker.host.clock
        self._began = self._clock.seconds()
        self._traffic = Traffic(broker, configuration.ours.metrics_series_limit)

    def constants(self) -> dict[str, str]:
        identity, store = self._broker.identity, self._broker.store
        return {
            "cluster": identity.cluster,
            "broker": identity.broker_name,
            "broker_id": str(identity.broker_id),
            "node_type": "broker",
            "node_id": identity.broker_name,
            "storage_type": "local",
            "storage_medium": "disk",
            "brokerIP": identity.address,
            "brokerHost": identity.broker_name,
            "des": version_name(VERSION),
            "boottime": str(store.statistics.boot_ms),
            "broker_version": str(VERSION),
        }

    def collect(self, samples: Samples) -> None:
        self._collect_broker(samples)
        self._collect_store(samples)
        self._collect_puts(samples)
        self._collect_network(samples)
        self.journal.collect(samples)
        if self._broker.is_slave:
            self._collect_slave(samples)
        else:
            self._collect_delayed(samples)
        self._collect_exporter(samples)
        self._traffic.collect(samples)

    def health(self) -> Health:
        """Return whether clients can be served, and faults that do not prevent it."""
        broker, store = self._broker, self._broker.store
        name = f"{self._store_config.broker_role.name} {broker.identity.broker_name}"
        if not store.is_open:
            return Health(False, f"{name}: the store is not open")
        return self.journal.health(name)

    def _collect_broker(self, samples: Samples) -> None:
        broker = self._broker
        role, version = self._store_config.broker_role.name, version_name(VERSION)
        samples.add("rmqha_broker_info", 1, role=role, version=version)
        samples.add("rmqha_broker_ready", self.health().is_ready)
        samples.add("rmqha_broker_uptime_seconds", self._clock.seconds() - self._began)
        samples.add("rocketmq_broker_permission", broker.configuration.broker.broker_permission)
        samples.add("rocketmq_topic_number", len(broker.topics.table))
        samples.add("rocketmq_consumer_group_number", len(broker.groups.table))
        samples.add("rmqha_registration_failures_total", broker.registration.failures)

    def _collect_store(self, samples: Samples) -> None:
        store = self._broker.store
        log, dispatched = store.log, store.dispatcher.position
        offsets = {
            "min": max(log.min_offset, 0),
            "max": log.max_offset,
            "flushed": log.flushed_offset,
            "dispatched": dispatched,
        }
        for which, offset in offsets.items():
            samples.add("rmqha_log_offset_bytes", offset, which=which)
        samples.add("rocketmq_storage_size", offsets["max"] - offsets["min"])
        samples.add(
            "rocketmq_storage_flush_behind_bytes", max(0, log.max_offset - log.flushed_offset)
        )
        samples.add("rocketmq_storage_dispatch_behind_bytes", max(0, store.dispatcher.bytes_behind))
        samples.add("rmqha_store_writable", store.is_writable)
        samples.add("rmqha_set_aside_bytes_total", store.statistics.set_aside_bytes)
        samples.add("rmqha_set_aside_messages_total", store.statistics.set_aside_messages)
        samples.add("rmqha_queues", len(store.queues.items()))
        samples.add("rmqha_damaged_messages_total", store.damage.lost)
        samples.add("rmqha_mended_units_total", store.damage.mended)
        samples.add("rmqha_forced_deletions_total", store.cleaner.forced_deletions)
        samples.add("rmqha_disk_used_ratio", store.cleaner.log_ratio(), of="commitlog")
        samples.add("rmqha_disk_used_ratio", store.cleaner.queue_ratio(), of="consumequeue")

    def _collect_puts(self, samples: Samples) -> None:
        outcomes = self._broker.store.statistics.outcomes
        samples.add_histogram("rmqha_put_seconds", outcomes.seconds)
        samples.add_histogram("rmqha_replica_wait_seconds", outcomes.replica_seconds)
        samples.add_histogram("rmqha_flush_wait_seconds", outcomes.flush_seconds)
        samples.add("rmqha_puts_waiting", outcomes.waiting)
        for status in _DEGRADED:
            count = outcomes.degraded.get(status, 0)
            samples.add("rmqha_degraded_acks_total", count, reason=status.name)
        samples.add("rmqha_duplicate_sends_total", outcomes.known)
        for way, count in self._broker.stats.ways.counts().items():
            samples.add("rmqha_sends_total", count, maker=CHOICE.name, way=way)
        for function, count in faults().items():
            samples.add("rmqha_kernel_faults_total", count, function=function)
        refused = {PutMessageStatus.SERVICE_NOT_AVAILABLE: 0, **outcomes.refused}
        for status, count in refused.items():
            samples.add("rmqha_refused_puts_total", count, reason=status.name)

    def _collect_network(self, samples: Samples) -> None:
        broker = self._broker
        negative: dict[int, int] = {}
        violations = 0
        for port, server in (("main", broker.main_server), ("fast", broker.fast_server)):
            samples.add("rmqha_connections", server.connections, port=port)
            samples.add("rmqha_connections_accepted_total", server.accepted, port=port)
            violations += server.dispatcher.violations
            for code, count in server.dispatcher.negative.items():
                negative[code] = negative.get(code, 0) + count
        for code, count in negative.items():
            samples.add("rmqha_negative_answers_total", count, code=_CODES[code])
        if broker.grpc is not None:
            violations += broker.grpc.server.counters.violations
        samples.add("rmqha_protocol_violations_total", violations)
        frames = broker.main_server.frames  # includes those of the fast port
        for key, count in broker.limits.refused.items():
            samples.add("rmqha_oversized_requests_total", count, reason=key)
        for table in (broker.topics, broker.groups):
            samples.add("rmqha_not_created_total", table.not_created, reason=table.most_key)
        samples.add("rmqha_unfinished_bytes", frames.kept)
        samples.add("rmqha_put_off_frames_total", frames.waits)
        turns = broker.main_server.turns
        samples.add("rmqha_put_off_requests_total", turns.put_off)
        for key, count in turns.quotas.held_back.items():
            samples.add("rmqha_held_back_connections_total", count, reason=key)
        for key, count in frames.dropped.items():
            samples.add("rmqha_dropped_frames_total", count, reason=key)
        for control in broker.access_controls:
            if isinstance(control, PlainAccessControl):
                samples.add("rmqha_acl_previous_secret_total", control.previous_secrets)
                samples.add("rmqha_acl_odd_times_total", control.odd_times)
                for kind, count in control.refused.items():
                    samples.add("rmqha_acl_refused_total", count, reason=kind.value)
        samples.add("rmqha_refused_offsets_total", broker.client_offsets.refused)
        samples.add("rmqha_forwarded_requests_total", broker.forwarding.forwarded)
        samples.add("rmqha_forwarding_connections", len(broker.forwarding))
        for name, count in broker.unserved.refused.items():
            samples.add("rmqha_refused_properties_total", count, reason=name)
        samples.add("rmqha_held_pulls", len(broker.hold))
        self._collect_pops(samples)
        if broker.grpc is not None:
            self._collect_grpc(samples)

    def _collect_pops(self, samples: Samples) -> None:
        broker = self._broker
        if not broker.pops.is_enabled:
            return
        counters = broker.pops.counters()
        samples.add("rmqha_held_pops", len(broker.pop_holds))
        samples.add("rmqha_pop_messages_out", counters.out)
        samples.add("rmqha_pop_messages_total", counters.popped)
        samples.add("rmqha_pop_acks_total", counters.acked)
        samples.add("rmqha_pop_changes_total", counters.changed)
        samples.add("rmqha_pop_retries_total", counters.retried)
        samples.add("rmqha_pop_dead_letters_total", counters.dead)
        samples.add("rmqha_pop_dropped_total", counters.gone)
        samples.add("rmqha_pop_stale_acks_total", counters.stale)
        samples.add("rmqha_pop_journal_behind_bytes", counters.journal_behind)

    def _collect_grpc(self, samples: Samples) -> None:
        service, server = self._broker.grpc.service, self._broker.grpc.server
        samples.add("rmqha_connections", len(server.peers), port="grpc")
        samples.add("rmqha_connections_accepted_total", server.counters.accepted, port="grpc")
        clients = Counter(client.identity.language for client in service.clients.all())
        for language, count in clients.items():
            samples.add("rmqha_grpc_clients", count, language=language)
        for (method, code), count in service.answers.items():
            samples.add("rmqha_grpc_answers_total", count, method=method, code=code)
        for reason, count in server.counters.closed.items():
            samples.add("rmqha_grpc_closed_total", count, reason=reason)

    def _collect_slave(self, samples: Samples) -> None:
        since_start = self._clock.seconds() - self._began
        copies: SlaveCopies = self._broker.slave_synchronize.statistics()
        samples.add("rmqha_slave_sync_streamed", copies.is_streamed)
        for table, copy in copies.tables.items():
            age = copy.age_seconds
            samples.add(
                "rmqha_slave_sync_age_seconds", since_start if age is None else age, table=table
            )
            samples.add("rmqha_slave_sync_failures_total", copy.failures, table=table)

    def _collect_delayed(self, samples: Samples) -> None:
        store = self._broker.store
        if store.older is not None:
            for name, figure in store.older.figures().items():
                samples.add(f"rmqha_tier_{name}", figure)
        if store.timers.is_enabled:
            samples.add("rmqha_timer_messages", store.timers.waiting)
            samples.add("rmqha_timer_overdue_seconds", store.timers.overdue_ms() / 1000)
        for level, waiting in self.waiting_by_level():
            samples.add("rmqha_delayed_messages", waiting, level=level)
        half = self._broker.transaction_checks.open_transactions()
        if half is not None:
            age_ms = max(0, self._broker.host.now_ms() - half.born_ms) if half.number else 0
            samples.add("rmqha_half_messages", half.number)
            samples.add("rmqha_half_message_age_seconds", age_ms / 1000)

    def delayed_total(self) -> int:
        """Return how many messages with a delay level wait for their time."""
        return sum(waiting for _, waiting in self.waiting_by_level())

    def waiting_by_level(self) -> Iterator[tuple[int, int]]:
        """Yield each delay level that ever had a message, and how many of its messages wait."""
        store, delivered = self._broker.store, self._broker.delay_offset_table()
        for level in sorted({*store.schedule.levels, *delivered}):
            end = store.max_offset_in_queue(SCHEDULE_TOPIC, level - 1)
            first = store.min_offset_in_queue(SCHEDULE_TOPIC, level - 1)
            if end or level in delivered:  # the first delivery of a level may be yet to come
                yield level, max(0, end - max(first, delivered.get(level, 0)))

    def _collect_exporter(self, samples: Samples) -> None:
        broker, store = self._broker, self._broker.store
        starts = broker.configuration.broker.start_accept_send_request_time_stamp
        info = {
            "startAcceptSendRequestTimeStamp": str(starts),
            **broker.stats.runtime_info(),
            **store.runtime_info(),
        }
        collect_runtime(samples, info)
        usage = broker.host.disk.usage(store.log.directories[0])
        if usage is not None:
            samples.add("rocketmq_brokeruntime_commitlogdir_capacity_total", usage.total)
            samples.add("rocketmq_brokeruntime_commitlogdir_capacity_free", usage.usable)
        oldest = int(info["earliestMessageTimeStamp"])
        if oldest > 0:
            age_ms = max(0, broker.host.now_ms() - oldest)
            samples.add("rocketmq_storage_message_reserve_time", age_ms)
        for name, figure in (("tps", "BROKER_PUT_NUMS"), ("qps", "BROKER_GET_NUMS")):
            growths = broker.stats.growths(figure, broker.identity.cluster)
            rate = growths[0].per_second if growths else 0.0
            samples.add(f"rocketmq_broker_{name}", rate)
