"""A whole broker with tiered storage: pulls, pops, offsets, and settings that do not fit."""

from itertools import chain

import pytest
from twisted.plugin import IPlugin, getPlugins
from zope.interface import implementer

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.interfaces import IMessageStorePlugin
from rmq_ha.base.store_format.commitlog import decode_records
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.broker.context import BrokerContext
from rmq_ha.server.tiered.blocks import BLOCK
from rmq_ha.server.tiered.plugin import TierSettings, tier_of, tier_settings
from tests.unit.server.broker.sim_broker import TOPIC, SimBroker
from tests.unit.server.tiered.objects_in_memory import MemoryObjects

FILE = 65536
HOUR_MS = 3_600_000


@implementer(IPlugin, IMessageStorePlugin)
class InMemory:
    """The plugin `tiered`, with objects in memory."""

    name = "in-memory"

    def __init__(self, objects):
        self.objects = objects

    def wrap_store(self, broker, store):
        tier_of(broker, store, TierSettings("b", "", None, None, 0, 16 * BLOCK), self.objects)
        return store


class TieredBroker(SimBroker):
    """Its store has 200 messages, most of them only in the tier."""

    def __init__(self):
        super().__init__()
        self.objects = MemoryObjects()
        plugin = InMemory(self.objects)
        self.find = lambda kind, *more: (
            chain(getPlugins(kind, *more), [plugin])
            if kind is IMessageStorePlugin
            else getPlugins(kind, *more)
        )
        self.configuration.broker.message_store_plug_in = "in-memory"
        self.configuration.store.mapped_file_size_commit_log = FILE
        self.configuration.ours.pop_enable = True
        self.start()
        for number in range(200):
            assert self.send(b"%04d" % number + bytes(1000)).code == 0
        self.pass_time(25)
        self.host.step_clock(100 * HOUR_MS)
        store = self.broker.store
        store.clean_expired_files()
        self.pass_time(90)
        assert store.log.min_offset > 0

    def pass_time(self, seconds):
        clock = self.world.clock
        end = clock.seconds() + seconds
        clock.run_while(lambda: clock.seconds() < end, seconds + 1)

    def ask_code(self, code, **fields):
        return self.call(RemotingCommand(code, {key: str(text) for key, text in fields.items()}))


@pytest.fixture(scope="module")
def broker():
    made = TieredBroker()
    yield made
    made.stop()


def test_a_pull_from_the_beginning_gets_every_message(broker):
    numbers, offset = [], 0
    while len(numbers) < 200:
        answer = broker.pull(offset)
        assert answer.code == 0, answer.remark
        records = decode_records(answer.body)
        numbers += [int(record.body[:4]) for record in records]
        offset = int(answer.ext["nextBeginOffset"])
        assert answer.ext["minOffset"] == "0"
        assert answer.ext["maxOffset"] == "200"
    assert numbers == list(range(200))


def test_the_first_offset_and_the_offset_of_a_time_are_the_tiers(broker):
    queue = {"topic": TOPIC, "queueId": 0}
    answer = broker.ask_code(RequestCode.GET_MIN_OFFSET, **queue)
    assert answer.ext == {"offset": "0"}
    answer = broker.ask_code(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=1, **queue)
    assert answer.ext == {"offset": "0"}


def test_a_pull_that_the_object_store_refuses_is_answered_with_the_reason(broker):
    store = broker.broker.store
    store.older._blocks._blocks.clear()
    broker.objects.fails = "/"
    answer = broker.pull(3)
    assert answer.code == 1
    assert "an old message cannot be read: no connection for" in answer.remark
    broker.objects.fails = ""
    assert broker.pull(3).code == 0


def test_a_pull_of_wrong_bytes_is_answered_with_object_and_next_step(broker):
    store = broker.broker.store
    store.older._blocks._blocks.clear()
    (key,) = [key for key in broker.objects.objects if key.endswith(f"log/{0:020d}")]
    whole = broker.objects.objects[key]
    broker.objects.objects[key] = bytes(FILE)
    answer = broker.pull(3)
    assert answer.code == 1
    assert f"{key} does not have the message with queue offset 3" in answer.remark
    assert "restore the object" in answer.remark
    broker.objects.objects[key] = whole
    store.older._blocks._blocks.clear()
    assert broker.pull(3).code == 0


def test_a_pop_gets_messages_of_the_tier(broker):
    numbers = set()
    for _ in range(40):
        answer = broker.ask_code(
            RequestCode.POP_MESSAGE,
            consumerGroup="popping",
            topic=TOPIC,
            queueId=0,
            maxMsgNums=32,
            invisibleTime=60_000,
            pollTime=1000,
            bornTime=broker.host.now_ms(),
            initMode=0,
            expType="TAG",
            exp="*",
            order="false",
        )
        if answer.code == 0:
            numbers |= {int(record.body[:4]) for record in decode_records(answer.body)}
        if len(numbers) == 200:
            break
    assert numbers == set(range(200))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "tiered.bucket is missing"),
        ({"tiered.bucket": "b", "tiered.endpoint": "s3:9000"}, "is not a URL"),
        ({"tiered.bucket": "b", "tiered.cacheMiB": "8"}, "must be at least 16"),
        ({"tiered.bucket": "b", "tiered.reservedHours": "1d"}, "is not a whole number"),
    ],
)
def test_settings_that_do_not_fit_are_refused(options, reason):
    kit = SimBroker()
    kit.configuration.plugin_options.update(options)
    with pytest.raises(ConfigurationError, match=reason):
        tier_settings(BrokerContext(kit.host.seams, kit.configuration, lambda at: None))


def test_a_broker_whose_queues_have_extensions_does_not_start_with_it():
    kit = SimBroker()
    kit.configuration.plugin_options["tiered.bucket"] = "b"
    kit.configuration.broker.message_store_plug_in = "tiered"
    kit.configuration.store.enable_consume_queue_ext = True
    with pytest.raises(ConfigurationError, match="enableConsumeQueueExt=false"):
        kit.start()
