"""Who begins at a time gets every message of that time: searches by time, and resets of groups."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.wire.batch import encode_batch
from rmq_ha.base.wire.bodies import decode_queue_table
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from tests.unit.server.broker.sim_broker import SimBroker
from tests.unit.server.broker.test_processor_send import send


@pytest.fixture
def broker() -> Iterator[SimBroker]:
    """A queue with a message, a batch of 100 that share one time, and another message."""
    made = SimBroker().start()
    made.broker.topics.update(TopicConfig("TopicA", 2, 2))
    for body, batch in (
        (b"first", "false"),
        (encode_batch([(0, b"b", "")] * 100), "true"),
        (b"last", "false"),
    ):
        assert send(made, queueId=1, body=body, batch=batch).code == 0
        made.world.clock.run_for(5)
    yield made
    made.stop()


def time_of(broker: SimBroker, offset: int) -> int:
    return int(broker.broker.store.store_timestamp_at("TopicA", 1, offset))


def begun(broker: SimBroker, ms: int) -> int:
    ext = {"topic": "TopicA", "queueId": "1", "timestamp": str(ms)}
    answer = broker.call(RemotingCommand(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext))
    assert answer.code == 0
    assert answer.ext is not None
    return int(answer.ext["offset"])


def reset(broker: SimBroker, ms: int) -> Any:
    """Of a group with a member, as `mqadmin resetOffsetByTime` does it."""
    for queue_id in (0, 1):
        broker.broker.consumer_offsets.commit("G", "TopicA", queue_id, 0)
    heartbeat = {
        "clientID": "c1",
        "producerDataSet": [],
        "consumerDataSet": [
            {
                "groupName": "G",
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": [{"topic": "TopicA", "subString": "*", "subVersion": 1}],
                "unitMode": False,
            }
        ],
    }
    command = RemotingCommand(RequestCode.HEART_BEAT, {}, json.dumps(heartbeat).encode())
    assert broker.call(command).code == 0
    ext = {"topic": "TopicA", "group": "G", "timestamp": str(ms), "isForce": "true"}
    answer = broker.call(RemotingCommand(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext))
    assert answer.code == 0, answer.remark
    table = decode_queue_table(answer.body or b"{}")
    return {queue.queue_id: offset for queue, offset in table.items()}


def test_a_time_that_a_batch_shares(broker: SimBroker) -> None:
    """The first of the batch; behind the last message it is the end."""
    shared = time_of(broker, 50)
    assert time_of(broker, 1) == time_of(broker, 100) == shared
    assert begun(broker, shared) == 1
    assert begun(broker, shared + 1) == 101
    assert begun(broker, time_of(broker, 101) + 1) == 102
    assert begun(broker, 0) == 0
    assert reset(broker, shared) == {0: 0, 1: 1}


def test_the_key_brings_the_way_of_4_9(broker: SimBroker) -> None:
    """Any message of the batch, the nearest one, and behind the last message that message."""
    broker.broker.configuration.ours.time_search_nearest = True
    shared = time_of(broker, 50)
    assert 1 < begun(broker, shared) <= 100
    assert begun(broker, time_of(broker, 101) + 1) == 101
    assert 1 < reset(broker, shared)[1] <= 100
