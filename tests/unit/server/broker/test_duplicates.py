"""With duplicateWindowMillis a send whose message is stored already is not stored again."""

from __future__ import annotations

from typing import Any

import pytest

from rmq_ha.base.errors import StoreError
from rmq_ha.base.model.topic_config import TopicConfig
from rmq_ha.base.store_flags import Flag
from rmq_ha.base.store_format.commitlog import decode_record
from rmq_ha.base.wire.batch import encode_batch
from rmq_ha.base.wire.bodies import HeartbeatData, ProducerData
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.ops.app.status.broker import BrokerStatus
from rmq_ha.server.broker.duplicates import DuplicateWindow, SendKey
from rmq_ha.testing.cluster import LISTEN_PORT
from tests.unit.server.broker.sim_broker import TOPIC, SimBroker
from tests.unit.server.broker.test_metrics import scrape, value
from tests.unit.server.broker.test_send_runs import Ends, frames
from tests.unit.server.broker.test_transaction_parts import record

WINDOW_MS = 60_000


def broker(window_ms: int = WINDOW_MS) -> SimBroker:
    made = SimBroker()
    made.configuration.store.mapped_file_size_commit_log = 1 << 20
    made.configuration.ours.duplicate_window_millis = window_ms
    return made.start()


def records(of: Any) -> list[Any]:
    """All of a broker's log, in order."""
    store = of.broker.store
    found, at = [], max(store.log.min_offset, 0)
    while (data := store.record_at(at)) is not None:
        found.append(decode_record(data))
        at += len(data)
    return found


def window_of(one: SimBroker) -> Any:
    return one.broker.dispatcher.routes[RequestCode.SEND_BATCH_MESSAGE].__self__._window


def known(answer: RemotingCommand) -> bool:
    return (answer.ext or {}).get("duplicate") == "true"


def place(answer: RemotingCommand) -> tuple[Any, ...]:
    ext = answer.ext or {}
    return answer.code, ext["queueId"], ext["queueOffset"], ext["msgId"]


def test_a_repetition_is_answered_as_the_first_and_is_not_stored() -> None:
    one = broker()
    first = one.call(one.message(UNIQ_KEY="A"))
    again = one.call(one.message(b"other body", UNIQ_KEY="A"))
    assert (known(first), known(again)) == (False, True)
    assert place(again) == place(first)
    elsewhere = one.message(UNIQ_KEY="A")
    elsewhere.ext["e" if "e" in elsewhere.ext else "queueId"] = "2"
    assert place(one.call(elsewhere)) == place(first)
    assert [record.body for record in records(one)] == [b"hello"]


def test_off_each_send_is_stored_and_no_answer_says_more_than_rocketmq_s() -> None:
    one = broker(0)
    first, again = (one.call(one.message(UNIQ_KEY="A")) for _ in range(2))
    assert place(first) != place(again)
    assert set(again.ext or {}) == {"MSG_REGION", "TRACE_ON", "msgId", "queueId", "queueOffset"}
    assert len(records(one)) == 2
    body = HeartbeatData("c", [], [ProducerData("P")]).encode()
    beat = RemotingCommand(RequestCode.HEART_BEAT, None, body)
    assert one.call(beat).ext is None


@pytest.mark.parametrize("groups", [[], ["P"]])
def test_a_heartbeat_is_told_the_window(groups: list[str]) -> None:
    one = broker()
    body = HeartbeatData("c", [], list(map(ProducerData, groups))).encode()
    beat = RemotingCommand(RequestCode.HEART_BEAT, None, body)
    assert one.call(beat).ext == {"duplicateWindowMillis": "60000"}


def test_what_is_not_the_same_message_is_stored() -> None:
    """Another topic, no id, an id that is only a key of others, a message that is given back."""
    one = broker()
    one.broker.topics.update(TopicConfig("T2", 4, 4))
    one.broker.topics.update(TopicConfig("%RETRY%g", 1, 1))
    one.broker.groups.find("g")
    sends = [
        one.message(UNIQ_KEY="A"),
        one.message(topic="T2", UNIQ_KEY="A"),
        one.message(),
        one.message(),
        one.message(KEYS="B C"),
        one.message(UNIQ_KEY="B"),
        one.message(topic="%RETRY%g", UNIQ_KEY="A"),
        one.message(topic="%RETRY%g", UNIQ_KEY="A"),
    ]
    answers = [one.call(send) for send in sends]
    assert [known(answer) for answer in answers] == [False] * len(sends)
    assert [answer.code for answer in answers] == [0] * len(sends)
    assert len(records(one)) == len(sends)


