"""END requests that come late, twice, or while the broker is busy: a transaction ends once."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from rmq_ha.base.model.message import BrokerMessage
from rmq_ha.base.model.topics import HALF_TOPIC, OP_HALF_TOPIC
from rmq_ha.base.store_format.commitlog import decode_record, decode_records
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.server.broker.transactions import lookup
from rmq_ha.server.broker.transactions.fates import Fates, HalfMessageFate
from rmq_ha.server.broker.transactions.lookup import HalfMessages
from tests.sim_kit.group import BrokerGroup
from tests.unit.server.broker.transaction_kit import (
    COMMIT,
    GROUP,
    ROLLBACK,
    TOPIC,
    TransactionBroker,
    started,
)

COUNT = 30
Act = Callable[[TransactionBroker], None]


def nothing(broker: TransactionBroker) -> None:
    """The broker lives on."""


def stop(broker: TransactionBroker) -> None:
    broker.stop()
    broker.restart()


def kill(broker: TransactionBroker) -> None:
    broker.crash()
    broker.restart()


def lose_progress(broker: TransactionBroker) -> None:
    """The table with the progress of the checks is gone as well."""
    broker.stop()
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        path = f"{broker.configuration.store.store_path_root_dir}/config/{name}"
        if broker.host.disk.exists(path):
            broker.host.disk.remove(path)
    broker.restart()


def forget(broker: TransactionBroker) -> None:
    """More transactions came since than memory has room for."""
    checks = broker.broker.transaction_checks
    checks._fates._window = 4
    checks._fates._queues.clear()
    checks._fates._copies.clear()
    checks._fates.begin(broker.broker.store.log.max_offset)


LIVES = pytest.mark.parametrize("between", [nothing, stop, kill, lose_progress, forget])


def moved(broker: TransactionBroker, keys: list[str], rounds: int = 1) -> dict[str, Any]:
    """Half messages that have been asked about; the places of the originals."""
    places = {key: broker.half(key) for key in keys}
    broker.run(3.5)
    broker.rounds(rounds)
    assert set(dict(broker.asked)) == set(keys)
    return places


def answer_all(broker: TransactionBroker, decision: int = COMMIT) -> None:
    """Give the answers that the broker still waits for."""
    for question in broker.questions:
        ext = question.ext or {}
        place = {"producerGroup": GROUP, "fromTransactionCheck": "true", **ext}
        assert broker.end(place, decision).code == 0


@LIVES
def test_late_commit_before_the_answer_to_a_check(between: Act) -> None:
    """The END names the original, the answer its copy: one message, in both orders (was: two)."""
    broker = started()
    keys = [f"k{number}" for number in range(COUNT)]
    places = moved(broker, keys)
    between(broker)
    for key in keys[::2]:
        assert broker.end(places[key], COMMIT).code == 0
    answer_all(broker)
    for key in keys:
        assert broker.end(places[key], COMMIT).code == 0
    broker.rounds(8)
    assert Counter(broker.visible()) == Counter(keys)
    assert broker.discarded() == []
    assert broker.progress() == broker.ends()


@LIVES
def test_moved_more_than_once(between: Act) -> None:
    """The newest copy is what a late END settles, and nobody is asked about it any more."""
    broker = started(transaction_check_max=9)
    keys = ["a", "b", "c"]
    places = moved(broker, keys, rounds=3)
    assert broker.asked[-1] == ("c", 3)
    between(broker)
    broker.end(places["a"], COMMIT)
    broker.end(places["b"], ROLLBACK)
    broker.asked.clear()
    broker.rounds(3)
    assert {key for key, _ in broker.asked} == {"c"}
    answer_all(broker)  # every question there ever was: late, and contradicting
    broker.rounds(3)
    assert sorted(broker.visible()) == ["a", "c"]
    assert broker.progress() == broker.ends()


@LIVES
@pytest.mark.parametrize(("first", "second"), [(COMMIT, ROLLBACK), (ROLLBACK, COMMIT)])
def test_first_decision_holds(first: int, second: int, between: Act) -> None:
    """A request that comes again is answered as if it had done something."""
    broker = started()
    place = broker.half("a")
    assert broker.end(place, first).code == 0
    between(broker)
    for decision in (second, first, second):
        assert broker.end(place, decision).code == 0
    broker.rounds(5)
    assert broker.visible() == (["a"] if first == COMMIT else [])
    assert broker.asked == []


@LIVES
def test_late_commit_of_one_that_was_given_up(between: Act) -> None:
    """It stands for itself: consumers get it, once."""
    broker = started(transaction_check_max=1)
    place = broker.half("a")
    broker.rounds(5)
    assert broker.discarded() == ["a"]
    between(broker)
    for _ in range(2):
        assert broker.end(place, COMMIT).code == 0
        between(broker)
    assert broker.visible() == ["a"]


def test_late_commit_of_one_that_was_given_up_and_resumed() -> None:
    """An operator has put it back: the copy is what is committed."""
    broker = started(transaction_check_max=1)
    place = broker.half("a")
    broker.rounds(5)
    record = broker.records("TRANS_CHECK_MAX_TIME_TOPIC")[0]
    resume = RemotingCommand(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": record.msg_id})
    assert broker.call(resume).code == 0
    assert broker.end(place, COMMIT).code == 0
    broker.decide = lambda key: COMMIT
    broker.rounds(5)
    assert broker.visible() == ["a"]


def test_resumed_twice() -> None:
    """The second request is for the copy that the first one made; one that has ended is refused."""
    broker = started()
    place = broker.half("a")
    record = broker.records(HALF_TOPIC)[0]
    resume = RemotingCommand(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": record.msg_id})
    assert broker.call(resume).code == broker.call(resume).code == 0
    broker.decide = lambda key: COMMIT
    broker.rounds(5)
    assert broker.asked == [("a", 1)]
    broker.end(place, COMMIT)
    assert broker.visible() == ["a"]
    assert "has ended" in (broker.call(resume).remark or "")


@pytest.mark.parametrize("second", [COMMIT, ROLLBACK])
def test_two_at_the_same_time(second: int) -> None:
    """The second waits for what becomes of the first."""
    broker = started()
    place = broker.half("a")
    answers = []
    for decision in (COMMIT, second):
        request = RemotingCommand(37, {**place, "commitOrRollback": str(decision)})
        broker.broker.dispatcher.routes[37](CHANNEL, request).addCallback(answers.append)
    broker.run(1)
    assert [answer.code for answer in answers] == [0, 0]
    assert broker.visible() == ["a"]
    assert len(broker.records(OP_HALF_TOPIC)) == 1


def test_first_of_two_is_not_stored() -> None:
    """Then the second one counts."""
    broker = started()
    place = broker.half("a")
    processor = broker.broker.dispatcher.routes[37].__self__
    really, held = processor._put, []

    def put(messages: list[BrokerMessage]) -> Any:
        if held:
            return really(messages)
        held.append(Deferred())
        return held[0]

    processor._put = put
    answers = []
    for decision in (COMMIT, COMMIT):
        request = RemotingCommand(37, {**place, "commitOrRollback": str(decision)})
        broker.broker.dispatcher.routes[37](CHANNEL, request).addBoth(answers.append)
    held[0].errback(OSError("gone"))
    broker.run(1)
    answer, failure = answers  # whoever waits goes on while the failure is on its way
    assert answer.code == 0
    assert failure.check(OSError)
    assert broker.visible() == ["a"]


def test_while_a_check_moves_them() -> None:
    """The copies are in the log, and their replica is waited for: each END is for its copy."""
    broker = started()
    places = [broker.half(key) for key in ("a", "b")]
    parts = broker.broker.transaction_checks._context.copies
    really, held = parts.put, []

    def put(messages: list[BrokerMessage]) -> Any:
        later: Any = Deferred()
        really(messages).addCallback(lambda results: held.append((later, results)))
        return later

    object.__setattr__(parts, "put", put)
    broker.world.clock.run_while(lambda: not held, 30)
    answers: list[RemotingCommand] = []
    for place in places * 3:
        request = RemotingCommand(37, {**place, "commitOrRollback": str(COMMIT)})
        broker.broker.dispatcher.routes[37](CHANNEL, request).addCallback(answers.append)
    broker.run(1)
    assert answers == []
    object.__setattr__(parts, "put", really)
    later, results = held[0]
    later.callback(results)
    broker.run(1)
    answer_all(broker)
    broker.rounds(4)
    assert [answer.code for answer in answers] == [0] * 6
    assert sorted(broker.visible()) == ["a", "b"]
    assert broker.progress() == broker.ends()


def test_check_meets_one_that_is_being_ended() -> None:
    """It is left alone: its round is over there, and the next one finds its op message."""
    broker = started()
    place = broker.half("a")
    processor = broker.broker.dispatcher.routes[37].__self__
    really, held = processor._put, []

    def put(messages: list[BrokerMessage]) -> Any:
        held.append((Deferred(), messages))
        return held[-1][0]

    processor._put = put
    request = RemotingCommand(37, {**place, "commitOrRollback": str(COMMIT)})
    broker.broker.dispatcher.routes[37](CHANNEL, request)
    broker.rounds(4)
    assert broker.asked == []
    later, messages = held[0]
    really(messages).chainDeferred(later)
    broker.rounds(4)
    assert broker.asked == []
    assert broker.visible() == ["a"]
    assert broker.progress() == broker.ends()


def test_messages_without_a_unique_key() -> None:
    """A restart takes the copy for what it is by all that a copy keeps."""
    broker = started()
    places = []
    for body in (b"one", b"two"):
        request = broker.message(body, TOPIC, TRAN_MSG="true", PGROUP=GROUP, WAIT="true")
        ext = broker.call(request).ext or {}
        places.append(place_of(ext["queueOffset"], int(ext["msgId"][-16:], 16)))
    broker.broker.transaction_checks._context.asker.ask = lambda *arguments: None
    broker.rounds(3)
    kill(broker)
    assert broker.end(places[1], COMMIT).code == 0
    copies = broker.records(HALF_TOPIC)[2:]
    for copy in copies:
        place = place_of(str(copy.queue_offset), copy.physical_offset)
        assert broker.end(place, COMMIT).code == 0
    broker.run(0.1)
    assert Counter(record.body for record in broker.records(TOPIC)) == {b"one": 1, b"two": 1}


@pytest.mark.parametrize("rounds", [0, 3], ids=["open", "moved"])
def test_two_that_nobody_can_tell_apart(rounds: int) -> None:
    """Each END is for its own place, or for the copy that was made of that very message."""
    broker = started()
    places = []
    for _ in range(2):
        request = broker.message(b"same", TOPIC, TRAN_MSG="true", PGROUP=GROUP, WAIT="true")
        assert request.ext is not None
        request.ext["g"] = "1700000000000"  # born at the same time
        ext = broker.call(request).ext or {}
        places.append(place_of(ext["queueOffset"], int(ext["msgId"][-16:], 16)))
    broker.broker.transaction_checks._context.asker.ask = lambda *arguments: None
    broker.rounds(rounds)
    first, second = broker.records(HALF_TOPIC)[:2]
    assert lookup.is_copy(second, first)
    assert broker.end(places[0], ROLLBACK).code == 0
    assert broker.records(TOPIC) == []
    assert broker.end(places[1], COMMIT).code == 0
    assert [record.body for record in broker.records(TOPIC)] == [b"same"]


@pytest.mark.parametrize("where", ["another-copy", "nothing"])
def test_copy_that_is_not_where_memory_has_it(where: str) -> None:
    """It is looked up in the half queue; what stands in its place is not settled instead."""
    broker = started()
    places = moved(broker, ["a", "b"])
    fates = broker.broker.transaction_checks._fates
    copy_of = {key: fates._copies[0, int(places[key]["tranStateTableOffset"])] for key in places}
    wrong = copy_of["b"] if where == "another-copy" else lookup.HalfPlace(9, copy_of["b"][1] + 1)
    fates._copies[0, int(places["a"]["tranStateTableOffset"])] = wrong
    assert broker.end(places["a"], COMMIT).code == 0
    assert broker.visible() == ["a"]
    assert broker.end(places["b"], ROLLBACK).code == 0
    assert broker.visible() == ["a"]
    broker.asked.clear()
    broker.rounds(3)
    assert broker.asked == []


def test_another_one_has_come_to_its_place() -> None:
    """The log lost its end and grew again: an END for the lost one is not for its successor."""
    broker = started()
    lost, successor = "0" * 31 + "A", "0" * 31 + "B"
    end = broker.broker.store.log.max_offset
    place = broker.half(lost)
    broker.crash()
    settings = broker.configuration.store
    path = f"{settings.store_path_commit_log}/{0:020d}"
    broker.host.disk.open(path, settings.mapped_file_size_commit_log).zero(end)
    broker.restart()
    assert broker.half(successor) == {**place, "msgId": successor, "transactionId": successor}
    answer = broker.end(place, COMMIT)
    assert answer.code == 1
    assert "is not there any more" in (answer.remark or "")
    assert broker.visible() == []
    assert broker.end({**place, "msgId": successor}, COMMIT).code == 0
    assert broker.visible() == [successor]


def test_disk_that_cannot_be_read() -> None:
    """Whoever cannot know whether it was settled says so, and settles nothing."""
    broker = started()
    place = broker.half("a")
    stop(broker)
    halves = broker.broker.transaction_checks.halves
    really, halves._store = halves._store, Unreadable()
    answer = broker.end(place, COMMIT)
    assert answer.code == 1
    assert "cannot be read now" in (answer.remark or "")
    halves._store = really
    assert broker.end(place, COMMIT).code == 0
    assert broker.visible() == ["a"]


@pytest.mark.parametrize("is_killed", [False, True], ids=["same-leader", "new-leader"])
def test_late_commits_in_a_group(is_killed: bool) -> None:
    """DLedger: the leader that moved half messages is asked to end them, or another one is."""

    def quick(configuration: Any) -> None:
        broker = configuration.broker
        broker.transaction_time_out = broker.transaction_check_interval = 2000

    group = BrokerGroup(change=quick).start()
    keys = [f"k{number}" for number in range(COUNT)]
    leader = group.wait_for_master()
    places = {}
    for key in keys:
        half = group.message(key.encode(), TRAN_MSG="true", PGROUP=GROUP, UNIQ_KEY=key)
        ext = group.call(leader, half).ext or {}
        places[key] = place_of(ext["queueOffset"], int(ext["msgId"][-16:], 16))
    group.wait_until(lambda: leader.store.max_offset_in_queue(HALF_TOPIC, 0) >= 2 * COUNT)
    group.run(1)
    if is_killed:
        group.kill(leader)
        leader = group.wait_for_master()
    for key in keys[::2]:
        assert group.call(leader, commit(places[key])).code == 0
    found = leader.store.get_message("test", HALF_TOPIC, 0, COUNT, COUNT, None)
    for copy in decode_records(b"".join(found.messages)):
        place = place_of(str(copy.queue_offset), copy.physical_offset)
        assert group.call(leader, commit(place)).code == 0
    for key in keys:
        assert group.call(leader, commit(places[key])).code == 0
    group.run(10)
    assert Counter(group.bodies(leader)) == Counter(key.encode() for key in keys)


def place_of(queue_offset: str, physical_offset: int) -> dict[str, str]:
    return {
        "producerGroup": GROUP,
        "tranStateTableOffset": queue_offset,
        "commitLogOffset": str(physical_offset),
    }


def commit(place: dict[str, str]) -> RemotingCommand:
    return RemotingCommand(37, {**place, "commitOrRollback": str(COMMIT)})


class Unreadable:
    """A store that is closing."""

    def get_message(self, *arguments: Any) -> None:
        return None

    def min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        return 0

    def max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        return 0


class CHANNEL:
    """Whoever asks."""

    remote_text = "127.0.0.1:1"


@pytest.mark.parametrize("window", [4, 64])
def test_memory_is_bounded(window: int) -> None:
    """What is forgotten is not taken for open: it is looked up."""
    broker = started()
    checks = broker.broker.transaction_checks
    checks._fates._window = window
    keys = [f"k{number}" for number in range(40)]
    places = {key: broker.half(key) for key in keys}
    for key in keys:
        broker.end(places[key], COMMIT)
    assert len(checks._fates._queues[0].fates) <= window
    for key in keys:
        assert broker.end(places[key], COMMIT).code == 0
    assert broker.visible() == keys


@pytest.mark.parametrize("is_known", [False, True])
def test_queues_that_are_behind_the_log_say_nothing_of_a_copy(is_known: bool) -> None:
    """An older one would be settled beside it: the producer is told to try again."""
    broker = started()
    place = broker.half("k")
    store = broker.broker.store
    half = decode_record(store.record_at(int(place["commitLogOffset"])))
    fates = Fates()
    if is_known:
        fates.begin(0)
        fates.note(0, half.queue_offset, HalfMessageFate.MOVED)
    pauses: list[None] = []

    def pause() -> Deferred[None]:
        pauses.append(None)
        return succeed(None)

    halves = HalfMessages(fates, store, store.record_at, pause, lambda: False)
    failures: list[Any] = []
    Deferred.fromCoroutine(halves.claim(half)).addErrback(failures.append)
    assert [failure.getErrorMessage() for failure in failures] == ["the queues are behind the log"]
    assert len(pauses) >= 200
    Deferred.fromCoroutine(halves.claim(half)).addErrback(failures.append)
    assert len(failures) == 2, "it was let go"


def test_commit_that_the_store_refuses_ends_nothing() -> None:
    """A limit that shrank since: the half message stays open, and a later END commits it."""
    broker = started()
    place = broker.half("a" * 300)
    store = broker.configuration.store
    store.max_message_size, before = 100, store.max_message_size
    assert broker.end(place, COMMIT).code == 13
    store.max_message_size = before
    broker.run(0.1)
    assert broker.records(OP_HALF_TOPIC) == []
    assert broker.end(place, COMMIT).code == 0
    assert broker.visible() == ["a" * 300]


def test_a_long_op_queue_is_read_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are served between them, and each of them does something."""
    broker = started()
    place = broker.half("a")
    for number in range(10):
        broker.end(broker.half(f"b{number}"), ROLLBACK)
    kill(broker)
    monkeypatch.setattr(lookup, "_READ", 1)
    monkeypatch.setattr(lookup, "_READS_A_TURN", 4)
    halves = broker.broker.transaction_checks.halves
    pause, turns = halves._pause, []
    halves._pause = lambda: turns.append(0) or pause()
    broker.end(place, COMMIT)
    assert len(turns) == 10 // 4


def test_checks_that_begin_while_the_op_queue_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker listens before its checks start: what was read before that is forgotten by then."""
    broker = started()
    places = {key: broker.half(key) for key in ("a", "b", "c")}
    for key in ("b", "c"):
        broker.end(places[key], COMMIT)
    kill(broker)
    monkeypatch.setattr(lookup, "_READ", 1)
    monkeypatch.setattr(lookup, "_READS_A_TURN", 1)
    checks = broker.broker.transaction_checks
    pause = checks.halves._pause

    def begin() -> Deferred[None]:
        checks.halves._pause = pause
        checks._fates.begin(broker.broker.store.log.max_offset)
        return pause()

    checks.halves._pause = begin
    broker.end(places["a"], ROLLBACK)
    broker.end(places["b"], COMMIT)
    assert broker.visible() == ["b", "c"]
