"""Open transactions: whom the broker asks, how often, and what it does with the answers."""

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.logger import LogLevel, capturedLogs, formatEvent

from rmq_ha.base.model.message import Address, BrokerMessage, GetMessageResult, PutMessageResult
from rmq_ha.base.model.properties import MAX_PROPERTIES_SIZE, encode_properties
from rmq_ha.base.model.status import BrokerRole, GetMessageStatus, PutMessageStatus
from rmq_ha.base.model.topics import HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from rmq_ha.base.wire.codes import RequestCode, ResponseCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.broker.transactions import check
from rmq_ha.server.broker.transactions.context import CheckContext
from rmq_ha.server.broker.transactions.messages import GROUP as PROGRESS_GROUP
from rmq_ha.server.broker.transactions.messages import op_mark, read_mark
from tests.unit.server.broker.transaction_kit import (
    COMMIT,
    GROUP,
    INTERVAL_S,
    ROLLBACK,
    TOPIC,
    UNKNOWN,
    TransactionBroker,
    started,
)


def test_ended_transactions_are_not_asked_about() -> None:
    """Progress goes behind them, and their op messages are used up."""
    broker = started()
    broker.end(broker.half("a"), COMMIT)
    broker.end(broker.half("b"), ROLLBACK)
    broker.rounds(5)
    assert broker.asked == []
    assert broker.visible() == ["a"]
    assert broker.progress() == broker.ends() == (2, 2)


@pytest.mark.parametrize(("answer", "seen"), [(COMMIT, ["a"]), (ROLLBACK, [])])
def test_open_transaction_is_asked_about_once(answer: int, seen: list[str]) -> None:
    """When it is older than the time-out; the answer ends the copy that the question names."""
    broker = started()
    broker.decide = lambda key: answer
    broker.half("a")
    broker.run(2.5)
    assert broker.asked == []
    broker.rounds(6)
    assert broker.asked == [("a", 1)]
    assert broker.visible() == seen
    assert broker.progress() == broker.ends()
    assert broker.discarded() == []


@pytest.mark.parametrize("answer", [None, UNKNOWN])
def test_producer_that_never_knows(answer: int | None) -> None:
    """It is asked transactionCheckMax times; then the message is where an operator finds it."""
    broker = started()
    broker.decide = lambda key: answer
    broker.half("a")
    broker.rounds(12)
    assert broker.asked == [("a", 1), ("a", 2), ("a", 3)]
    assert broker.discarded() == ["a"]
    (record,) = broker.records(TRANS_CHECK_MAX_TIME_TOPIC)
    assert record.body == b"a"
    assert broker.broker.topics.get(TRANS_CHECK_MAX_TIME_TOPIC).read_queue_nums == 1
    assert broker.visible() == []
    assert broker.progress() == broker.ends()


def test_last_answer_has_its_time() -> None:
    """The answer to the last question, given within the interval, still counts."""
    broker = started()
    broker.decide = lambda key: COMMIT if broker.asked[-1][1] == 3 else UNKNOWN
    broker.half("a")
    broker.rounds(12)
    assert broker.asked[-1] == ("a", 3)
    assert broker.visible() == ["a"]
    assert broker.discarded() == []


def test_nobody_is_there_to_be_asked() -> None:
    """It counts all the same: a producer that is gone for good must not keep messages open."""
    broker = TransactionBroker()
    broker.start()
    broker.half("a")
    broker.rounds(12)
    assert broker.asked == []
    assert broker.discarded() == ["a"]


def test_open_one_does_not_hold_up_those_behind() -> None:
    """They are asked about in the same round, and what is ended in between is left alone."""
    broker = started()
    broker.decide = lambda key: UNKNOWN if key == "a0" else COMMIT
    places = [broker.half(f"a{number}") for number in range(5)]
    broker.end(places[2], COMMIT)
    broker.rounds(12)
    asked = Counter(key for key, _ in broker.asked)
    assert asked == {"a0": 3, "a1": 1, "a3": 1, "a4": 1}
    assert sorted(broker.visible()) == ["a1", "a2", "a3", "a4"]
    assert broker.discarded() == ["a0"]