def test_the_window_is_over() -> None:
    one = broker()
    first = one.call(one.message(UNIQ_KEY="A"))
    one.world.clock.run_for(WINDOW_MS / 1000 - 1)
    assert known(one.call(one.message(UNIQ_KEY="A")))
    one.world.clock.run_for(1.1)  # the index counts in seconds
    later = one.call(one.message(UNIQ_KEY="A"))
    assert not known(later)
    assert place(later) != place(first)
    assert place(one.call(one.message(UNIQ_KEY="A"))) == place(later)


def test_a_repetition_does_not_wait_for_what_is_gathered() -> None:
    """The first is dispatched for it: it waits less than its client does."""
    one = broker()
    one.broker.store.dispatcher.gather_s = 2.0
    one.call(one.message(UNIQ_KEY="before"))
    first, again = (one.call(one.message(UNIQ_KEY="A")) for _ in range(2))
    assert known(again)
    assert place(again) == place(first)
    assert one.world.clock.seconds() < 1.0


def test_in_a_run_each_repetition_is_found_before_it_is_dispatched() -> None:
    ends = Ends(window_ms=WINDOW_MS)
    ids = "ABACBAD"
    answers = ends.answers(frames(False, *[{"i": f"UNIQ_KEY\x01{letter}"} for letter in ids]))
    places = [ext["msgId"] for _, _, ext in answers if ext]
    assert places == [places[ids.index(letter)] for letter in ids]
    assert len(set(places)) == 4
    assert ["duplicate" in (ext or {}) for _, _, ext in answers] == [
        ids.index(letter) < number for number, letter in enumerate(ids)
    ]
    assert len(ends.records()) == 4


def test_delayed_messages_are_compared_too() -> None:
    one = broker()
    first, again = (one.call(one.message(UNIQ_KEY="A", DELAY="1")) for _ in range(2))
    assert known(again)
    assert place(again) == place(first)
    other = one.call(one.message(topic="T2", UNIQ_KEY="A", DELAY="1"))
    assert not known(other)
    one.world.clock.run_for(3)  # delivered by now: that copy has the same id
    assert [record.topic for record in records(one)].count(TOPIC) == 1
    assert known(one.call(one.message(UNIQ_KEY="A")))


def test_half_messages_are_not_compared() -> None:
    one = broker()
    half = {"UNIQ_KEY": "A", "TRAN_MSG": "true", "PGROUP": "producers"}
    answers = [one.call(one.message(**half)) for _ in range(2)]
    assert [known(answer) for answer in answers] == [False, False]
    assert len(records(one)) == 2


def batch(one: SimBroker, *ids: str) -> RemotingCommand:
    body = encode_batch([(0, f"of {key}".encode(), f"UNIQ_KEY\x01{key}") for key in ids])
    request = send_request("producers", TOPIC, 0, body, "", one.host.now_ms())
    made = RemotingCommand(RequestCode.SEND_BATCH_MESSAGE, dict(request.ext or {}), body)
    made.ext["m" if "a" in made.ext else "batch"] = "true"
    return made


def test_a_batch_is_known_where_all_of_it_lies_side_by_side() -> None:
    one = broker()
    first = one.call(batch(one, "A", "B", "C"))
    again = one.call(batch(one, "A", "B", "C"))
    assert first.code == 0, first.remark
    assert (known(first), known(again)) == (False, True)
    assert place(again) == place(first)
    part = one.call(batch(one, "A", "B"))
    assert known(part)
    assert place(part)[3] == ",".join(place(first)[3].split(",")[:2])
    assert known(one.call(one.message(UNIQ_KEY="B")))
    assert len(records(one)) == 3
    for ids in ("ABX", "ACB", "ABCD", "XAB"):
        assert not known(one.call(batch(one, *ids)))
    assert len(records(one)) == 3 + 3 + 3 + 4 + 3


def test_each_member_of_a_batch_is_under_way_until_the_index_knows_it() -> None:
    """Else what is sent alone, or in another batch, right behind it is stored a second time."""
    one = broker()
    one.broker.store.dispatcher.gather_s = 2.0
    one.call(one.message(UNIQ_KEY="before"))
    first = one.call(batch(one, "A", "B"))
    alone = one.call(one.message(UNIQ_KEY="B"))
    assert (known(first), known(alone)) == (False, True)
    one.world.clock.run_for(3)
    one.call(one.message(UNIQ_KEY="C"))
    assert not known(one.call(batch(one, "D", "C")))  # no run of both
    assert [record.properties["UNIQ_KEY"] for record in records(one)] == [
        "before", "A", "B", "C", "D", "C",
    ]  # fmt: skip
    assert one.world.clock.seconds() < 5


