"""400, 401 and 402: brokers share queues out, and operators choose pull or pop.

Spec: pop.md, section 2.8.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.base.wire.bodies import ConsumerData, HeartbeatData
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.pop_bodies import AssignmentQuery, Assignments, RequestMode
from rmq_ha.server.broker.tables.request_modes import RequestModes
from tests.unit.server.broker.pop_kit import BROKER, GROUP, TOPIC, PopBroker

RECORDED = Path(__file__).parents[3] / "fixtures" / "pop" / "pop-admin.json"
RETRIES = f"%RETRY%{GROUP}"


@pytest.fixture
def broker() -> Iterator[PopBroker]:
    made = PopBroker().start()
    made.add_topic("Four", 4)
    yield made
    made.stop()


def join(broker: PopBroker, *client_ids: str) -> None:
    """Members, each by a connection of its own."""
    for client_id in client_ids:
        consumer = ConsumerData(GROUP, subscriptions=[SubscriptionData("Four", "*")])
        beat = HeartbeatData(client_id, [consumer]).encode()
        client = type(broker.client)(broker.client_host.seams, broker.configuration.client)
        address = f"{broker.host.ip}:10911"
        request = RemotingCommand(RequestCode.HEART_BEAT, None, beat)
        assert broker.wait(client.invoke(address, request, 3000)).code == 0


def ask(broker: PopBroker, client_id: str = "c1", **fields: str) -> list[tuple[Any, str]] | None:
    """The queue ids of a client and their modes; None if it shall change nothing."""
    given = {
        "topic": "Four", "strategy_name": "AVG", "message_model": "CLUSTERING",
        "consumer_group": GROUP, **fields,
    }  # fmt: skip
    query = AssignmentQuery(client_id=client_id, **given)
    answer = broker.call(RemotingCommand(RequestCode.QUERY_ASSIGNMENT, None, query.encode()))
    assert answer.code == 0
    queues = Assignments.decode(answer.body or b"").queues
    if queues is None:
        return None
    assert {item.message_queue.broker_name for item in queues} <= {BROKER}
    return [(item.message_queue.queue_id, item.mode) for item in queues]


def set_mode(broker: PopBroker, mode: str, share: int = 0, **fields: str) -> RemotingCommand:
    body = RequestMode(
        fields.get("topic", "Four"), fields.get("group", GROUP), mode, share
    ).encode()
    return broker.call(RemotingCommand(RequestCode.SET_MESSAGE_REQUEST_MODE, None, body))


def test_pulls_are_shared_by_both_strategies(broker: PopBroker) -> None:
    join(broker, "c1", "c2")
    assert ask(broker) == [(0, "PULL"), (1, "PULL")]
    assert ask(broker, "c2", strategy_name="AVG_BY_CIRCLE") == [(1, "PULL"), (3, "PULL")]
    assert ask(broker, "c9") == []
    assert ask(broker, message_model="BROADCASTING") == [(at, "PULL") for at in range(4)]
    broker.broker.configuration.ours.server_load_balancer_enable = False
    assert ask(broker, "c2") == [(at, "PULL") for at in range(4)]


def test_who_is_not_known_changes_nothing(broker: PopBroker) -> None:
    assert ask(broker) is None  # a group without members
    join(broker, "c1")
    assert ask(broker, topic="missing") is None
    assert ask(broker, strategy_name="NOPE") is None
    assert ask(broker, consumer_group="another") is None


def test_pops_get_all_queues_or_those_of_neighbours(broker: PopBroker) -> None:
    join(broker, "c1", "c2", "c3", "c4")
    assert set_mode(broker, "POP").code == 0
    assert ask(broker) == [(-1, "POP")]
    for share, got in ((1, [0, 1]), (2, [0, 1, 2]), (3, [-1]), (-1, [-1])):
        assert set_mode(broker, "POP", share).code == 0
        assert ask(broker) == [(queue, "POP") for queue in got]
    assert set_mode(broker, "POP", 1).code == 0
    assert ask(broker, "c4") == [(3, "POP"), (0, "POP")]
    join(broker, "c5", "c6")
    assert ask(broker, "c6") == [(1, "POP")]  # more clients than queues


def test_the_retry_topic_of_a_group_is_always_pulled(broker: PopBroker) -> None:
    broker.add_topic(RETRIES, 1)
    join(broker, "c1")
    broker.broker.configuration.ours.default_message_request_mode = "POP"
    assert ask(broker, topic=RETRIES) == [(0, "PULL")]
    assert ask(broker) == [(-1, "POP")]


def test_modes_are_checked_kept_and_told(broker: PopBroker) -> None:
    assert set_mode(broker, "POP", topic=RETRIES).code == ResponseCode.NO_PERMISSION
    assert set_mode(broker, "POP", topic="missing").code == ResponseCode.TOPIC_NOT_EXIST
    assert set_mode(broker, "ODD").code == ResponseCode.INVALID_PARAMETER
    assert set_mode(broker, "POP", group="made").code == 0  # created on demand
    broker.broker.configuration.broker.auto_create_subscription_group = False
    refused = set_mode(broker, "POP", group="missing")
    assert refused.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    told = broker.call(RemotingCommand(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE))
    assert json.loads(told.body or b"") == {
        "messageRequestModeMap": {
            "Four": {
                "made": {
                    "consumerGroup": "made", "mode": "POP", "popShareQueueNum": 0,
                    "topic": "Four",
                }
            }
        }
    }  # fmt: skip
    seams = broker.host.seams
    path = f"{broker.configuration.store.store_path_root_dir}/config/messageRequestMode.json"
    loaded = RequestModes(seams.disk, seams.worker, path)
    loaded.load()
    assert loaded.get("Four", "made") is not None
    broker.call(RemotingCommand(215, {"topic": "Four"}))
    told = broker.call(RemotingCommand(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE))
    assert told.body == b'{"messageRequestModeMap":{}}'


def test_a_group_turned_to_pull_goes_on_at_what_it_consumed(broker: PopBroker) -> None:
    broker.put("a", "b", "c")
    got = broker.pop(invisible_time=2000)
    broker.ack(got.receipts[b"a"])
    assert set_mode(broker, "PULL", topic=TOPIC).code == 0
    assert broker.offset() == 1
    broker.run(10)
    assert broker.broker.pops.counters().out == 0
    commit = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "commitOffset": "3"}
    assert broker.call(RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, commit)).code == 0
    assert set_mode(broker, "POP", topic=TOPIC).code == 0
    broker.put("d")
    assert broker.pop().bodies == [b"d"]


def test_members_that_still_pop_after_the_change_do_not_hold_the_offset_back(
    broker: PopBroker,
) -> None:
    """Clients ask for their mode every 20 s, and a pop of before may be held for 15 s."""
    broker.put("a")
    broker.ack(broker.pop().receipts[b"a"])
    held = broker.ask_pop(poll_time=15_000)
    assert set_mode(broker, "PULL", topic=TOPIC).code == 0
    broker.put("b")
    broker.run(1)
    assert broker.pop().code == ResponseCode.NO_PERMISSION
    codes: list[int] = []
    held.addCallback(lambda popped: codes.append(popped.code))
    broker.run(20)
    assert codes == [ResponseCode.POLLING_TIMEOUT]
    commit = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "commitOffset": "2"}
    assert broker.call(RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, commit)).code == 0
    assert broker.offset() == 2


def test_recorded_answers_to_the_same_questions() -> None:
    """RocketMQ's own, but for the name of the client that sent no heartbeat."""
    broker = PopBroker().start()
    broker.add_topic("PopAdm", 1)
    broker.add_topic("JPush", 1)
    broker.broker.configuration.broker.auto_create_subscription_group = True
    broker.add_topic("%RETRY%PopAdmG", 1)
    seen = []
    for item in json.loads(RECORDED.read_text()):
        request, response = item["request"], item["response"]
        if request["code"] not in (34, 400, 401):
            continue
        body = request["body"].encode()
        answer = broker.call(RemotingCommand(request["code"], None, body))
        assert answer.code == response["code"], item["name"]
        if request["code"] == 400:
            assert (answer.body or b"").decode() == response["body"], item["name"]
            seen.append(item["name"])
    assert len(seen) == 4
    broker.stop()
