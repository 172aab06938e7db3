"""When sends are refused with SYSTEM_BUSY. Spec: remoting.md, section 1.8."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from twisted.internet.defer import DeferredList
from twisted.internet.endpoints import connectProtocol
from twisted.internet.protocol import Protocol

from rmq_ha.base.config.broker import BrokerConfig
from rmq_ha.base.config.netty import NettyClientConfig
from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.status import BrokerRole, FlushDiskType
from rmq_ha.base.remoting.client import RemotingClient
from rmq_ha.base.seams import DiskUsage
from rmq_ha.base.store_flags import Flag
from rmq_ha.base.wire.batch import encode_batch
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.frame import FrameReader, decode_frame, encode_frame
from rmq_ha.client.lookup.requests import pull_request
from rmq_ha.server.broker.overload import SendOverload
from rmq_ha.server.store.statistics import StoreStatistics
from rmq_ha.server.store.turns import TurnWatch
from rmq_ha.testing.cluster import LISTEN_PORT
from tests.unit.server.broker.sim_broker import TOPIC, SimBroker

Undo = Callable[[], object]


class Loaded:
    """A store that says how busy it is."""

    def __init__(self) -> None:
        self.statistics = StoreStatistics(0)
        self.turns = TurnWatch()
        self.slow_until = 0.0
        self.waited = 0

    def is_page_cache_busy(self) -> bool:
        return True

    def waited_ms(self, sender: object, sends: int) -> int:
        return self.waited


def test_thresholds() -> None:
    """Each reason by its own setting; with brokerFastFailureEnable=false waiting is none."""
    config, store = BrokerConfig(), Loaded()
    overload = SendOverload(config, store)
    store.statistics.outcomes.waiting, store.waited = 9999, 200
    assert overload.reason("c") is None
    overload.check("c")
    store.waited = 201
    assert (overload.reason("c") or "").startswith("[TIMEOUT_CLEAN_QUEUE]broker busy")
    config.broker_fast_failure_enable = False
    assert overload.reason("c") is None
    store.statistics.outcomes.waiting = 10_000
    assert (overload.reason("c") or "").startswith("[OVERLOAD]system busy")
    store.slow_until = 1.0
    with pytest.raises(RequestRejected, match=r"^\[REJECTREQUEST\]system busy") as caught:
        overload.check("c")
    assert caught.value.code == ResponseCode.SYSTEM_BUSY


def send_back(broker: SimBroker, offset: int) -> RemotingCommand:
    ext = {"group": "g", "offset": str(offset), "delayLevel": "0", "unitMode": "false"}
    return broker.call(RemotingCommand(RequestCode.CONSUMER_SEND_MSG_BACK, ext))


def test_more_waiting_puts_than_allowed() -> None:
    """A SYNC_MASTER whose slave is silent: later sends are refused at once, and taken again."""
    broker = SimBroker()
    broker.configuration.store.flush_disk_type = FlushDiskType.SYNC_FLUSH
    broker.configuration.broker.send_thread_pool_queue_capacity = 8
    broker.start()
    broker.host.worker.delay = (2.0, 2.0)  # a flush takes its time
    asked = [broker.ask(broker.message()) for _ in range(12)]
    broker.world.clock.run_for(0.5)
    later = [broker.call(broker.message()), broker.call(broker.message(WAIT="false"))]
    assert [answer.code for answer in later] == [ResponseCode.SYSTEM_BUSY] * 2
    assert (later[0].remark or "").startswith("[OVERLOAD]")
    assert send_back(broker, 0).code == ResponseCode.SYSTEM_BUSY
    answers = [answer for _, answer in broker.wait(DeferredList(asked))]
    assert {answer.code for answer in answers} <= {0, ResponseCode.SYSTEM_BUSY}
    assert sum(answer.code == 0 for answer in answers) >= 8
    broker.host.worker.delay = broker.host.worker.usual_delay
    assert broker.send().code == 0
    broker.stop()


def test_a_slow_disk() -> None:
    """After an append of more than osPageCacheBusyTimeOutMills all sends are refused for a time."""
    broker = SimBroker().start()
    store = broker.broker.store
    append = store.log.append_group

    def slowly(*args: object) -> object:
        broker.world.clock._now += 1.5
        return append(*args)

    store.log.append_group = slowly
    assert broker.send().code == 0
    store.log.append_group = append
    refused = broker.send()
    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert (refused.remark or "").startswith("[REJECTREQUEST]")
    broker.world.clock.run_for(4)
    assert broker.send().code == 0
    broker.stop()


def with_slow_turns() -> SimBroker:
    """A broker whose machine gives it no more than a turn every 0.9 s."""
    broker = SimBroker().start()
    turns = broker.broker.store.turns
    took = turns.end_turn
    turns.end_turn = lambda seconds, now: took(0.9, now)
    return broker


def send_in_step(broker: SimBroker, requests: list[RemotingCommand]) -> list[RemotingCommand]:
    """Each over a connection of its own, all at once; the answers."""
    clients = [RemotingClient(broker.client_host.seams, NettyClientConfig()) for _ in requests]
    address = f"{broker.host.ip}:{LISTEN_PORT}"
    answers = []
    for _ in range(12):
        asked = [
            client.invoke(address, request, 5000)
            for client, request in zip(clients, requests, strict=True)
        ]
        answers += [answer for _, answer in broker.wait(DeferredList(asked))]
    broker.wait(DeferredList([client.stop() for client in clients]))
    return answers


class Pipeline(Protocol):
    """A producer that waits for no answer: what it sends together arrives together."""

    def __init__(self) -> None:
        self.answers: list[RemotingCommand] = []
        self._reader = FrameReader()

    def send(self, requests: list[RemotingCommand]) -> None:
        self.transport.write(b"".join([encode_frame(item) for item in requests]))

    def dataReceived(self, data: bytes) -> None:
        self.answers += [decode_frame(*frame) for frame in self._reader.receive_data(data)]


def test_long_turns_and_producers_that_wait_for_each_answer() -> None:
    """None is refused, whatever it sends, as long as the machine is short of time."""
    broker = with_slow_turns()
    batch = broker.message(encode_batch([(0, b"one", ""), (0, b"two", "")]))
    batch.code, batch.ext = RequestCode.SEND_BATCH_MESSAGE, {**(batch.ext or {}), "m": "true"}
    kinds = [batch, broker.message(), broker.message(DELAY="1")]
    answers = send_in_step(broker, kinds * 8)
    assert {answer.code for answer in answers} == {0}
    broker.stop()


@pytest.mark.parametrize("properties", [{}, {"WAIT": "false"}])
def test_long_turns_with_a_queue(properties: dict[str, str]) -> None:
    """
    waitTimeMillsInSendQueue: who has many in flight is refused, who waits for each answer is not;
    pulls and heartbeats are served all the same.
    """
    broker = with_slow_turns()
    many, other = Pipeline(), Pipeline()
    for one in (many, other):
        endpoint = broker.client_host.seams.network.client(broker.host.ip, LISTEN_PORT)
        broker.wait(connectProtocol(endpoint, one))
    for _ in range(8):
        many.send([broker.message(**properties) for _ in range(20)])
        broker.world.clock.run_for(0.1)
    other.send([broker.message(**properties)])
    broker.world.clock.run_for(0.1)
    assert [answer.code for answer in other.answers] == [0]
    refused = [answer for answer in many.answers if answer.code]
    assert {answer.code for answer in refused} == {ResponseCode.SYSTEM_BUSY}
    assert all((item.remark or "").startswith("[TIMEOUT_CLEAN_QUEUE]") for item in refused)
    assert len(many.answers) == 160
    assert broker.pull().code == 0
    broker.world.clock.run_for(1)
    assert broker.send().code == 0
    broker.stop()


def test_permission_is_asked_for_ordered_topics_only() -> None:
    """brokerPermission without WRITE refuses sends to order topics; others keep away by routes."""
    broker = SimBroker().start()
    assert broker.configuration.store.broker_role is BrokerRole.ASYNC_MASTER
    change = RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=4")
    assert broker.call(change).code == 0
    assert broker.send().code == 0
    broker.broker.topics.update_order({"TBW102"})
    assert broker.send().code == ResponseCode.NO_PERMISSION
    assert send_back(broker, 0).code == ResponseCode.NO_PERMISSION
    change = RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, body=b"brokerPermission=2")
    assert broker.call(change).code == 0
    assert broker.send().code == 0
    assert broker.pull().code == ResponseCode.NO_PERMISSION
    broker.stop()


def test_slow_consumers() -> None:
    """
    Groups whose last reads were too far behind are disabled within three minutes; once one is
    enabled again it is judged by new reads.
    """
    broker = SimBroker().start()
    for _ in range(20):
        assert broker.send(b"x" * 500).code == 0
    broker.world.clock.run_for(0.1)
    assert broker.call(pull_request("behind", TOPIC, 0, 0, 1)).code == 0
    assert broker.call(pull_request("ahead", TOPIC, 0, 19, 1)).code == 0
    broker.world.clock.run_for(181)
    for group in ("behind", "behind-too"):
        assert broker.call(pull_request(group, TOPIC, 0, 0, 1)).code == 0, "off by default"
    change = b"disableConsumeIfConsumerReadSlowly=true\nconsumerFallbehindThreshold=5000"
    assert broker.call(RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, body=change)).code == 0
    broker.world.clock.run_for(181)
    for group in ("behind", "behind-too"):
        refused = broker.call(pull_request(group, TOPIC, 0, 0, 1))
        assert refused.code == ResponseCode.NO_PERMISSION
    assert broker.call(pull_request("ahead", TOPIC, 0, 19, 1)).code == 0
    groups = broker.broker.groups
    for group in ("behind", "behind-too"):
        groups.update(replace(groups.get(group), consume_enable=True))
    for offset in (18, 19):
        broker.world.clock.run_for(181)
        for group in ("behind", "behind-too"):
            assert broker.call(pull_request(group, TOPIC, 0, offset, 1)).code == 0
    broker.stop()


def test_a_full_disk() -> None:
    """
    Above diskSpaceWarningLevelRatio sends get SERVICE_NOT_AVAILABLE and the oldest files go; puts
    are taken again when there is room. Pulls go on all the time.
    """
    broker = SimBroker()
    broker.configuration.store.clean_resource_interval = 5000
    broker.configuration.ours.disk_space_warning_level_ratio = 80
    broker.configuration.ours.disk_space_clean_forcibly_ratio = 70
    broker.start()
    disk, used = broker.host.disk, [60]
    disk.usage = lambda path: DiskUsage(100, used[0], 100 - used[0])
    for _ in range(120):
        assert broker.send(b"x" * 1000).code == 0
    broker.world.clock.run_for(61)
    log = broker.broker.store.log
    assert log.min_offset == 0
    used[0] = 81
    broker.world.clock.run_for(10.1)
    refused = broker.send()
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "81% full" in (refused.remark or "")
    assert log.min_offset > 0, "expired or not, files go"
    assert broker.call(pull_request("g", TOPIC, 0, 119)).code == 0
    used[0] = 80
    broker.world.clock.run_for(10.1)
    assert broker.send().code == 0
    broker.stop()


def _slow(broker: SimBroker) -> Undo:
    store = broker.broker.store
    store.slow_until = broker.world.clock.seconds() + 60
    return lambda: setattr(store, "slow_until", broker.world.clock.seconds())


def _much_waits(broker: SimBroker) -> Undo:
    outcomes = broker.broker.store.statistics.outcomes
    outcomes.waiting += 10_000
    return lambda: setattr(outcomes, "waiting", 0)


def _no_room(broker: SimBroker) -> Undo:
    flags = broker.broker.store.flags
    flags.hoist(Flag.DISK_FULL, "the disk is 91% full")
    return lambda: flags.lower(Flag.DISK_FULL)


def _fault(broker: SimBroker) -> Undo:
    log = broker.broker.store.log
    log.refuse_writes("flush failed: gone")
    return log.resume


def _slave(broker: SimBroker) -> Undo:
    config = broker.configuration.store
    config.broker_role = BrokerRole.SLAVE
    return lambda: setattr(config, "broker_role", BrokerRole.ASYNC_MASTER)


def _not_open(broker: SimBroker) -> Undo:
    store = broker.broker.store
    store.is_open = False
    return lambda: setattr(store, "is_open", True)


def _too_early(broker: SimBroker) -> Undo:
    config = broker.configuration.broker
    config.start_accept_send_request_time_stamp = broker.host.now_ms() + 3_600_000
    return lambda: setattr(config, "start_accept_send_request_time_stamp", 0)


@pytest.mark.parametrize(
    ("arise", "code", "text"),
    [
        (_slow, ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy"),
        (_much_waits, ResponseCode.SYSTEM_BUSY, "[OVERLOAD]system busy"),
        (_no_room, ResponseCode.SERVICE_NOT_AVAILABLE, "disk full: the disk is 91% full"),
        (_fault, ResponseCode.SERVICE_NOT_AVAILABLE, "flush failed: gone"),
        (_slave, ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is a slave"),
        (_not_open, ResponseCode.SERVICE_NOT_AVAILABLE, "the store is not started"),
        (_too_early, ResponseCode.SYSTEM_ERROR, "unable to service, until"),
    ],
)
def test_each_reason_refuses_runs_as_it_refuses_a_message_of_its_own(
    arise: Callable[[SimBroker], Undo], code: ResponseCode, text: str
) -> None:
    """At once, with the same words, and no longer than it lasts."""
    broker = SimBroker().start()
    assert broker.send().code == 0
    undo = arise(broker)
    one, other = broker.send(), broker.call(broker.message(WAIT="false"))
    assert (one.code, other.code) == (code, code)
    assert text in (one.remark or "")
    assert one.remark == other.remark
    undo()
    assert broker.send().code == broker.call(broker.message(WAIT="false")).code == 0
    broker.stop()