def test_a_batch_waits_for_each_of_its_members_that_is_under_way() -> None:
    """What lies side by side is known as soon as the index knows all of it."""
    one = broker()
    one.broker.store.dispatcher.gather_s = 2.0
    one.call(one.message(UNIQ_KEY="A"))
    one.call(one.message(UNIQ_KEY="B"))
    assert known(one.call(batch(one, "A", "B")))
    assert len(records(one)) == 2


def test_a_batch_waits_for_a_member_behind_one_that_is_known() -> None:
    one = broker()
    one.call(one.message(UNIQ_KEY="A"))
    one.world.clock.run_for(3)
    one.broker.store.dispatcher.gather_s = 2.0
    one.call(one.message(topic="Other", UNIQ_KEY="before"))
    one.call(one.message(UNIQ_KEY="B"))
    assert known(one.call(batch(one, "A", "B")))


def test_what_never_ends_is_waited_for_as_long_as_a_client_waits() -> None:
    """Nobody knows of its message yet whether it is stored: neither answer would be true."""
    one = broker()
    window, outcomes = window_of(one), one.broker.store.statistics.outcomes
    assert window.begins(TOPIC, "A")
    answers: list[RemotingCommand] = []
    for send in (one.message(UNIQ_KEY="A"), batch(one, "A", "B")):
        one.ask(send).addCallback(answers.append)
    one.world.clock.run_for(2.9)
    assert (answers, outcomes.waiting) == ([], 2)
    one.world.clock.run_for(0.2)
    assert [(answer.code, known(answer)) for answer in answers] == [(1, False)] * 2
    assert outcomes.waiting == 0
    window._forget((TOPIC, "A"))
    again = one.call(batch(one, "A", "B"))
    assert (again.code, known(again), len(records(one))) == (0, False, 2)


def test_who_becomes_the_master_waits_for_nothing_of_its_earlier_life() -> None:
    one = broker()
    answers: list[RemotingCommand] = []
    for key in "AB":
        assert window_of(one).begins(TOPIC, key)
        for _ in range(2):
            one.ask(one.message(UNIQ_KEY=key)).addCallback(answers.append)
    one.world.clock.run_for(0.5)
    assert answers == []
    one.broker.store.on_renumbered()
    one.world.clock.run_for(0.5)
    assert sorted(known(answer) for answer in answers) == [False, False, True, True]
    assert {answer.code for answer in answers} == {0}


def test_of_a_run_each_one_that_is_refused_is_under_way_no_more() -> None:
    window = window_of(broker())
    kept: list[Any] = []
    for _ in range(2):
        assert all(window.begins(TOPIC, key) for key in "ABC")
        assert not any(window.begins(TOPIC, key) for key in "ABC")
        done = window.watched([(TOPIC, key) for key in "ABC"], lambda *given: kept.append(given))
        done("refused", [None] * 3, {}, 1.0)
    assert kept == [("refused", [None] * 3, {}, 1.0)] * 2


def test_what_is_not_compared_begins_whatever_else_is_under_way() -> None:
    """What cannot be compared now is looked at alone: its sender hears why."""
    one = broker()
    window = window_of(one)
    assert [window.begins(TOPIC, "") for _ in range(2)] == [True, True]
    one.call(one.message(UNIQ_KEY="A"))
    one.world.clock.run_for(1)

    def refuses(place: int) -> Any:
        raise StoreError("the disk refuses")

    window._record = refuses
    assert not window.begins(TOPIC, "A")


def test_what_the_log_does_not_have_any_more_is_not_known() -> None:
    one = broker()
    first = one.call(one.message(UNIQ_KEY="A"))
    one.world.clock.run_for(1)
    window_of(one)._record = lambda place: None
    again = one.call(one.message(UNIQ_KEY="A"))
    assert (again.code, known(again)) == (0, False)
    assert place(again) != place(first)


def test_what_cannot_be_read_of_the_log_is_not_known() -> None:
    one = broker()
    one.call(one.message(UNIQ_KEY="A"))
    one.world.clock.run_for(1)
    one.broker.store.record_at = lambda place: b"no record of any kind"
    again = one.call(one.message(UNIQ_KEY="A"))
    assert (again.code, known(again)) == (0, False)