def test_ended_in_this_very_turn() -> None:
    """Its op message is in the log and not in the op queue yet: it is not asked about."""
    broker = started(transaction_check_interval=60_000)
    broker.decide = lambda key: COMMIT
    place = broker.half("a")
    broker.run(10)
    checks = broker.broker.transaction_checks
    request = RemotingCommand(37, {**place, "commitOrRollback": str(COMMIT)})
    broker.broker.dispatcher.routes[37](None, request)
    assert broker.broker.store.dispatcher.bytes_behind > 0
    checks._timer.cancel()
    checks._on_time()
    broker.rounds(3)
    assert broker.asked == []
    assert broker.visible() == ["a"]


def test_more_than_a_slice_in_one_round() -> None:
    """Hundreds of open transactions and thousands of ended ones; each open one is asked once."""
    broker = started(transaction_check_max=15)
    broker.decide = lambda key: COMMIT
    wanted = []
    for number in range(400):
        key = f"k{number}"
        place = broker.half(key)
        if number % 2:
            broker.end(place, ROLLBACK)
        else:
            wanted.append(key)
    broker.rounds(5)
    assert Counter(key for key, _ in broker.asked) == Counter(wanted)
    assert sorted(broker.visible()) == sorted(wanted)
    assert broker.progress() == broker.ends()


def test_a_slice_is_no_larger_than_one_message_beyond_its_bytes(monkeypatch: Any) -> None:
    """What is put together is written in one turn."""
    broker = started()
    for number in range(6):
        broker.half(f"a{number}")
    (half, *_) = broker.records(HALF_TOPIC)
    monkeypatch.setattr(check, "_SLICE_BYTES", half.size)
    parts, put = broker.broker.transaction_checks._context.copies, []
    really = parts.put
    object.__setattr__(parts, "put", lambda messages: put.append(len(messages)) or really(messages))
    broker.rounds(2)
    assert put == [2 * 2] * 3  # each with its op message


def set_steady(context: CheckContext, steady_ms: Callable[[], int]) -> None:
    """From now on the rounds read their time from this function."""
    times = SimpleNamespace(now_ms=context.times.now_ms, steady_ms=steady_ms)
    object.__setattr__(context, "times", times)


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_round_ends_between_two_slices(is_stopped: bool, monkeypatch: Any) -> None:
    """When the broker stops, or is no master any more, and after a minute at the latest."""
    monkeypatch.setattr(check, "_SLICE", 2)
    broker = started()
    for number in range(6):
        broker.half(f"a{number}")
    broker.rounds(1)
    checks, late = broker.broker.transaction_checks, 0

    def pause() -> Any:
        nonlocal late
        late += check.MAX_ROUND_MS + 1
        if is_stopped:
            checks.stop()
        return succeed(None)

    steady_ms = checks._context.times.steady_ms
    object.__setattr__(checks._context.pace, "pause", pause)
    set_steady(checks._context, lambda: steady_ms() + late)
    broker.run(INTERVAL_S + 1)
    assert broker.ends() == (6 + 2, 2)
    assert broker.progress()[0] == 2


def test_a_round_waits_in_turns_for_the_queues() -> None:
    """What is in the log and not in its queue comes in a later turn, and is not overlooked."""
    broker = started()
    broker.half("a")
    broker.rounds(1)
    parts = broker.broker.transaction_checks._context
    pause, turns = parts.pace.pause, []
    object.__setattr__(parts.pace, "pause", lambda: turns.append(0) or pause())
    object.__setattr__(parts.halves, "is_dispatched", lambda: len(turns) >= 3)
    broker.rounds(1)
    assert broker.asked == [("a", 1)]


def reading(monkeypatch: Any) -> TransactionBroker:
    """A broker that knows of six transactions nothing but what their op messages say."""
    monkeypatch.setattr(check, "_READ", 1)
    monkeypatch.setattr(check, "_OP_READS_A_TURN", 2)
    monkeypatch.setattr(check, "_DISPATCH_TURNS", 5)
    broker = started()
    for number in range(6):
        broker.end(broker.half(f"a{number}"), ROLLBACK)
    broker.crash()
    broker.restart()
    return broker


