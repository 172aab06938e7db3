"""A broker, a name server and clients in one process, on a clock that the test winds.

A test looks like this; the sleep takes no real time::

    world = ClientWorld(seed=1)

    async def story():
        async with world.connect() as client:
            ...
            await asyncio.sleep(7200)

    world.run(story())
"""

from asyncio import Runner, events, get_running_loop, timeout
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, Self, TypeVar, Unpack

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rmq_ha.base.model.process import Process
from rmq_ha.base.model.status import BrokerRole, FlushDiskType
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.client.aio import Client
from rmq_ha.client.connection.instance import ClientInstance
from rmq_ha.client.rules.messages import MessageExt, decode_messages
from rmq_ha.client.rules.options import ClientOptions, client_settings
from rmq_ha.client.rules.settings import ClientConfig
from rmq_ha.server.broker.broker import Broker
from rmq_ha.testing.brokers import NamesrvNode
from rmq_ha.testing.cluster import small_configuration
from rmq_ha.testing.host import SimHost, World
from rmq_ha.testing.sim_loop import SimLoop

T = TypeVar("T")

LIMIT_SECONDS = 21_600.0
"""
Simulated seconds after which a story ends with TimeoutError, because it waits for something that
never comes.
"""
_WARM_UP_SECONDS = 15.0
_PERSIST_MS = 30_000
_FILE_SIZE = 1 << 20
_BATCH = 1024
_QUEUES = 2


