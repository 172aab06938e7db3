"""Groups of real members: those that differ, hang, fail or are gone, and what is lost to them."""

from __future__ import annotations

from typing import Any

import pytest

from rmq_ha.base.wire.batch import encode_batch
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.client.rules.listening import ConsumeConcurrentlyStatus
from rmq_ha.ops.admin import dlq, group, offsets, topic
from tests.unit.ops.admin.doctor.fleet import Fleet, never

HOUR_MS = 3_600_000
LARGE = {
    "mapped_file_size_commit_log": 16 << 20,
    "mapped_file_size_consume_queue": 20 * 30_000,
    "max_hash_slot_num": 50_000,
    "max_index_num": 200_000,
}
YES = {"yes": True, "dry_run": False}


@pytest.fixture
def one() -> Fleet:
    """A broker with a topic of four queues; nothing is wrong."""
    fleet = Fleet("a")
    fleet.make_topic()
    fleet.run(5)
    fleet.is_well()
    return fleet


def consumed(messages: Any, context: Any) -> ConsumeConcurrentlyStatus:
    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS


def failed(messages: Any, context: Any) -> ConsumeConcurrentlyStatus:
    return ConsumeConcurrentlyStatus.RECONSUME_LATER


def left(fleet: Fleet, count: int, **more: Any) -> None:
    """The group consumed one message of each queue; then its member ended, and more came."""
    member = fleet.member("m1", consumed)
    fleet.send("Work", 4)
    fleet.run(10)
    fleet.wait(member.stop())
    fleet.send("Work", count, **more)
    fleet.run(1)