def test_a_round_that_does_not_know_all_op_messages_asks_nobody(monkeypatch: Any) -> None:
    """Its time is over, or the queues stay behind: what it has not read may have ended any."""
    broker = reading(monkeypatch)
    ends = broker.ends()
    parts, late, looks = broker.broker.transaction_checks._context, 0, 0
    steady_ms, is_dispatched = parts.times.steady_ms, parts.halves.is_dispatched
    pause = parts.pace.pause

    def never() -> bool:
        nonlocal looks
        looks += 1
        return False

    def slow() -> Any:
        nonlocal late
        late += check.MAX_ROUND_MS + 1
        return pause()

    object.__setattr__(parts.halves, "is_dispatched", never)
    broker.rounds(2)
    assert looks == 2 * (1 + 5)
    object.__setattr__(parts.halves, "is_dispatched", is_dispatched)
    set_steady(parts, lambda: steady_ms() + late)
    object.__setattr__(parts.pace, "pause", slow)
    broker.rounds(2)
    assert late == 2 * 2 * (check.MAX_ROUND_MS + 1)  # a turn in the reading, one behind it
    assert broker.ends() == ends
    object.__setattr__(parts.pace, "pause", pause)
    broker.rounds(2)
    assert (broker.asked, broker.ends(), broker.progress()) == ([], ends, ends)


@pytest.mark.parametrize("is_behind", [True, False])
def test_a_stop_ends_the_reading_of_op_messages(is_behind: bool, monkeypatch: Any) -> None:
    """At the next turn: the store is closed as soon as the round is over."""
    broker = reading(monkeypatch)
    checks, turns = broker.broker.transaction_checks, []
    pause = checks._context.pace.pause

    def stopping() -> Any:
        turns.append(checks.stop())
        return pause()

    object.__setattr__(checks._context.pace, "pause", stopping)
    if is_behind:
        object.__setattr__(checks._context.halves, "is_dispatched", lambda: False)
    broker.run(INTERVAL_S + 1)
    assert [stopped.called for stopped in turns] == [True] * 2
    assert broker.ends() == (6, 6)


def test_a_round_leaves_others_their_turns(monkeypatch: Any) -> None:
    """While the queues are behind, after so many op messages, and after each slice."""
    broker = reading(monkeypatch)
    parts, held, read = broker.broker.transaction_checks._context, [], []

    class Store:
        min_offset_in_queue = parts.halves.store.min_offset_in_queue
        max_offset_in_queue = parts.halves.store.max_offset_in_queue

        def get_message(self, group: str, topic: str, *rest: Any) -> Any:
            read.append(topic)
            return store.get_message(group, topic, *rest)

    store = parts.halves.store
    object.__setattr__(parts.halves, "store", Store())
    object.__setattr__(parts.pace, "pause", lambda: held.append(Deferred()) or held[-1])
    object.__setattr__(parts.halves, "is_dispatched", lambda: len(held) > 0)
    before = broker.progress()
    broker.run(INTERVAL_S + 1)
    for count in (0, 2, 4, 6):
        assert read == [OP_HALF_TOPIC] * count
        held[-1].callback(None)
    assert (len(held), broker.progress()) == (5, before)
    held[-1].callback(None)
    assert broker.progress() == (6, 6)


@pytest.mark.parametrize("lost", [[0, 2, 4], [0, 1, 2, 3]])
def test_what_cannot_be_read_holds_up_no_other_one(lost: list[int]) -> None:
    """However many files of the half queue lead to damaged records: all others are asked about."""
    broker = TransactionBroker()
    config = broker.configuration.store
    config.mapped_file_size_consume_queue = 2 * 20
    broker.start()
    broker.connect()
    keys = [f"a{number}" for number in range(6)]
    places = [int(broker.half(key)["commitLogOffset"]) for key in keys]
    broker.run(3.5)
    path = f"{config.store_path_root_dir}/commitlog/{0:020d}"
    log = broker.host.disk.open(path, config.mapped_file_size_commit_log)
    for number in lost:
        log.pwrite(bytes(8), places[number])
    broker.rounds(1)
    left = [key for number, key in enumerate(keys) if number not in lost]
    assert [key for key, _ in broker.asked] == left