@pytest.mark.parametrize(
    ("topic", "properties", "is_the_same"),
    [
        ("T", {"UNIQ_KEY": "A"}, True),
        ("U", {"UNIQ_KEY": "A"}, False),
        ("T", {"UNIQ_KEY": "B"}, False),
        ("T", {"KEYS": "A"}, False),
    ],
)
def test_what_a_record_is_the_message_of(
    topic: str, properties: dict[str, str], is_the_same: bool
) -> None:
    """The index knows hashes, which others may have, too; a delayed one says where it goes."""
    same = DuplicateWindow._is_record_of
    assert same(record(properties, topic=topic), SendKey("T", "T", "A")) is is_the_same
    for number, is_number in (("3", True), ("x", False), ("", False)):
        place = {"REAL_TOPIC": topic, "REAL_QID": number}
        delayed = record(properties | place, topic="SCHEDULE_TOPIC_XXXX")
        sent = SendKey("SCHEDULE_TOPIC_XXXX", "T", "A")
        assert same(delayed, sent) is (is_the_same and is_number)


@pytest.mark.parametrize(("step", "is_known"), [(0, True), (1, True), (8, True), (9, False)])
def test_a_search_ends_after_so_many_steps(step: int, is_known: bool) -> None:
    """Of a thousand items each: longer chains are somebody's work, and cost others their turns."""
    one = broker()
    one.call(one.message(UNIQ_KEY="A"))
    one.world.clock.run_for(1)
    really = one.broker.store.index.find

    def find(*asked: Any) -> Any:
        for number in range(20):
            if number == step:
                list(really(*asked))
            yield

    one.broker.store.index.find = find
    assert known(one.call(one.message(UNIQ_KEY="A"))) is is_known


def test_a_batch_with_a_member_without_an_id_and_one_that_is_given_back_are_stored() -> None:
    one = broker()
    one.broker.topics.update(TopicConfig("%RETRY%g", 1, 1))
    one.broker.groups.find("g")
    for _ in range(2):
        assert not known(one.call(batch(one, "A", "")))
        back = batch(one, "A", "B")
        back.ext["b" if "b" in back.ext else "topic"] = "%RETRY%g"
        assert not known(one.call(back))
    assert len(records(one)) == 2 * 4


def test_who_takes_no_puts_says_so_of_a_repetition_too() -> None:
    """It may be no master any more: what it has is no proof that the one who is has it."""
    one = broker()
    repeated = [one.message(UNIQ_KEY="A"), batch(one, "B", "C")]
    assert [one.call(send).code for send in repeated] == [0, 0]
    one.broker.store.flags.hoist(Flag.DISK_FULL, "the disk is 91% full")
    answers = [one.call(send) for send in repeated]
    assert [(answer.code, known(answer)) for answer in answers] == [(14, False)] * 2
    one.broker.store.flags.lower(Flag.DISK_FULL)
    assert all(known(one.call(send)) for send in repeated)


def test_a_comparison_that_the_disk_refuses_is_made_anew_with_the_next_try() -> None:
    """Whatever of it was compared by then: nobody waits for it."""
    one = broker()
    assert one.call(batch(one, "A", "B", "C")).code == 0
    store = one.broker.store
    window = window_of(one)
    really, reads = window._record, []

    def refuses(place: int) -> Any:
        reads.append(place)
        if len(reads) == 3:
            raise StoreError("the disk refuses")
        return really(place)

    window._record = refuses
    assert one.call(batch(one, "A", "B", "C")).code != 0
    assert known(one.call(one.message(UNIQ_KEY="B")))
    assert known(one.call(batch(one, "A", "B", "C")))
    assert (len(records(one)), store.statistics.outcomes.waiting) == (3, 0)
    assert one.world.clock.seconds() < 2


def test_many_members_are_compared_over_several_turns() -> None:
    one = broker()
    ids = [f"id{number}" for number in range(1700)]
    first, again = one.call(batch(one, *ids)), one.call(batch(one, *ids))
    assert known(again)
    assert place(again) == place(first)
    assert len(records(one)) == 1700


