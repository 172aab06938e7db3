"""Pops, acknowledgements and the requests beside them, at a whole broker. Spec: pop.md, 2 and 3."""

from collections.abc import Iterator
from typing import Any

import pytest

from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.base.wire.pop_headers import ChangeInvisibleAnswer
from rmq_ha.base.wire.pop_receipt import ORDERLY_QUEUE
from tests.unit.server.broker.pop_kit import BROKER, GROUP, RETRY, TOPIC, PopBroker
from tests.unit.server.broker.sim_broker import SimBroker

OK, NOTHING, GONE = ResponseCode.SUCCESS, ResponseCode.POLLING_TIMEOUT, ResponseCode.NO_MESSAGE
ZEROS = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "0"}


@pytest.fixture
def broker() -> Iterator[PopBroker]:
    made = PopBroker().start()
    yield made
    made.stop()


def refused(broker: PopBroker, **fields: Any) -> int:
    """The code of a refusal, whose header has zeros only."""
    request = RemotingCommand(RequestCode.POP_MESSAGE, broker.header(**fields).ext())
    answer = broker.call(request)
    assert answer.ext == ZEROS
    assert answer.remark
    return answer.code


# ------------------------------------------------------------ pops


def test_pops_are_checked_in_rocketmqs_order(broker: PopBroker) -> None:
    long_ago = broker.client_host.now_ms() - 5000
    broker.add_topic("closed", 1, perm=2)
    broker.broker.groups.update(SubscriptionGroupConfig("off", consume_enable=False))
    broker.broker.groups.update(SubscriptionGroupConfig("g" * 120))
    broker.broker.configuration.broker.auto_create_subscription_group = False
    wrong = [
        ({"born_time": long_ago}, ResponseCode.POLLING_TIMEOUT),
        ({"max_msg_nums": 33}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "missing"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"topic": "closed"}, ResponseCode.NO_PERMISSION),
        ({"queue_id": 7}, ResponseCode.INVALID_PARAMETER),
        ({"queue_id": -2}, ResponseCode.INVALID_PARAMETER),
        ({"consumer_group": "new"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"consumer_group": "off"}, ResponseCode.NO_PERMISSION),
        ({"invisible_time": 43_200_001}, ResponseCode.INVALID_PARAMETER),
        ({"consumer_group": "g" * 120}, ResponseCode.INVALID_PARAMETER),
        ({"exp": "a >", "exp_type": "SQL92"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"exp": "a > 1", "exp_type": "ODD"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"exp": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    ]
    for fields, code in wrong:
        assert refused(broker, **fields) == code, fields
    # Each of them comes before all that stand behind it.
    together: dict[str, Any] = {}
    for fields, code in reversed(wrong[:4]):
        together |= fields
        assert refused(broker, **together) == code, together
    broker.broker.configuration.broker.broker_permission = 2
    assert refused(broker, max_msg_nums=33) == ResponseCode.NO_PERMISSION


def test_internal_topics_are_not_popped(broker: PopBroker) -> None:
    for topic in broker.broker.topics.table:
        if topic.startswith("rmq_sys_"):
            assert refused(broker, topic=topic) == ResponseCode.NO_PERMISSION


def test_a_group_is_created_as_for_a_pull(broker: PopBroker) -> None:
    assert broker.pop(consumer_group="created").code == NOTHING
    assert broker.broker.groups.get("created") is not None
    assert refused(broker, consumer_group="a b") == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def test_messages_of_both_queues_come_in_one_answer(broker: PopBroker) -> None:
    broker.put("a", "b")
    broker.put("c", queue_id=1)
    got = broker.pop(max_msg_nums=32)
    assert sorted(got.bodies) == [b"a", b"b", b"c"]
    assert {item.pop_time for item in got.receipts.values()} == {got.header.pop_time}
    assert got.header.rest_num == 0
    assert got.header.order_count_info is None
    assert broker.pop().code == NOTHING
    assert [broker.offset(0), broker.offset(1)] == [0, 0]  # consumed, not handed out
    for receipt in got.receipts.values():
        assert broker.ack(receipt).code == OK
    assert [broker.offset(0), broker.offset(1)] == [2, 1]


def test_an_empty_answer_has_the_times_and_empty_places(broker: PopBroker) -> None:
    got = broker.pop(invisible_time=7000)
    assert (got.code, got.header.invisible_time) == (NOTHING, 7000)
    assert (got.header.start_offset_info, got.header.msg_offset_info) == ("", "")
    assert got.header.order_count_info is None
    assert got.header.pop_time == pytest.approx(broker.host.now_ms(), abs=1000)
    assert broker.pop(order=True).header.order_count_info == ""
    assert broker.pop(max_msg_nums=0, poll_time=5000).code == NOTHING


def test_one_queue_and_few_messages(broker: PopBroker) -> None:
    broker.put("a", "b", "c")
    broker.put("d", queue_id=1)
    first = broker.pop(queue_id=0, max_msg_nums=2)
    assert (first.bodies, first.header.rest_num) == ([b"a", b"b"], 1)
    assert broker.pop(queue_id=1).bodies == [b"d"]
    assert broker.pop(queue_id=0).bodies == [b"c"]


def test_filters_by_tag_and_by_property(broker: PopBroker) -> None:
    for number in range(4):
        broker.put(str(number), TAGS="even" if number % 2 == 0 else "odd", n=str(number))
    by_tag = broker.pop(exp="even", exp_type="TAG")
    assert by_tag.bodies == [b"0", b"2"]
    assert by_tag.header.msg_offset_info == "0 0 0,2"
    by_sql = broker.pop(consumer_group="H", exp="n > 1", exp_type="SQL92")
    assert by_sql.bodies == [b"2", b"3"]
    for receipt in by_sql.receipts.values():
        broker.ack(receipt, group="H")
    assert broker.offset(group="H") == 4


def test_a_new_group_begins_at_the_first_message_or_at_the_last(broker: PopBroker) -> None:
    broker.put("a", "b", "c")
    assert broker.pop(init_mode=0).bodies == [b"a", b"b", b"c"]
    # All messages of a young queue are still in memory, and nobody skipped them on purpose.
    assert broker.pop(consumer_group="H", init_mode=1).bodies == [b"a", b"b", b"c"]


# ------------------------------------------------------------ leases


def test_an_unacknowledged_message_comes_again_from_the_retry_topic(broker: PopBroker) -> None:
    broker.put("a", TAGS="t", KEYS="k")
    first = broker.pop(invisible_time=3000)
    assert broker.pop().code == NOTHING
    broker.run(2.5)
    assert broker.pop().code == NOTHING
    broker.run(2.5)
    again = broker.pop()
    (record,) = again.records
    assert (record.body, record.topic, record.queue_id) == (b"a", TOPIC, 0)
    assert record.reconsume_times == 1
    assert record.properties["1ST_POP_TIME"] == str(first.header.pop_time)
    assert again.header.start_offset_info == "1 0 0"
    receipt = again.receipts[b"a"]
    assert (receipt.kind, receipt.broker_name) == (1, BROKER)
    assert broker.ack(first.receipts[b"a"]).code == GONE  # its lease has ended
    assert broker.ack(receipt).code == OK
    assert broker.offset(topic=RETRY) == 1
    broker.run(20)
    assert broker.pop().code == NOTHING


def test_retries_have_the_new_name_where_that_is_set() -> None:
    broker = PopBroker(enable_retry_topic_v2=True).start()
    broker.put("a")
    broker.pop(invisible_time=1000)
    broker.run(4)
    got = [broker.pop(), broker.pop()]  # every second pop looks for the old name
    (found,) = [item for item in got if item.code == OK]
    assert found.header.start_offset_info == "2 0 0"
    receipt = found.receipts[b"a"]
    assert broker.ack(receipt, topic="%RETRY%G+T").code == OK
    broker.stop()


def test_acknowledgements_are_checked(broker: PopBroker) -> None:
    broker.put("a", "b")
    receipt = broker.pop().receipts[b"a"]
    wrong = [
        ({"topic": "missing"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": "9"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"queueId": "-1"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"offset": "1000"}, GONE),
        ({"offset": "2"}, GONE),
        ({"extraInfo": "1 2"}, ResponseCode.SYSTEM_ERROR),
        ({"extraInfo": receipt._replace(pop_time=1).encode()}, GONE),
        ({"consumerGroup": "another"}, GONE),
    ]
    right = {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "offset": "0",
        "extraInfo": receipt.encode(),
    }  # fmt: skip
    for fields, code in wrong:
        answer = broker.call(RemotingCommand(RequestCode.ACK_MESSAGE, right | fields))
        assert answer.code == code, fields
        changed = RemotingCommand(
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME, right | fields | {"invisibleTime": "1"}
        )
        answer = broker.call(changed)
        assert (answer.code, answer.ext) == (code, ChangeInvisibleAnswer().ext()), fields
    assert broker.offset() == 0
    for _ in range(2):  # a repetition is answered alike
        assert broker.call(RemotingCommand(RequestCode.ACK_MESSAGE, right)).code == OK
    assert broker.offset() == 1


def test_stale_acknowledgements_are_answered_as_rocketmq_does_if_that_is_set() -> None:
    broker = PopBroker(pop_stale_ack="success").start()
    broker.put("a")
    receipt = broker.pop().receipts[b"a"]
    assert broker.ack(receipt._replace(pop_time=1)).code == OK
    assert broker.change(receipt._replace(pop_time=1), 1000).code == OK
    assert broker.offset() == 0
    assert broker.ack(receipt).code == OK
    assert broker.offset() == 1
    broker.stop()


def test_receipts_of_the_proxy_and_of_old_clients_are_taken(broker: PopBroker) -> None:
    broker.put("a", "b")
    got = broker.pop()
    with_place = got.receipts[b"a"]._replace(commit_log_offset=77)
    assert broker.ack(with_place).code == OK
    old = got.receipts[b"b"]
    ext = {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "offset": "1",
        "extraInfo": old.encode().rpartition(" ")[0],
    }  # fmt: skip
    assert broker.call(RemotingCommand(RequestCode.ACK_MESSAGE, ext)).code == OK
    assert broker.offset() == 2


def test_a_batch_acknowledges_leases_of_topic_and_retry_topic(broker: PopBroker) -> None:
    broker.put("old")
    broker.pop(invisible_time=1000)
    broker.run(4)
    old = broker.pop()
    broker.put("a", "b")
    new = broker.pop()
    assert broker.batch_ack(*old.receipts.values(), *new.receipts.values()).code == OK
    assert (broker.offset(), broker.offset(topic=RETRY)) == (3, 1)
    assert broker.batch_ack().code == GONE
    assert broker.call(RemotingCommand(RequestCode.BATCH_ACK_MESSAGE)).code == GONE
    broker.put("c")
    stranger = broker.pop().receipts[b"c"]._replace(pop_time=1)
    assert broker.batch_ack(stranger).code == GONE
    bad = RemotingCommand(RequestCode.BATCH_ACK_MESSAGE, None, b'{"acks":[{"r":"7","b":"Aw=="}]}')
    assert broker.call(bad).code == ResponseCode.SYSTEM_ERROR


def test_a_changed_lease_has_a_new_receipt_and_its_own_end(broker: PopBroker) -> None:
    broker.put("a", "b")
    got = broker.pop(invisible_time=60_000)
    answer = broker.change(got.receipts[b"a"], 3000)
    items = ChangeInvisibleAnswer.read(answer.ext)
    assert (answer.code, items.invisible_time) == (OK, 3000)
    assert items.pop_time > got.header.pop_time
    assert broker.ack(got.receipts[b"a"]).code == GONE  # the old receipt
    broker.run(5)
    assert broker.pop().bodies == [b"a"]
    longest = broker.broker.configuration.ours.pop_max_invisible_time
    for asked in (-1, longest + 1):
        assert broker.change(got.receipts[b"b"], asked).code == ResponseCode.INVALID_PARAMETER
    assert broker.change(got.receipts[b"b"], 0).code == OK  # free at once
    broker.run(3)
    assert broker.pop().bodies == [b"b"]


def test_orderly_pops_wait_for_their_batch(broker: PopBroker) -> None:
    for number in range(4):
        broker.put(str(number))
    order = {"order": True, "queue_id": 0, "max_msg_nums": 2, "invisible_time": 5000}
    first = broker.pop(attempt_id="A", **order)
    assert (first.bodies, first.header.revive_qid) == ([b"0", b"1"], ORDERLY_QUEUE)
    assert first.header.order_count_info == "0 0 0"
    blocked = broker.pop(attempt_id="B", **order)
    assert (blocked.code, blocked.header.rest_num) == (NOTHING, 0)
    same = broker.pop(attempt_id="A", **order)
    assert same.bodies == first.bodies
    assert broker.ack(same.receipts[b"0"]).code == OK
    assert broker.ack(same.receipts[b"0"]._replace(offset=3)).code == ResponseCode.MESSAGE_ILLEGAL
    broker.run(6)
    later = broker.pop(attempt_id="C", **order)
    assert later.bodies == [b"1", b"2"]
    assert later.header.order_count_info == "0 qo0%1 1;0 0 0"


# ------------------------------------------------------------ waiting


def test_a_held_pop_gets_the_message_that_arrives(broker: PopBroker) -> None:
    waiting = broker.ask_pop(poll_time=15_000)
    broker.run(1)
    assert broker.polling() == 1
    assert broker.polling(0) == 0
    broker.put("a")
    assert broker.wait(waiting).bodies == [b"a"]
    assert broker.polling() == 0


def test_a_held_pop_is_answered_before_its_client_gives_up(broker: PopBroker) -> None:
    began = broker.world.clock.seconds()
    got = broker.pop(poll_time=1500)
    took = broker.world.clock.seconds() - began
    assert got.code == NOTHING
    assert 1.4 < took < 1.5
    # A client whose clock is ahead waits no longer.
    ahead = broker.client_host.now_ms() + 60_000
    began = broker.world.clock.seconds()
    assert broker.pop(poll_time=1500, born_time=ahead).code == NOTHING
    assert broker.world.clock.seconds() - began < 1.6


def test_a_filter_is_asked_before_a_held_pop_wakes(broker: PopBroker) -> None:
    waiting = broker.ask_pop(poll_time=15_000, exp="wanted")
    broker.put("a", TAGS="other")
    broker.run(1)
    assert broker.polling() == 1
    broker.put("b", TAGS="wanted")
    assert broker.wait(waiting).bodies == [b"b"]


def test_a_retry_wakes_a_held_pop(broker: PopBroker) -> None:
    """RocketMQ lets it wait until its time is over."""
    broker.put("a")
    broker.pop(invisible_time=3000)
    began = broker.world.clock.seconds()
    got = broker.pop(poll_time=25_000)
    assert got.header.start_offset_info == "1 0 0"
    assert 2.9 < broker.world.clock.seconds() - began < 5


def test_an_acknowledgement_that_unblocks_a_queue_wakes_a_held_orderly_pop(
    broker: PopBroker,
) -> None:
    broker.put("a", "b")
    order = {"order": True, "queue_id": 0, "max_msg_nums": 1}
    first = broker.pop(**order)
    waiting = broker.ask_pop(poll_time=15_000, **order)
    broker.run(1)
    assert broker.polling(0) == 1
    broker.ack(first.receipts[b"a"])
    assert broker.wait(waiting).bodies == [b"b"]


def test_too_many_held_pops_are_told_so() -> None:
    broker = PopBroker(pop_polling_size=1).start()
    waiting = broker.ask_pop(poll_time=5000)
    broker.run(0.1)
    assert broker.pop(poll_time=5000).code == ResponseCode.POLLING_FULL
    assert broker.wait(waiting).code == NOTHING
    broker.stop()


def test_too_many_messages_out_are_told(broker: PopBroker) -> None:
    broker.broker.configuration.ours.pop_inflight_message_threshold = 1
    broker.put("a", "b")
    broker.pop(max_msg_nums=1, queue_id=0)
    got = broker.pop(queue_id=0)
    assert (got.code, got.bodies) == (ResponseCode.POLLING_FULL, [])


def test_a_stop_answers_held_pops() -> None:
    broker = PopBroker().start()
    waiting, asked = broker.ask_pop(poll_time=15_000), broker.ask_notification(15_000)
    broker.run(1)
    broker.stop()
    assert broker.wait(waiting).code == NOTHING
    assert broker.wait(asked).ext == {"hasMsg": "false", "pollingFull": "false"}


# ------------------------------------------------------------ looks


def test_notifications_say_whether_there_is_a_message(broker: PopBroker) -> None:
    no, yes = ({"hasMsg": word, "pollingFull": "false"} for word in ("false", "true"))
    assert broker.wait(broker.ask_notification()).ext == no
    waiting = broker.ask_notification(15_000)
    broker.run(1)
    broker.put("a")
    assert broker.wait(waiting).ext == yes
    assert broker.wait(broker.ask_notification()).ext == yes
    broker.pop()
    assert broker.wait(broker.ask_notification(1000)).ext == no


def test_a_peek_shows_messages_without_a_lease(broker: PopBroker) -> None:
    broker.put("a", "b")
    assert broker.pop(queue_id=0, max_msg_nums=1).bodies == [b"a"]
    for _ in range(2):
        shown = broker.peek()
        assert (shown.code, shown.bodies) == (OK, [b"b"])  # not what is out
    broker.pop()
    nothing = broker.peek()
    assert nothing.code == ResponseCode.PULL_NOT_FOUND
    assert nothing.header.ext() == ZEROS


# ------------------------------------------------------------ beside pops


def test_a_forwarded_message_loses_its_receipt(broker: PopBroker) -> None:
    broker.put("a", POP_CK="0 1 2 3 0 b 0 0", A="b")
    (record,) = broker.pop().records
    assert "POP_CK" not in record.properties
    assert record.properties["A"] == "b"


def test_commits_of_pulls_do_not_move_a_group_that_pops(broker: PopBroker) -> None:
    broker.put("a", "b")
    broker.pop()
    commit = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "commitOffset": "2"}
    answer = broker.call(RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, commit))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "its offset follows its acknowledgements" in (answer.remark or "")
    assert broker.offset() == 0


def test_a_reset_shows_all_messages_again_once(broker: PopBroker) -> None:
    broker.put("a", "b", "c")
    for receipt in broker.pop(invisible_time=3000).receipts.values():
        broker.ack(receipt)
    broker.pop(invisible_time=3000)
    ext = {
        "topic": TOPIC, "group": GROUP, "timestamp": "0", "isForce": "true", "queueId": "0",
        "offset": "1",
    }  # fmt: skip
    answer = broker.call(RemotingCommand(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext))
    assert answer.code == OK
    assert answer.body is not None
    assert answer.body.endswith(b":1}}")
    got = broker.pop(invisible_time=60_000)
    assert got.bodies == [b"b", b"c"]
    broker.run(10)
    assert broker.pop().code == NOTHING
    by_time = {key: value for key, value in ext.items() if key not in ("queueId", "offset")}
    answer = broker.call(RemotingCommand(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, by_time))
    assert answer.code == OK
    assert broker.pop().bodies == [b"a", b"b", b"c"]


def test_a_deleted_topic_and_a_deleted_group_leave_nothing_out(broker: PopBroker) -> None:
    broker.put("a")
    broker.pop(invisible_time=2000)
    assert broker.call(RemotingCommand(215, {"topic": TOPIC})).code == OK
    broker.run(10)
    assert broker.broker.pops.counters().out == 0
    assert broker.broker.topics.get(RETRY) is None
    broker.add_topic("U", 1)
    broker.put("b", topic="U")
    broker.pop(topic="U", invisible_time=2000)
    assert broker.call(RemotingCommand(207, {"groupName": GROUP})).code == OK
    assert broker.broker.pops.counters().out == 0


def test_without_pops_all_are_unknown_requests() -> None:
    broker = SimBroker().start()
    for code in (*range(200050, 200057), 200151, 400, 401, 402):
        assert broker.call(RemotingCommand(code, {})).code == 3
    broker.stop()


def test_a_store_that_fails_is_told_once(broker: PopBroker) -> None:
    """RocketMQ leaves such a request without an answer."""
    waiting, asked = broker.ask_pop(poll_time=5000), broker.ask_notification(5000)
    broker.run(0.1)
    pops = broker.broker.pops

    def fails(*_: Any, **__: Any) -> Any:
        raise StoreError("the disk is gone")

    pops.pop = pops.has_something = fails
    broker.run(6)
    assert broker.wait(waiting).code == ResponseCode.SYSTEM_ERROR
    assert broker.wait(asked).code == ResponseCode.SYSTEM_ERROR
    del pops.pop, pops.has_something
    broker.put("a")
    assert broker.pop().bodies == [b"a"]