def test_a_store_that_leads_nowhere_ends_the_round() -> None:
    """It is asked again in the next one, and not for a minute on end."""
    broker = started()
    broker.half("a")
    asked: list[int] = []

    class Store:
        min_offset_in_queue = broker.broker.store.min_offset_in_queue
        max_offset_in_queue = broker.broker.store.max_offset_in_queue

        def get_message(self, group: str, topic: str, queue_id: int, offset: int, *_: Any) -> Any:
            asked.append(offset)
            return GetMessageResult(GetMessageStatus.OFFSET_FOUND_NULL, offset, 0, 1, [])

    object.__setattr__(broker.broker.transaction_checks._context.halves, "store", Store())
    broker.rounds(2)
    assert asked == [0, 0] * 2  # of the op and of the half queue


def test_too_old_for_a_check() -> None:
    """Older than fileReservedTime: the log may lose it any time, so it is not carried on."""
    broker = started()
    broker.configuration.store.file_reserved_time = 0
    broker.half("a")
    broker.rounds(2)
    assert broker.asked == []
    assert broker.discarded() == ["a"]


# ------------------------------------------------------------ CHECK_IMMUNITY_TIME_IN_SECONDS


def test_producer_asks_for_a_rest() -> None:
    """It is not asked before; others behind it are."""
    broker = started(transaction_check_max=15)
    broker.decide = lambda key: COMMIT
    broker.half("slow", CHECK_IMMUNITY_TIME_IN_SECONDS="20")
    broker.half("quick")
    broker.run(19)
    assert [key for key, _ in broker.asked] == ["quick"]
    broker.run(10)
    assert broker.asked == [("quick", 1), ("slow", 1)]
    assert broker.visible() == ["quick", "slow"]


@pytest.mark.parametrize("after_s", [1, 5, 17])
def test_ended_while_it_rests(after_s: float) -> None:
    """
    Its copies, which the producer does not know of, are not asked about: a second commit would
    give it to consumers twice.
    """
    broker = started()
    broker.decide = lambda key: COMMIT
    place = broker.half("a", CHECK_IMMUNITY_TIME_IN_SECONDS="20")
    broker.run(after_s)
    assert broker.end(place, COMMIT).code == 0
    for _ in range(15):
        broker.run(5)
        broker.half("later")  # there is always a young one at the end of the queue
    assert "a" not in [key for key, _ in broker.asked]
    assert broker.visible().count("a") == 1
    assert broker.discarded() == []
    half, op = broker.progress()
    ends = broker.ends()
    assert ends[0] - half < 10
    assert ends[1] - op < 60


@pytest.mark.parametrize("rests", [{}, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "20"}])
def test_an_idle_queue_forgets_who_ended_while_a_copy_could_rest(rests: dict[str, str]) -> None:
    """
    Else every round of every later life would read a Java master's op queue from there on. Of one
    that asked for no rest there is no such copy.
    """
    broker = started()
    broker.end(broker.half("a", **rests), COMMIT)
    broker.rounds(2)
    (half,) = broker.records(HALF_TOPIC)
    host = Address.parse("127.0.0.1", 1)
    broker.wait(broker.broker.store.put_message(op_mark(half, host, broker.host.now_ms())))
    broker.rounds(2)
    assert (broker.progress(), broker.ends()) == ((1, 1 if rests else 2), (1, 2))
    broker.host.step_clock(70_000)
    broker.rounds(1)
    assert broker.progress() == (1, 2)


@pytest.mark.parametrize("before", [0, 1])
def test_the_log_says_of_a_resting_copy_that_its_original_was_ended(before: int) -> None:
    """By another master, who did not know of the copy; also of the first half message of all."""
    broker = started()
    broker.decide = lambda key: COMMIT
    for number in range(before):
        broker.end(broker.half(f"before {number}"), ROLLBACK)
    broker.half("a", CHECK_IMMUNITY_TIME_IN_SECONDS="20")
    broker.rounds(3)
    half, *copies = broker.records(HALF_TOPIC)[before:]
    origins = {copy.properties["TRAN_PREPARED_QUEUE_OFFSET"] for copy in copies}
    assert (half.queue_offset, origins) == (before, {str(before)})
    mark = op_mark(half, Address.parse("127.0.0.1", 1), broker.host.now_ms())
    broker.wait(broker.broker.store.put_message(mark))
    broker.run(40)
    assert broker.asked == []


def test_senseless_rest() -> None:
    """What is no number counts as none: the time-out holds."""
    broker = started()
    broker.decide = lambda key: COMMIT
    broker.half("a", CHECK_IMMUNITY_TIME_IN_SECONDS="soon", TRAN_PREPARED_QUEUE_OFFSET="here")
    broker.rounds(5)
    assert broker.asked == [("a", 1)]
    assert broker.visible() == ["a"]