def test_a_member_is_under_way_while_its_batch_is_compared() -> None:
    """What is sent alone meanwhile would be stored, and then again with its batch."""
    one = broker()
    ids = [f"id{number}" for number in range(1700)]
    one.call(batch(one, *ids))
    longer, alone = one.ask(batch(one, *ids, "last")), one.ask(one.message(UNIQ_KEY="last"))
    assert [known(one.wait(answer)) for answer in (longer, alone)] == [False, True]
    assert [record.properties["UNIQ_KEY"] for record in records(one)] == [*ids, *ids, "last"]
    assert one.broker.store.statistics.outcomes.waiting == 0  # else sends are refused one day
    one.world.clock.run_for(5)  # its patience would be over by now
    assert one.world.clock.failures == []


def test_after_a_topic_was_deleted_its_messages_are_known_no_more() -> None:
    """Nobody can read them: to say that they are stored would be a lie."""
    one = broker()
    one.broker.topics.update(TopicConfig("T2", 4, 4))
    one.call(one.message(topic="T2", UNIQ_KEY="A"))
    one.world.clock.run_for(1)
    delete = RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T2"})
    assert one.call(delete).code == 0
    one.broker.topics.update(TopicConfig("T2", 4, 4))
    assert not known(one.call(one.message(topic="T2", UNIQ_KEY="A")))
    assert known(one.call(one.message(topic="T2", UNIQ_KEY="A")))


@pytest.mark.parametrize("how", ["stop", "kill", "power"])
def test_a_start_knows_what_was_stored_before(how: str) -> None:
    one = broker()
    answers = {key: one.call(one.message(UNIQ_KEY=key)) for key in "ABC"}
    one.world.clock.run_for(1)
    late = one.ask(one.message(UNIQ_KEY="D"))
    one.wait(late)  # answered, and not dispatched yet, perhaps
    if how == "stop":
        one.stop()
    else:
        one.host.crash(power=how == "power")
        one.host.restart()
        one.client.close(f"{one.host.ip}:{LISTEN_PORT}")
    one.start()
    for key in "ABCD":
        before = len(records(one))
        again = one.call(one.message(UNIQ_KEY=key))
        assert again.code == 0
        if how != "power":
            assert known(again)
        if known(again):
            assert len(records(one)) == before
            if key in answers:
                assert place(again) == place(answers[key])
    ids = [record.properties["UNIQ_KEY"] for record in records(one)]
    assert sorted(ids) == list("ABCD")


def test_a_start_builds_an_index_anew_that_is_gone() -> None:
    one = broker()
    first = one.call(one.message(UNIQ_KEY="A"))
    one.stop()
    disk = one.host.seams.disk
    folder = f"{one.configuration.store.store_path_root_dir}/index"
    for name in disk.list_dir(folder):
        disk.remove(f"{folder}/{name}")
    one.start()
    assert place(one.call(one.message(UNIQ_KEY="A"))) == place(first)
    assert len(records(one)) == 1


def test_a_refused_send_is_under_way_no_more() -> None:
    one = broker()
    one.configuration.store.max_message_size = 10
    assert one.call(one.message(b"too long for it", UNIQ_KEY="A")).code == 13
    assert not known(one.call(one.message(b"short", UNIQ_KEY="A")))
    assert known(one.call(one.message(b"short", UNIQ_KEY="A")))


@pytest.mark.parametrize("wait", ["true", "false"])
def test_nor_is_one_that_only_the_store_refuses(wait: str) -> None:
    """Alone or in a run: the next try is not told to wait for it."""
    one = broker()
    long = one.message(b"x", UNIQ_KEY="A", WAIT=wait, FILL="x" * 33_000)
    assert one.call(long).code == 13
    short = one.call(one.message(b"short", UNIQ_KEY="A"))
    assert (short.code, known(short)) == (0, False)


def test_many_messages_of_one_key_do_not_hide_the_first() -> None:
    one = broker()
    one.call(one.message(UNIQ_KEY="A"))
    for number in range(100):
        one.call(one.message(KEYS="A", UNIQ_KEY=f"other {number}"))
    assert known(one.call(one.message(UNIQ_KEY="A")))


def test_what_was_recognised_is_counted_and_what_is_put_is_not_more() -> None:
    one = broker()
    for _ in range(3):
        one.call(one.message(UNIQ_KEY="A"))
        one.call(batch(one, "B", "C"))
    found = scrape(BrokerStatus(one.broker))
    assert value(found, "rmqha_duplicate_sends_total") == 2 + 4
    assert value(found, "rmqha_puts_waiting") == 0
    assert one.broker.store.statistics.put_times == 3