class ClientWorld:
    """
    A broker, or a pair, that serves from the start, and any number of clients.

    Everything runs the code of the product; only clock, network, disk and chance are simulated. A
    run depends on nothing but the seed and the test's actions.

    :ivar world: the machines; use it for faults that this class has no method for:
        `world.network.drop`.
    :ivar namesrv_addr: address of the name server.
    """

    def __init__(
        self, seed: int = 1, *, pair: bool = False, duplicate_window_millis: int = 0
    ) -> None:
        """
        :param pair: run a SYNC_MASTER with its slave, not a single broker.
        :param duplicate_window_millis: the brokers' setting, needed by producers with
            `idempotent=True`.
        """
        self._window_ms = duplicate_window_millis
        self.world = World(seed)
        self._names = NamesrvNode(self.world.add("namesrv"))
        self._names.start()
        self.namesrv_addr = self._names.address
        self._brokers: dict[str, Any] = {}
        self._is_paused = False
        self._loop = SimLoop(self.world.clock)
        self._runner = Runner(loop_factory=lambda: self._loop)
        self._master, self._slave = "broker-1", "broker-2" if pair else ""
        self._role = BrokerRole.SYNC_MASTER if pair else BrokerRole.ASYNC_MASTER
        self.start_master()
        if pair:
            self._start(self._slave, BrokerRole.SLAVE)
        self.wind(_WARM_UP_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """
        End the simulation.

        :raises Exception: an exception that a timer or a protocol raised during the simulation.
        """
        with self._outside_loop():
            self._runner.close()
        self._loop.close()
        for failure in self.world.clock.failures:
            failure.raiseException()

    @contextmanager
    def _outside_loop(self) -> Iterator[None]:
        """
        Leave a running event loop while the block runs: pytest-twisted calls tests from its
        reactor, which may run on one.
        """
        outer = events._get_running_loop()
        if outer is not self._loop:
            events._set_running_loop(None)
        try:
            yield
        finally:
            events._set_running_loop(outer)

    # Clients

    def connect(
        self, settings: ClientConfig | str = "", **options: Unpack[ClientOptions]
    ) -> Client:
        """
        Return a client like `rmq_ha.client.aio.connect`; each client has a machine of its own.

        :raises RuntimeError: it is called on another event loop, whose time is not this world's.
        """
        if get_running_loop() is not self._loop:
            raise RuntimeError("this coroutine runs on a loop of its own: use `world.run(...)`")
        host = self._machine()
        return Client(self._settings(settings, host, options), host=host.seams)

    def client(
        self, settings: ClientConfig | str = "", **options: Unpack[ClientOptions]
    ) -> ClientInstance:
        """Return a client like `rmq_ha.client.connect`, for tests that use Deferreds."""
        host = self._machine()
        return ClientInstance(host.seams, self._settings(settings, host, options))

    def _machine(self) -> SimHost:
        host = self.world.add(f"client-{len(self.world.hosts)}")
        if self._is_paused:
            self.world.network.partition(self._master, host.name)
        return host

    def _settings(
        self, settings: ClientConfig | str, host: SimHost, options: Mapping[str, Any]
    ) -> ClientConfig:
        """
        Return the settings of a client, whose only name server is that of this world.

        Unless `settings` is a `ClientConfig`, consumers commit their offsets seldom, because hours
        of simulated time have to pass quickly.

        :param settings: a `ClientConfig`, or the text of name servers, which is ignored.
        :param options: further settings by name.
        """
        if isinstance(settings, str):
            settings = ClientConfig(persist_consumer_offset_interval_ms=_PERSIST_MS)
        settings = client_settings(settings, options)
        process = Process(host.index, host.ip)
        return replace(settings, namesrv_addr=self.namesrv_addr, process=process)

    # Time

    def run(self, story: Coroutine[Any, Any, T], limit: float = LIMIT_SECONDS) -> T:
        """
        Run a coroutine of asyncio; `asyncio.sleep` and all timeouts use this world's time.

        :param limit: simulated seconds; after them the run ends with TimeoutError.
        """
        with self._outside_loop():
            return self._runner.run(_with_limit(story, limit))

    def wait(self, later: "Deferred[T] | Coroutine[Any, Any, T]", limit: float = 3600) -> T:
        """
        Let time pass until a Deferred, or a coroutine that awaits Deferreds, has an outcome.

        :param limit: simulated seconds.
        :raises TimeoutError: there is no outcome by then.
        """
        outcomes: list[Any] = []
        started = later if isinstance(later, Deferred) else Deferred.fromCoroutine(later)
        started.addBoth(outcomes.append)
        if not self.world.clock.run_while(lambda: not outcomes, limit):
            raise TimeoutError(f"no outcome within {limit} simulated seconds")
        if isinstance(outcomes[0], Failure):
            outcomes[0].raiseException()
        outcome: T = outcomes[0]
        return outcome

    def wind(self, time: float | timedelta) -> None:
        """
        Let time pass; in a coroutine of asyncio `await asyncio.sleep` does that.

        :param time: seconds, if it is a number.
        """
        seconds = time.total_seconds() if isinstance(time, timedelta) else time
        self.world.clock.run_for(seconds)

    # State

    def new_topic(self, name: str, queues: int = _QUEUES) -> str:
        """
        Create a topic, or change it.

        Outside of a coroutine it returns when the name server knows the topic. Inside one, let some
        time pass before you send: a producer that asks too early gets a new topic's default queues.
        """
        broker = self._brokers[self._master]
        config = TopicConfig(name, queues, queues)
        broker.topics.update(config)
        registered = broker.registration.register_topic(config)
        if events._get_running_loop() is not self._loop:
            self.wait(registered)
        return name

    def messages(self, topic: str) -> list[MessageExt]:
        """
        Return all messages of a topic, queue by queue; `%DLQ%group` is a topic, too.

        They are read from the store of the master, or of its slave if the master is gone.
        """
        broker = self._brokers.get(self._master) or self._brokers[self._slave]
        config = broker.topics.get(topic)
        queues = range(config.read_queue_nums if config is not None else 0)
        return [message for queue_id in queues for message in _read(broker.store, topic, queue_id)]

    def state(self) -> dict[str, str]:
        """
        Return the state of each machine as a text, by its name: the role and the end of the log of
        a broker, or `killed`; `runs` for all other machines.
        """
        states = dict.fromkeys([*self.world.hosts], "runs")
        for name in filter(None, (self._master, self._slave)):
            broker = self._brokers.get(name)
            if broker is None:
                states[name] = "killed"
                continue
            role = broker.configuration.store.broker_role.name
            states[name] = f"{role}, log to {broker.store.log.max_offset}"
        if self._is_paused:
            states[self._master] += ", paused"
        return states

    # Faults

    def kill_master(self) -> None:
        """Kill the master's process at once; what it wrote is on its disk."""
        self.resume()
        if self._brokers.pop(self._master, None) is not None:
            self.world.hosts[self._master].crash()

    def start_master(self) -> None:
        """Start the master that was killed; it serves a moment later."""
        self._start(self._master, self._role)

    def pause(self) -> None:
        """Pause the master: no bytes reach it or leave it, and its connections stay."""
        self._is_paused = True
        for name in self.world.hosts:
            if name != self._master:
                self.world.network.partition(self._master, name)

    def resume(self) -> None:
        """
        Let a paused master go on; bytes that TCP kept arrive. Other faults of `world.network`, such
        as cuts, end too.
        """
        if self._is_paused:
            self._is_paused = False
            self.world.network.heal()

    def fail_over(self) -> None:
        """
        Make the slave the master; the old master is killed if it runs. The new one serves a moment
        later.

        :raises RuntimeError: there is no slave.
        """
        if self._slave not in self._brokers:
            raise RuntimeError("there is no slave: this world needs pair=True")
        self.kill_master()
        del self._brokers[self._slave]
        self.world.hosts[self._slave].crash()
        self._master, self._slave = self._slave, self._master
        self._role = BrokerRole.ASYNC_MASTER
        self.start_master()

    def rejoin(self) -> None:
        """Start the member that was killed as the slave of the present master."""
        self._start(self._slave, BrokerRole.SLAVE)

    def _start(self, name: str, role: BrokerRole) -> None:
        host = self.world.hosts.get(name) or self.world.add(name)
        if not host.is_running:
            host.restart()
        broker_id = int(role is BrokerRole.SLAVE)
        configuration = small_configuration(
            host.ip, role, FlushDiskType.ASYNC_FLUSH, broker_id, _FILE_SIZE
        )
        configuration.broker.namesrv_addr = self.namesrv_addr
        configuration.broker.default_topic_queue_nums = _QUEUES
        configuration.ours.duplicate_window_millis = self._window_ms
        configuration.ours.timer_wheel_enable = configuration.ours.pop_enable = True
        broker = self._brokers[name] = Broker(host.seams, configuration)
        broker.start().addErrback(lambda why: self.world.clock.fail(f"{name} does not start", why))


async def _with_limit(story: Coroutine[Any, Any, T], limit: float) -> T:
    async with timeout(limit):
        return await story


def _read(store: Any, topic: str, queue_id: int) -> Iterator[MessageExt]:
    offset, end = (
        store.min_offset_in_queue(topic, queue_id),
        store.max_offset_in_queue(topic, queue_id),
    )
    while offset < end:
        pulled = store.get_message("", topic, queue_id, offset, _BATCH, None)
        yield from decode_messages(b"".join(pulled.messages))
        offset = max(offset + 1, pulled.next_begin_offset)