# ------------------------------------------------------------ producers


def test_question() -> None:
    """It names the place of the copy; its body is the message as consumers would see it."""
    broker = started()
    broker.half("a", TAGS="T", KEYS="k1")
    broker.rounds(3)
    (request, *_) = broker.questions
    ext = request.ext or {}
    record = broker.records(HALF_TOPIC)[1]
    assert ext == {
        "commitLogOffset": str(record.physical_offset),
        "msgId": "a",
        "tranStateTableOffset": "1",
        "offsetMsgId": record.msg_id,
        "transactionId": "a",
    }
    assert request.is_oneway
    assert record.properties["REAL_TOPIC"] == TOPIC
    assert record.properties["KEYS"] == "k1"


def test_producers_are_asked_in_turn() -> None:
    """Each of a group's connections gets its share."""
    broker = started()
    asker = broker.broker.transaction_checks._context.asker

    class Member:
        def __init__(self) -> None:
            self.sent: list[RemotingCommand] = []
            self.is_open, self.is_full = True, False

        send: Any = lambda self, command: self.sent.append(command)

    class Client:
        def __init__(self, channel: Member) -> None:
            self.channel = channel
            self.may_settle = True

    members = [Member() for _ in range(3)]
    broker.broker.producers.clients = lambda group: [Client(item) for item in members]
    for number in range(9):
        broker.half(f"a{number}")
    broker.rounds(2)
    assert [len(member.sent) for member in members] == [3, 3, 3]
    members[0].is_open = False
    members[1].is_full = True
    broker.rounds(1)
    assert [len(member.sent) for member in members] == [3, 3, 12]
    members[2].is_full = True
    assert asker.is_overloaded(GROUP)
    broker.rounds(5)
    assert [len(member.sent) for member in members] == [3, 3, 12]
    assert broker.discarded() == []  # nobody could be asked: that does not count


def test_settings_change_at_run_time() -> None:
    """By updateBrokerConfig, from the next round on."""
    broker = started(transaction_check_interval=60_000)
    broker.half("a")
    body = b"transactionCheckInterval=1000\ntransactionTimeOut=500\ntransactionCheckMax=1\n"
    assert broker.call(RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, {}, body)).code == 0
    broker.run(55)
    assert broker.asked == []
    broker.run(8)
    assert broker.asked == [("a", 1)]
    assert broker.discarded() == ["a"]


def test_idle_broker_has_one_timer() -> None:
    """No turns between the rounds."""
    broker = started()
    broker.half("a")
    before = broker.broker.transaction_checks.rounds
    broker.run(10 * INTERVAL_S + 1)
    assert broker.broker.transaction_checks.rounds - before in (10, 11)


def test_slave_checks_nothing() -> None:
    """The master's producers are asked by the master."""
    broker = TransactionBroker()
    broker.configuration.store.broker_role = BrokerRole.SLAVE
    broker.configuration.broker.broker_id = 1
    broker.start()
    broker.run(30)
    assert broker.broker.transaction_checks.rounds == 0
    assert broker.end({"producerGroup": GROUP}, COMMIT).code == 11
    broker.stop()


# ------------------------------------------------------------ puts that fail


def refuse(broker: TransactionBroker, topics: set[str], status: PutMessageStatus) -> list[str]:
    """Puts to these topics end like that from now on; the list tells of them."""
    store = broker.broker.store
    refused: list[str] = []
    parts = broker.broker.transaction_checks._context.copies
    service = broker.broker.transaction_checks

    def put(messages: list[BrokerMessage]) -> Any:
        bad = [number for number, message in enumerate(messages) if message.topic in topics]
        if not bad:
            return service._put_together(messages)
        refused.append(messages[bad[0]].topic)
        count = len(messages) - bad[0]
        results: Any = succeed([])
        if bad[0]:
            results = service._put_together(messages[: bad[0]])
        return results.addCallback(lambda done: done + [PutMessageResult(status)] * count)

    object.__setattr__(parts, "put", put)
    assert store.is_open
    return refused