def test_how_many_members_were_not_asked_is_said(
    one: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmq_ha.ops.admin.doctor.groups.MOST_MEMBERS", 1)
    for name in ("m1", "m2", "m3"):
        one.member(name, consumed)
    one.run(3)
    why = one.visit().not_looked["what 2 members of workers subscribe"]
    assert why == "they are too many"


def test_two_subscriptions(one: Fleet) -> None:
    """The second member runs with old code; then it is restarted."""
    one.member("m1", consumed)
    second = one.member("m2", consumed, expression="a")
    one.run(3)
    told = one.finds("two-subscriptions")
    assert "Work [*]" in told
    assert "Work [a]" in told
    one.wait(second.stop())
    one.member("m3", consumed)
    one.run(3)
    one.is_well()


def test_a_listener_that_hangs(one: Fleet) -> None:
    """Then its process is killed; then another one does the work."""
    one.member("m1", never)
    one.send("Work", 4)
    one.run(10)
    assert "1 members, 4 messages wait" in one.finds("not-committing")
    one.hosts["m1"].crash()
    one.run(1)
    assert "4 messages wait, and it has no member" in one.finds("no-members")
    one.member("m2", consumed)
    one.run(30)
    one.is_well()


def test_a_group_that_nobody_needs(one: Fleet) -> None:
    """It is deleted, as `doctor` says."""
    left(one, 4)
    one.finds("no-members")
    one.type(lambda s: group.delete_everywhere(s, "workers", keep_offsets=False, **YES))
    one.is_well()


def test_messages_that_grow_old_unread(one: Fleet) -> None:
    """Four fifths of their time are over; kept for longer they have some again."""
    left(one, 4)
    for host in one.world.hosts.values():
        host.step_clock(60 * HOUR_MS)
    assert "4 unread messages are nearly too old" in one.finds("unread-soon-deleted")
    one.config_set("pair", fileReservedTime="200")
    assert "unread-soon-deleted" not in one.visit().codes()


def test_messages_that_were_deleted_unread(one: Fleet) -> None:
    """The disk was too full for them; whoever comes back goes on at the first that is there."""
    left(one, 80, size=3000)
    disk = one.hosts["a"].disk
    usage = disk.usage("/store")
    assert usage is not None
    disk.capacity = round(usage.used / 0.87)
    one.run(70)
    disk.capacity = 1 << 40
    assert "messages were deleted unread" in one.finds("unread-deleted")
    one.member("m2", consumed)
    one.run(30)
    one.is_well()


def test_a_broker_that_lost_its_messages(one: Fleet) -> None:
    """Its disk is a new one, its tables were kept: groups stand where nothing is any more."""
    left(one, 0)
    one.stop("a")
    disk = one.hosts["a"].disk
    for name in ("commitlog", "consumequeue", "index"):
        disk.remove_tree(f"/store/{name}")
    disk.remove("/store/checkpoint")
    one.add("a", ours={"keep_damaged_log": False, "check_committed_offsets": False})
    one.run(5)
    assert "but the queue ends at 0" in one.finds("offset-beyond-end")
    now = one.hosts["a"].now_ms()
    one.type(lambda s: offsets.move_offsets(s, "Work", "workers", now, **YES))
    one.is_well()


def put_queues(fleet: Fleet, name: str, queues: int) -> None:
    """A topic's queues without the questions that `rmqha-admin topic update` asks."""
    ext = {"topic": name, "readQueueNums": str(queues), "writeQueueNums": str(queues)}
    more = {"perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    fleet.wait(fleet.asking("admin", RequestCode.UPDATE_AND_CREATE_TOPIC, ext | more)())


def test_retries_in_queues_that_nobody_may_read(one: Fleet) -> None:
    """As Java's brokers leave them; what `doctor` says is typed, and all of them come again."""
    given_back, again = list[str](), list[str]()

    def first_time_failed(messages: Any, context: Any) -> ConsumeConcurrentlyStatus:
        for message in messages:
            (again if message.reconsume_times else given_back).append(message.msg_id)
        if messages[0].reconsume_times:
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS
        return ConsumeConcurrentlyStatus.RECONSUME_LATER

    one.member("m1", first_time_failed)
    one.run(5)
    change = group.change_group
    given = {"retry_queue_nums": 4}
    one.type(lambda s: change(s, "workers", "", given, is_new=False, **YES))
    one.send("Work", 40)
    one.run(5)
    put_queues(one, "%RETRY%workers", 1)
    one.run(60)
    assert len(given_back) == 40
    assert 0 < len(again) < 40
    found = one.finds("unreadable-queues")
    assert f"{40 - len(again)} messages lie in queues 1 to 3 at pair" in found
    typed = "rmqha-admin topic update '%RETRY%workers' --on pair --read-queues 4"
    assert f"`{typed}`" in found
    shape = {"read_queues": 4, "queues": None, "write_queues": None, "perm": None}
    one.type(lambda s: topic.change_topic(s, "%RETRY%workers", "pair", shape, is_new=False, **YES))
    one.run(60)
    assert sorted(again) == sorted(given_back)
    one.is_well()


def test_retries_after_the_group_asked_for_more_queues(one: Fleet) -> None:
    """The group has consumed once, so that it has a retry topic of one queue."""
    again = list[int]()

    def failed_once(messages: Any, context: Any) -> ConsumeConcurrentlyStatus:
        again.extend(m.queue_id for m in messages if m.reconsume_times)
        if messages[0].reconsume_times:
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS
        return ConsumeConcurrentlyStatus.RECONSUME_LATER

    one.member("m1", failed_once)
    one.run(5)
    change = group.change_group
    given = {"retry_queue_nums": 4}
    one.type(lambda s: change(s, "workers", "", given, is_new=False, **YES))
    one.send("Work", 40)
    one.run(60)
    assert len(again) == 40
    assert set(again) == {0, 1, 2, 3}
    one.is_well()


def test_a_group_that_may_not_consume(one: Fleet) -> None:
    one.member("m1", consumed)
    one.run(5)
    change = group.change_group
    for allowed in (False, True):
        given = {"consume_enable": allowed}
        one.type(lambda s, given=given: change(s, "workers", "", given, is_new=False, **YES))
        if not allowed:
            assert "it may not consume at pair" in one.finds("group-disabled")
    one.is_well()


def test_a_topic_that_may_not_be_written(one: Fleet) -> None:
    shape = {"queues": None, "read_queues": None, "write_queues": None}
    for perm in ("R", "RW"):
        given = shape | {"perm": perm}
        one.type(
            lambda s, given=given: topic.change_topic(s, "Work", "", given, is_new=False, **YES)
        )
        one.run(5)
        if perm == "R":
            assert "its perm has no W" in one.finds("topic-read-only")
    one.is_well()
    assert "topic-read-only" not in one.visit().codes()


def test_a_group_that_nobody_made() -> None:
    """Members wait; the group is made, and they get what is there."""
    fleet = Fleet()
    fleet.add("a", broker={"auto_create_subscription_group": False})
    fleet.make_topic(queues=4)
    fleet.member("m1", consumed)
    fleet.send("Work", 4)
    fleet.run(12)
    assert "it has members at" in fleet.finds("group-missing")
    fleet.type(lambda s: group.change_group(s, "workers", "", {}, is_new=True, **YES))
    fleet.run(12)
    fleet.is_well()


def test_more_members_than_queues() -> None:
    """Two have nothing to do, until there are more queues."""
    fleet = Fleet("a")
    fleet.make_topic(queues=1)
    for name in ("m1", "m2"):
        fleet.member(name, consumed)
    fleet.send("Work")
    fleet.run(25)
    assert "2 members share 1 queues of Work" in fleet.finds("idle-members")
    shape = {"queues": 2, "read_queues": None, "write_queues": None, "perm": None}
    fleet.type(lambda s: topic.change_topic(s, "Work", "", shape, is_new=False, **YES))
    fleet.run(40)
    fleet.send("Work", 4)
    fleet.run(30)
    assert "idle-members" not in fleet.is_well().codes()


def batches(fleet: Fleet, count: int, queue: int) -> None:
    """Many small messages in one queue, whose properties nobody has to read."""
    for start in range(0, count, 12_500):
        body = encode_batch([(0, b"x", "")] * min(12_500, count - start))
        request = send_request("makers", "Work", queue, body, "", fleet.hosts["a"].now_ms())
        ext = {**(request.ext or {}), "m": "true"}
        response = fleet.wait(fleet.asking("batch", 320, ext, body)())
        assert response.code == 0, response.remark


def test_one_sharding_key_for_all() -> None:
    """All messages wait in one queue of four."""
    fleet = Fleet()
    fleet.add("a", store={"mapped_file_size_commit_log": 4 << 20})
    fleet.make_topic()
    left(fleet, 0)
    batches(fleet, 1200, 2)
    told = fleet.finds("one-queue-behind")
    assert "far-behind" not in fleet.visit().codes()
    assert "1200 of its messages wait in one queue: Work, queue 2" in told


def test_a_group_that_is_far_behind() -> None:
    fleet = Fleet()
    fleet.add("a", store=LARGE)
    fleet.make_topic()
    left(fleet, 0)
    for queue in range(4):
        batches(fleet, 25_001, queue)
    assert "it is 100004 messages behind" in fleet.finds("far-behind")


def test_a_listener_that_fails(one: Fleet) -> None:
    """At once, its dead letters grow; hours later they lie there; sent again they are consumed."""
    member = one.member("m1", failed, max_reconsume_times=0)
    one.send("Work", 2)
    one.run(10)
    assert "2 dead letters at pair" in one.finds("dlq-growing")
    for host in one.world.hosts.values():
        host.step_clock(3 * HOUR_MS)
    one.finds("dlq-waiting")
    one.wait(member.stop())
    one.member("m2", consumed)
    one.type(lambda s: dlq.resend_to(s, "workers", every=True, **YES))
    one.run(10)
    one.is_well()
