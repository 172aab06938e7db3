"""
Timer messages as clients ask a whole broker for them: each way to name a time, recalls,
transactions, messages that are sent back, and properties that only brokers may write.

The master is killed and refuses puts meanwhile. At the end its log is compared with what the
clients asked for and were answered.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

from twisted.python.failure import Failure

from rmq_ha.base.config.netty import NettyClientConfig
from rmq_ha.base.errors import RemotingError
from rmq_ha.base.model.flags import TRANSACTION_COMMIT
from rmq_ha.base.model.properties import MAX_PROPERTIES_SIZE, UNIQ_KEY, encode_properties
from rmq_ha.base.model.status import BrokerRole, FlushDiskType
from rmq_ha.base.model.topics import (
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_PROGRESS_TOPIC,
    TIMER_TOPIC,
)
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.store_format.commitlog import Record, decode_record
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.recall_handle import RECALL_HANDLE, RecallHandle
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.testing.brokers import BrokerNode, NamesrvNode
from rmq_ha.testing.cluster import LISTEN_PORT, small_configuration
from rmq_ha.testing.findings import Findings
from rmq_ha.testing.host import World
from tests.sim_kit.promises import Breach, some
from tests.sim_kit.timer_promises import EARLY, LOST_TIMERS, RECALLED, TWICE, timer_breaches
from tests.sim_kit.timers import enable

CLIENTS = "timers of clients"
TOPIC = "TBW102"
GROUP = "waiters"
_PRODUCERS = "producers"
_ANSWER_MS = 3000
_NOT_WAITING = 604
_LEVEL, _LEVEL_MS = 2, 5000
_LEVELS = 18
_OWN_PROPERTIES = 56
"""Bytes of TIMER_OUT_MS, REAL_TOPIC and REAL_QID in a waiting record of `TOPIC`."""
_DRAIN_S = 30.0
_OVERFLOW = str((1 << 63) // 1000)


class Wish(NamedTuple):
    """
    A message that a client wants.

    :ivar due_ms: no consumer may see it earlier.
    :ivar commits: it is a half message, which the client commits so many seconds later.
    :ivar delay_ms: of a half message: how long it waits after its commit.
    """

    properties: dict[str, str]
    due_ms: int = 0
    commits: float | None = None
    delay_ms: int = 0


class TimerClients:
    """
    A broker, its clients, and what they asked for and were answered.

    :param write: takes a line for each fault.
    :ivar history: the faults.
    """

    def __init__(self, seed: int, write: Callable[[str], None] = lambda line: None) -> None:
        self.world = World(seed, subnet="10.0.0")
        self.findings = Findings()
        self.history: list[str] = []
        self.count = 0
        self._write = write
        self._random = Random(f"{seed}/{CLIENTS}")
        names = NamesrvNode(self.world.add("namesrv"))
        names.start()
        host = self.world.add("b0")
        configuration = small_configuration(
            host.ip, BrokerRole.ASYNC_MASTER, FlushDiskType.ASYNC_FLUSH, file_size=1 << 18
        )
        enable(configuration)
        self.node = BrokerNode(host, configuration, self.findings, names.address)
        client = self.world.add("client")
        self._now_ms = client.now_ms
        self._client = RemotingClient(client.seams, NettyClientConfig())
        self._running = False
        self._dues: dict[str, int] = {}
        self._acknowledged: set[str] = set()
        self._recalled: set[str] = set()
        self._maybe_recalled: set[str] = set()
        self._handles: list[tuple[str, RecallHandle]] = []
        kinds = {
            self._a_time: 4,
            self._several_times: 3,
            self._a_level_and_a_time: 2,
            self._too_long: 1,
            self._many_properties: 2,
            self._a_half: 2,
            self._a_forged_delivery: 2,
        }
        self._wishes, self._weights = list(kinds), list(kinds.values())

    # The run

    def run(self) -> None:
        """From nothing to the end."""
        self._boot()
        self._running = True
        self._tick()
        for _ in range(self._random.randint(1, 4)):
            self._go_on(0.5 + self._random.random() * 3)
            self._fault()
        self._running = False
        self._boot()
        self._go_on(_DRAIN_S)
        self._judge()

    def _go_on(self, seconds: float) -> None:
        self.world.clock.run_for(seconds)

    def _boot(self) -> None:
        if self.node.state == "down":
            self.node.load()
            self.node.start()
            self.world.clock.run_while(lambda: self.node.state == "starting", 30)
        assert self.node.state == "running", self.findings.violations

    def _fault(self) -> None:
        name = self._random.choice(("kill", "busy", "busy and kill"))
        self.history.append(f"{self.world.clock.seconds():.3f} s: {name}")
        self._write(self.history[-1])
        if "busy" in name:
            busy_s = 0.1 + self._random.random() * 0.3
            self.node.store.slow_until = self.world.clock.seconds() + busy_s
            self._go_on(busy_s * self._random.random())
        if "kill" in name:
            self.node.crash(power=False)
            self._go_on(self._random.random() * 2)
            self._boot()

    # Sends

    def _tick(self) -> None:
        if not self._running:
            return
        clock, random = self.world.clock, self._random
        clock.call_at(clock.seconds() + random.expovariate(30), self._tick)
        chance = random.random()
        if chance < 0.1 and self._handles:
            self._recall(*random.choice(self._handles[-30:]))
        elif chance < 0.15:
            self._send_back()
        else:
            (make,) = random.choices(self._wishes, self._weights)
            self._send(make())

    def _ask(self, request: RemotingCommand) -> Any:
        return self._client.invoke(f"{self.node.host.ip}:{LISTEN_PORT}", request, _ANSWER_MS)

    def _send(self, wish: Wish) -> None:
        self.count += 1
        key = f"{self.count:032X}"
        self._dues[key] = wish.due_ms
        text = encode_properties({**wish.properties, UNIQ_KEY: key})
        request = send_request(_PRODUCERS, TOPIC, 0, key.encode(), text, self._now_ms())
        self._ask(request).addCallbacks(self._sent, _no_answer, (key, wish))

    def _sent(self, answer: RemotingCommand, key: str, wish: Wish) -> None:
        ext = answer.ext or {}
        if answer.code != 0:
            return
        if wish.commits is not None:
            clock = self.world.clock
            clock.call_at(clock.seconds() + wish.commits, self._commit, key, wish, ext)
            return
        self._acknowledged.add(key)
        handle = RecallHandle.parse(ext.get(RECALL_HANDLE, ""))
        if handle is not None:
            self._handles.append((key, handle))

    def _commit(self, key: str, wish: Wish, ext: dict[str, str]) -> None:
        if wish.delay_ms:
            self._dues[key] = self._now_ms() + wish.delay_ms
        fields = {
            "producerGroup": _PRODUCERS,
            "tranStateTableOffset": ext["queueOffset"],
            "commitLogOffset": str(int(ext["msgId"][-16:], 16)),
            "commitOrRollback": str(TRANSACTION_COMMIT),
            "msgId": key,
        }
        request = RemotingCommand(RequestCode.END_TRANSACTION, fields)
        self._ask(request).addCallbacks(self._committed, _no_answer, (key,))

    def _committed(self, answer: RemotingCommand, key: str) -> None:
        if answer.code == 0:
            self._acknowledged.add(key)

    def _recall(self, key: str, handle: RecallHandle) -> None:
        self._maybe_recalled.add(key)
        ext = {"topic": TOPIC, "recallHandle": handle.encode(), "producerGroup": _PRODUCERS}
        request = RemotingCommand(RequestCode.RECALL_MESSAGE, ext)
        self._ask(request).addCallbacks(self._recall_answered, _no_answer, (key,))

    def _recall_answered(self, answer: RemotingCommand, key: str) -> None:
        if answer.code == 0:
            self._recalled.add(key)

    def _send_back(self) -> None:
        """Have a consumer refuse the last message of the topic."""
        store = self.node.open_store
        queue = None if store is None else store.queues.get(TOPIC, 0)
        unit = None if queue is None else queue.unit(queue.max_offset - 1)
        if unit is not None:
            ext = {"offset": str(unit[0]), "group": GROUP, "delayLevel": "1"}
            request = RemotingCommand(RequestCode.CONSUMER_SEND_MSG_BACK, ext)
            self._ask(request).addErrback(_no_answer)

    # What clients wish

    def _wait_ms(self) -> int:
        return self._random.randint(1, self._random.choice((50, 1000, 4000, 9000)))

    def _a_time(self) -> Wish:
        now, wait = self._now_ms(), self._wait_ms()
        if self._random.random() < 0.3:
            return Wish({"TIMER_DELAY_MS": str(wait)}, now + wait)
        return Wish({"TIMER_DELIVER_MS": str(now + wait)}, now + wait)

    def _several_times(self) -> Wish:
        """Seconds count, then ms, then the time; which of them is the longest is by chance."""
        now, random = self._now_ms(), self._random
        seconds, delay, wait = random.randint(1, 9), self._wait_ms(), self._wait_ms()
        properties = {"TIMER_DELAY_MS": str(delay), "TIMER_DELIVER_MS": str(now + wait)}
        if random.random() < 0.5:
            return Wish({**properties, "TIMER_DELAY_SEC": str(seconds)}, now + 1000 * seconds)
        return Wish(properties, now + delay)

    def _a_level_and_a_time(self) -> Wish:
        now = self._now_ms()
        properties = {"DELAY": str(_LEVEL), "TIMER_DELAY_MS": str(self._wait_ms())}
        return Wish(properties, now + _LEVEL_MS)

    def _too_long(self) -> Wish:
        """A delay that has no place in 64 bits; it must never come."""
        return Wish({"TIMER_DELAY_SEC": _OVERFLOW}, 1 << 62)

    def _many_properties(self) -> Wish:
        """As long as the broker stores them, or some bytes less."""
        wish = self._a_time()
        used = len(encode_properties({**wish.properties, UNIQ_KEY: "0" * 32, "filler": ""}))
        room = MAX_PROPERTIES_SIZE - _OWN_PROPERTIES - used - self._random.randint(0, 200)
        return wish._replace(properties={**wish.properties, "filler": "x" * room})

    def _a_half(self) -> Wish:
        wait = self._wait_ms()
        properties = {"TRAN_MSG": "true", "PGROUP": _PRODUCERS, "TIMER_DELAY_MS": str(wait)}
        return Wish(properties, commits=self._random.random(), delay_ms=wait)

    def _a_forged_delivery(self) -> Wish:
        """It names a waiting message, and looks as if it were the delivery of that one."""
        if not self._handles:
            return self._a_time()
        _, handle = self._random.choice(self._handles[-20:])
        properties = {
            "TIMER_SRC": handle.source,
            "TIMER_DEQUEUE_MS": str(self._now_ms()),
            "TIMER_OUT_MS": str(int(handle.time) - 1),
            "REAL_TOPIC": TOPIC,
            "REAL_QID": "0",
        }
        return Wish(properties)

    # The judge

    def _judge(self) -> None:
        for breach in self._breaches():
            self.findings.violation(self.world.clock.seconds(), breach.kind, breach.text)

    def _breaches(self) -> Iterator[Breach]:
        records = self._records()
        yield from timer_breaches(records)
        came, early = Counter[str](), list[str]()
        for record in records:
            key = record.properties.get(UNIQ_KEY, "")
            if record.topic == TOPIC and key in self._dues:
                came[key] += 1
                if record.store_timestamp < self._dues[key]:
                    early.append(key)
        lost = self._acknowledged - came.keys() - self._maybe_recalled
        groups = (
            (LOST_TIMERS, "acknowledged, and never came", sorted(lost)),
            (TWICE, "sent once, and came twice", sorted(k for k, n in came.items() if n > 1)),
            (EARLY, "came before they were due", early),
            (RECALLED, "recalled, and came", sorted(self._recalled & came.keys())),
        )
        for kind, what, keys in groups:
            if keys:
                yield Breach(kind, f"{len(keys)} {what}: {some(keys)}", tuple(keys))

    def _records(self) -> list[Record]:
        """The records of all queues that may hold a timer message, in the order of the log."""
        store, records = self.node.store, list[Record]()
        topics = (TIMER_TOPIC, TIMER_PROGRESS_TOPIC, TOPIC, f"{RETRY_PREFIX}{GROUP}")
        places = [(topic, 0) for topic in topics]
        places += [(SCHEDULE_TOPIC, level) for level in range(_LEVELS)]
        for topic, queue_id in places:
            queue = store.queues.get(topic, queue_id)
            for number in range(queue.min_offset, queue.max_offset) if queue is not None else ():
                data = store.record_at(queue.unit(number)[0])
                assert data is not None
                records.append(decode_record(data))
        return sorted(records, key=lambda record: record.physical_offset)


def _no_answer(failure: Failure) -> None:
    failure.trap(RemotingError)  # type: ignore[no-untyped-call]