def test_full_disk_stops_the_progress() -> None:
    """What could not be put back is looked at again, once a round."""
    broker = started()
    broker.decide = lambda key: COMMIT
    broker.half("a")
    broker.half("b")
    refused = refuse(broker, {HALF_TOPIC}, PutMessageStatus.SERVICE_NOT_AVAILABLE)
    broker.rounds(5)
    assert broker.asked == []
    assert broker.progress()[0] in (-1, 0)
    assert 2 <= len(refused) <= 5
    refuse(broker, set(), PutMessageStatus.PUT_OK)
    broker.rounds(2)
    assert sorted(broker.asked) == [("a", 1), ("b", 1)]
    assert sorted(broker.visible()) == ["a", "b"]


def test_a_refusal_ends_the_round_though_there_is_more(monkeypatch: Any) -> None:
    """A full disk is not asked again and again for a minute."""
    monkeypatch.setattr(check, "_SLICE", 1)
    broker = started()
    for key in "abc":
        broker.half(key)
    refused = refuse(broker, {HALF_TOPIC}, PutMessageStatus.SERVICE_NOT_AVAILABLE)
    broker.rounds(4)
    assert 1 <= len(refused) <= 4


def test_a_round_that_was_refused_uses_up_no_op_message() -> None:
    """
    A Java master ended a message of which a copy rests, behind one that cannot be put back: the
    round after it has to find that out once more, or its producer is asked about what has ended.
    """
    broker = started(transaction_check_max=100)
    broker.half("a")
    broker.half("rest", CHECK_IMMUNITY_TIME_IN_SECONDS="20")
    broker.rounds(2)
    ended = next(it for it in broker.records(HALF_TOPIC) if it.properties["UNIQ_KEY"] == "rest")
    host = Address.parse("127.0.0.1", 1)
    broker.wait(broker.broker.store.put_message(op_mark(ended, host, broker.host.now_ms())))
    refuse(broker, {HALF_TOPIC}, PutMessageStatus.SERVICE_NOT_AVAILABLE)
    broker.rounds(2)
    refuse(broker, set(), PutMessageStatus.PUT_OK)
    broker.run(40)
    assert {key for key, _ in broker.asked} == {"a"}


def test_one_that_does_not_say_where_it_belongs() -> None:
    """Whatever wrote it: nobody can be asked about it, and it holds up no other one."""
    broker = started()
    broker.decide = lambda key: COMMIT
    broker.half("a")
    host = Address.parse("127.0.0.1", 1)
    properties = {"PGROUP": GROUP, "UNIQ_KEY": "b"}
    stray = BrokerMessage(
        HALF_TOPIC, 0, b"b", host, host, properties=properties,
        properties_string=encode_properties(properties),
    )  # fmt: skip
    broker.wait(broker.broker.store.put_message(stray))
    broker.half("c")
    broker.rounds(12)
    assert broker.asked == [("a", 1), ("c", 1)]
    assert broker.visible() == ["a", "c"]


def test_discard_that_is_not_stored() -> None:
    """The message stays where it is."""
    broker = started(transaction_check_max=1)
    broker.half("a")
    refuse(broker, {TRANS_CHECK_MAX_TIME_TOPIC}, PutMessageStatus.SERVICE_NOT_AVAILABLE)
    broker.rounds(8)
    assert broker.asked == [("a", 1)]
    assert broker.discarded() == []
    refuse(broker, set(), PutMessageStatus.PUT_OK)
    broker.rounds(1)
    assert broker.discarded() == ["a"]


def test_copy_that_may_not_be_stored() -> None:
    """One whose properties are full already cannot get a count: it does not block the queue."""
    broker = TransactionBroker()
    broker.configuration.store.mapped_file_size_commit_log = 1 << 20
    broker.start()
    broker.connect()
    broker.decide = lambda key: COMMIT
    broker.half("a", FILL="x")
    (record,) = broker.records(HALF_TOPIC)
    broker.half("b", FILL="x" * (MAX_PROPERTIES_SIZE + 1 - len(record.properties_string)))
    broker.half("c")
    broker.rounds(5)
    assert broker.asked == [("a", 1), ("c", 1)]
    assert broker.visible() == ["a", "c"]
    assert broker.discarded() == ["b"]
    assert broker.progress()[0] == broker.ends()[0]


