"""Shows and changes a broker's configuration, and shows its runtime info: codes 25, 26 and 28.

Spec: remoting.md, section 7.9.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

import rmq_ha
from rmq_ha.base.config import load, properties
from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.remote_change import refusal
from rmq_ha.base.errors import ConfigurationError, RequestRejected
from rmq_ha.base.model.data_version import DataVersion
from rmq_ha.base.model.printable import NamedValues
from rmq_ha.base.remoting.channel import Channel
from rmq_ha.base.wire import fastjson
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import VERSION, RemotingCommand
from rmq_ha.base.wire.door_facts import DOOR, POPPING
from rmq_ha.base.wire.stat_bodies import HALF, MOST_HALF_OFFSETS, OLDEST_HALF, REPLICATION_KEY
from rmq_ha.base.wire.timer_bodies import TIMERS
from rmq_ha.base.wire.versions import version_name
from rmq_ha.server.broker.processors.fields import Handler
from rmq_ha.server.broker.stats import BrokerStats
from rmq_ha.server.store.timer.reports import TimerReport, TimerWork

_MOST_MISSING = 50


class TellsRuntimeInfo(Protocol):
    """A part of a broker that adds values to the runtime info."""

    def runtime_info(self) -> dict[str, str]:
        """Return values by their keys in the answer to GET_BROKER_RUNTIME_INFO."""


class TellsTimers(TellsRuntimeInfo, Protocol):
    """The part of the store that keeps timer messages."""

    def report(self) -> TimerReport:
        """Return how many timer messages wait, and how far their delivery has come."""


class RuntimeInfoStore(TellsRuntimeInfo, Protocol):
    """The parts of the store that tell runtime info."""

    @property
    def timers(self) -> TellsTimers: ...


class MoreRuntimeInfo(NamedTuple):
    """
    The parts of the answers that come neither from the store nor from the statistics.

    :ivar processors: the number of processors of this machine.
    :ivar replication: returns the state of the pair or group for `rmqha-admin`; the answer adds
        this broker's time and release.
    :ivar missing_groups: returns groups that have members but do not exist at this broker.
    :ivar open_half_offsets: returns the queue offsets of open half messages by queue, at most so
        many of each; None: this broker does not know them.
    :ivar door: returns the state of the gRPC port, see `DoorFacts`; empty without one.
    :ivar popping: returns the pairs of topic and group whose mode is POP.
    :ivar oldest_half: returns the open half messages as `OldestHalf`; None: this broker does not
        know them.
    """

    processors: int = 1
    replication: Callable[[], Mapping[str, Any]] = dict
    missing_groups: Callable[[], list[str]] = list
    open_half_offsets: Callable[[int], Mapping[int, list[int]] | None] = lambda _: None
    door: Callable[[], Mapping[str, Any]] = dict
    popping: Callable[[], list[tuple[str, str]]] = list
    oldest_half: Callable[[], Mapping[str, Any] | None] = lambda: None


_NOTHING_MORE = MoreRuntimeInfo()


class AdminConfigProcessor:
    """
    Shows and changes the configuration, and shows the runtime info.

    :param permission_changed: registers all topics with the name servers again.
    :param save: writes changed keys to the configuration file. Its Deferred fires when that is done
        or has failed, and never fails.
    :param more: values of other parts of the broker, for the answers.
    """

    log = Logger()

    def __init__(
        self,
        *,
        store: RuntimeInfoStore,
        stats: BrokerStats,
        configuration: BrokerConfiguration,
        now_ms: Callable[[], int],
        permission_changed: Callable[[], object],
        save: "Callable[[Mapping[str, str]], Deferred[Any]]",
        more: MoreRuntimeInfo = _NOTHING_MORE,
    ) -> None:
        self._store = store
        self._stats = stats
        self._configuration = configuration
        self._now_ms = now_ms
        self._permission_changed = permission_changed
        self._save = save
        self._more = more
        self._version = DataVersion(now_ms(), 0)
        self._release = rmq_ha.__version__

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update_config,
            RequestCode.GET_BROKER_CONFIG: self.get_config,
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime_info,
        }

    def get_config(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_BROKER_CONFIG (26) with `key=value` lines."""
        lines = [line for line in load.render(self._configuration) if not line.endswith("=")]
        if self._configuration.unserved.clientCallbackExecutorThreads is None:
            # Java's default; `mqadmin exportMetrics` takes it for the number of processors.
            lines.append(f"clientCallbackExecutorThreads={self._more.processors}")
        return request.response(
            ext={"version": fastjson.encode(self._version).decode()},
            body="".join([f"{line}\n" for line in lines]).encode("utf-8", "replace"),
        )

    def update_config(
        self, channel: Channel, request: RemotingCommand
    ) -> "RemotingCommand | Deferred[RemotingCommand | None]":
        """
        Answer UPDATE_BROKER_CONFIG (25): change the configuration and its file.

        Unknown keys are ignored, as in Java; of the other keys all are changed or none.
        """
        if request.body is None:
            return request.response()
        try:
            items = properties.parse(request.body.decode("utf-8", "replace"))
            changes = {item.key: item.value.strip() for item in items}
            self._refuse_fixed(changes)
            known = load.update(self._configuration, changes)
        except ConfigurationError as error:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, str(error)) from None
        if not known:
            return request.response()
        self._version.next_version(self._now_ms())
        self.log.info(
            "configuration changed by {peer}{changes}",
            peer=channel.remote_text,
            changes=NamedValues({key: changes[key] for key in known}),
        )
        if "brokerPermission" in known:
            self._permission_changed()
        saved = self._save({key: changes[key] for key in known})
        return saved.addCallback(lambda _: request.response())

    def runtime_info(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """
        Answer GET_BROKER_RUNTIME_INFO (28) with a KVTable.

        Queue sizes are 0, since requests to this broker do not wait in queues for threads.
        """
        broker, unserved = self._configuration.broker, self._configuration.unserved
        table = {
            "brokerVersion": str(VERSION),
            "brokerVersionDesc": version_name(VERSION),
            "startAcceptSendRequestTimeStamp": str(broker.start_accept_send_request_time_stamp),
            "EndTransactionQueueSize": "0",
            "EndTransactionThreadPoolQueueCapacity": str(unserved.endTransactionPoolQueueCapacity),
            "remainTransientStoreBufferNumbs": "2147483647",
        }
        for name, capacity in (
            ("send", broker.send_thread_pool_queue_capacity),
            ("pull", unserved.pullThreadPoolQueueCapacity),
            ("query", unserved.queryThreadPoolQueueCapacity),
        ):
            table[f"{name}ThreadPoolQueueSize"] = "0"
            table[f"{name}ThreadPoolQueueCapacity"] = str(capacity)
            table[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = "0"
        table |= self._stats.runtime_info()
        table |= self._store.runtime_info()
        if self._configuration.ours.timer_wheel_enable:
            table |= self._store.timers.runtime_info()
        if REPLICATION_KEY in (request.ext or {}):
            own: dict[str, Any] = {"now_ms": self._now_ms(), "release": self._release}
            if missing := self._more.missing_groups():
                own["missing_groups"] = missing[:_MOST_MISSING]
            if door := self._more.door():
                own[DOOR] = dict(door)
            if popping := self._more.popping():
                own[POPPING] = popping[:_MOST_MISSING]
            half = self._more.open_half_offsets(MOST_HALF_OFFSETS)
            if half is not None:
                own[HALF] = {str(queue_id): offsets for queue_id, offsets in half.items()}
            oldest = self._more.oldest_half()
            if oldest is not None:
                own[OLDEST_HALF] = dict(oldest)
            timers = self._store.timers.report()
            if timers.work is not TimerWork.OFF or timers.waiting:
                own[TIMERS] = timers._asdict()
            table[REPLICATION_KEY] = json.dumps({**self._more.replication(), **own})
        return request.response(body=fastjson.encode({"table": table}))

    def _refuse_fixed(self, changes: Mapping[str, str]) -> None:
        """
        Refuse changes of keys that are fixed.

        :raises RequestRejected: a key needs a restart, or must not be changed over the network.
        """
        refused = refusal(changes)
        if refused is not None:
            raise RequestRejected(ResponseCode.NO_PERMISSION, refused)
        fixed = load.update_refusal(self._configuration, changes)
        if fixed is not None:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, fixed)