def test_op_message_that_is_not_stored() -> None:
    """
    A commit is a commit, and nobody is asked about it: the next round stores what is missing. A
    rollback says that it is not stored, and is asked about.
    """
    broker = started()
    committed, rolled_back = broker.half("a"), broker.half("b")
    processor = broker.broker.dispatcher.routes[37].__self__
    really = processor._put
    full = PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE)

    def put(messages: list[BrokerMessage]) -> Any:
        if len(messages) == 1:
            return succeed([full])
        return really(messages[:1]).addCallback(lambda results: [*results, full])

    processor._put = put
    with capturedLogs() as events:
        assert broker.end(committed, COMMIT).code == 0
        assert broker.end(rolled_back, ROLLBACK).code == 1
    assert [formatEvent(event) for event in events if event["log_level"] is LogLevel.error] == [
        "half message 0 is dealt with, but its op message is not stored (SERVICE_NOT_AVAILABLE): "
        "its producer will be asked again"
    ]
    processor._put = really
    broker.decide = lambda key: COMMIT if key == "a" else ROLLBACK
    broker.rounds(5)
    assert broker.asked == [("b", 1)]
    assert broker.visible() == ["a"]
    assert broker.progress() == broker.ends()
    marks = [read_mark(record) for record in broker.records(OP_HALF_TOPIC)]
    assert [mark.is_moved for mark in marks if mark.half_offset == 0] == [False]


def test_a_stop_waits_for_the_round_that_is_under_way() -> None:
    """And no longer: else the store is closed under a put, or the broker never ends."""
    broker = started()
    broker.half("a")
    checks = broker.broker.transaction_checks
    held: list[Deferred[Any]] = []
    object.__setattr__(
        checks._context.copies, "put", lambda messages: held.append(Deferred()) or held[0]
    )
    broker.world.clock.run_while(lambda: not held, 30)
    stopped: list[None] = []
    checks.stop().addCallback(stopped.append)
    broker.run(1)
    assert stopped == []
    held[0].callback([PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE)] * 2)
    broker.run(0.1)
    assert stopped == [None]


def test_nothing_goes_behind_what_a_store_plugin_refuses() -> None:
    """An op message without the message that it is for would lose that."""
    broker = started()
    host = Address.parse("127.0.0.1", 1)
    refused = PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE)
    came: list[bytes] = []

    class Front:
        def put_message(self, message: BrokerMessage) -> Any:
            came.append(message.body)
            good = PutMessageResult(PutMessageStatus.FLUSH_SLAVE_TIMEOUT)
            return succeed(refused if message.body == b"2" else good)

    checks = broker.broker.transaction_checks
    checks._front = Front()
    messages = [BrokerMessage(TOPIC, 0, body, host, host) for body in (b"1", b"2", b"3", b"4")]
    first, *others = broker.wait(checks._put_in_order(messages))
    assert came == [b"1", b"2"]
    assert first.status is PutMessageStatus.FLUSH_SLAVE_TIMEOUT
    assert others == [refused] * 3


# ------------------------------------------------------------ END_TRANSACTION, code 323


def test_commit_to_nowhere() -> None:
    """A REAL_QID that is no number cannot come from our broker; the remark says what is wrong."""
    broker = started()
    place = broker.half("a")
    raw = broker.broker.store.record_at(int(place["commitLogOffset"]))
    broken = raw.replace(b"REAL_QID\x010", b"REAL_QID\x01x")
    assert broken != raw
    processor = broker.broker.dispatcher.routes[37].__self__

    class Store:
        def record_starting_at(self, offset: int) -> bytes:
            return bytes(broken)

    processor._store = Store()
    answer = broker.end(place, COMMIT)
    assert answer.code == 1
    assert "REAL_QID" in (answer.remark or "")


@pytest.mark.parametrize(
    ("decision", "status", "code"),
    [
        (COMMIT, PutMessageStatus.MESSAGE_ILLEGAL, ResponseCode.MESSAGE_ILLEGAL),
        (COMMIT, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED, ResponseCode.MESSAGE_ILLEGAL),
        (COMMIT, PutMessageStatus.SERVICE_NOT_AVAILABLE, ResponseCode.SERVICE_NOT_AVAILABLE),
        (COMMIT, PutMessageStatus.OS_PAGECACHE_BUSY, ResponseCode.SYSTEM_ERROR),
        (ROLLBACK, PutMessageStatus.MESSAGE_ILLEGAL, ResponseCode.SYSTEM_ERROR),
        (ROLLBACK, PutMessageStatus.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_an_end_that_is_not_stored_says_why_and_can_come_again(
    decision: int, status: PutMessageStatus, code: ResponseCode
) -> None:
    broker = started()
    place = broker.half("a")
    processor = broker.broker.dispatcher.routes[37].__self__
    put = processor._put
    processor._put = lambda messages: succeed([PutMessageResult(status)] * len(messages))
    answer = broker.end(place, decision)
    what = "commit" if decision == COMMIT else "rollback"
    assert (answer.code, answer.remark) == (code, f"the {what} is not stored: {status.name}")
    processor._put = put
    assert broker.end(place, decision).code == 0
    assert broker.visible() == (["a"] if decision == COMMIT else [])


@pytest.mark.parametrize("is_asked", [False, True])
def test_a_delay_counts_from_the_commit(is_asked: bool) -> None:
    """The half message waits for its end like any, and so does the copy that a check makes."""
    broker = started()
    place = broker.half("a", DELAY="2")
    if is_asked:
        broker.decide = lambda key: COMMIT
        broker.rounds(3)
        assert broker.asked == [("a", 1)]
    else:
        broker.run(30)
        assert broker.end(place, COMMIT).code == 0
    assert broker.visible() == []
    broker.run(6)  # level 2 is 5 s
    assert broker.visible() == ["a"]


def test_checks_begin_anew() -> None:
    """RESUME_CHECK_HALF_MESSAGE takes a discarded message back, with a count of 0."""
    broker = started(transaction_check_max=1)
    broker.half("a")
    broker.rounds(6)
    (record,) = broker.records(TRANS_CHECK_MAX_TIME_TOPIC)
    broker.decide = lambda key: COMMIT
    request = RemotingCommand(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": record.msg_id})
    assert broker.call(request).code == 0
    broker.rounds(3)
    assert broker.asked == [("a", 1), ("a", 1)]
    assert broker.visible() == ["a"]


def test_checks_of_an_open_one_begin_anew() -> None:
    """The copy takes its place: it is asked about once a round, not twice."""
    broker = started()
    broker.half("a")
    broker.run(0.1)
    (record,) = broker.records(HALF_TOPIC)
    request = RemotingCommand(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": record.msg_id})
    assert broker.call(request).code == 0
    broker.rounds(2)
    assert broker.asked == [("a", 1)]


def test_a_member_that_leads_again_goes_on_where_another_one_came() -> None:
    """Its own progress is of before: the table, which a slave copies, is all that is known."""
    broker = started()
    broker.end(broker.half("a"), COMMIT)
    broker.end(broker.half("b"), COMMIT)
    broker.rounds(3)
    checks = broker.broker.transaction_checks
    assert checks._progress.query(HALF_TOPIC, 0) == 2
    broker.wait(checks.stop())
    broker.broker.consumer_offsets.commit(PROGRESS_GROUP, HALF_TOPIC, 0, 1)
    checks.start()
    assert checks._progress.query(HALF_TOPIC, 0) == 1


def test_each_queue_of_the_half_topic_is_checked() -> None:
    """RocketMQ makes one; a table of another broker may have more."""
    broker = started()
    checks = broker.broker.transaction_checks
    broker.broker.topics.get(HALF_TOPIC).read_queue_nums = 3
    assert list(checks._queues()) == [0, 1, 2]
    del broker.broker.topics.table[HALF_TOPIC]
    assert list(checks._queues()) == [0]


def test_what_cannot_be_resumed() -> None:
    """No id, no message there, and messages that are no half messages."""
    broker = started()
    plain = broker.send().ext or {}
    nowhere = plain["msgId"][:16] + f"{1 << 40:016X}"
    broker.end(broker.half("a"), COMMIT)
    broker.run(0.1)
    (committed,) = broker.records(TOPIC)
    for msg_id in ("", "xyz", "Z" * 32, nowhere, plain["msgId"], committed.msg_id):
        request = RemotingCommand(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": msg_id})
        assert broker.call(request).code == 1, msg_id
    assert broker.call(RemotingCommand(RequestCode.RESUME_CHECK_HALF_MESSAGE, {})).code == 1
    assert broker.ends() == (1, 1)
