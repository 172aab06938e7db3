"""`consume`, `tail`, `produce`, `message` and `cluster ping` as they are typed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rmq_ha.base.errors import RequestRejected
from rmq_ha.base.model.message import Address, BrokerMessage
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.client.lookup.requests import send_request
from rmq_ha.ops.admin.output import Output
from rmq_ha.ops.admin.session import FAILED, NO_ANSWER, NOT_FOUND, USAGE
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.typing_kit import Answer, Typist


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Typist:
    """With a topic of two queues on each broker, and six messages: red ones, then blue ones."""
    typed = Typist(SimCluster("one", "two"), monkeypatch)
    typed.does("topic create Orders --queues 2")
    typed.does("produce Orders --quiet --key k1 --tags red", given="a\nb\nc\nd\n")
    typed.does("produce Orders e --quiet --count 2 --tags blue")
    return typed


def bodies(told: Answer) -> list[str]:
    return sorted(line["body"] for line in told.lines)


def since(typed: Typist, began: float) -> float:
    return typed.cluster.clock.seconds() - began


def test_consuming_stops_after_as_many_as_were_wanted(typed: Typist) -> None:
    """The others stay for the next one of the group."""
    first = typed.does("consume Orders -g g --count 2")
    assert len(first.lines) == 2
    (told,) = typed.does("lag g").lines
    assert told["lag"] == 4
    second = typed.does("consume Orders -g g --count 4")
    assert bodies(first) + bodies(second) != []
    assert sorted(bodies(first) + bodies(second)) == ["a", "b", "c", "d", "e", "e"]
    typed.does("consume Orders -g g --until-end", is_silent=True)
    assert typed.does("lag g --fail-above 0").lines[0]["lag"] == 0


def test_consuming_goes_on_until_somebody_has_had_enough(typed: Typist) -> None:
    began = typed.cluster.clock.seconds()
    typed.interrupts(30)
    told = typed.as_typed("consume Orders -g g")
    assert told.code == 0
    assert 30 <= since(typed, began) < 34
    assert told.err.splitlines() == ["consuming Orders as g; Ctrl-C ends it", "6 messages"]
    assert len(told.out.splitlines()) == 6


def test_what_a_group_without_offsets_begins_with(typed: Typist) -> None:
    typed.interrupts(20)
    assert len(typed("consume Orders -g early").lines) == 6
    typed.interrupts(20)
    told = typed("consume Orders -g all --broadcast")
    assert (told.code, len(told.lines)) == (0, 6)
    assert typed("lag all").code == NOT_FOUND, "each member keeps its own"


def test_only_what_a_filter_lets_through_is_consumed(typed: Typist) -> None:
    assert bodies(typed.does("consume Orders -g r --tags red --until-end")) == list("abcd")
    told = typed.does("consume Orders -g b --until-end --orderly --tags", "blue || green")
    assert bodies(told) == ["e", "e"]


def test_consuming_to_the_end_ends_soon_after_the_last_message(typed: Typist) -> None:
    """The group's offsets go to the brokers at once, not with the next round of five seconds."""
    typed.does("consume Orders -g g --until-end")
    times = []
    for _ in range(3):
        typed.does("produce Orders x --quiet --count 4")
        began = typed.cluster.clock.seconds()
        assert len(typed.does("consume Orders -g g --until-end").lines) == 4
        times.append(since(typed, began))
    assert max(times) < 4, times


def test_a_broker_that_is_silent_for_a_while_does_not_end_it(typed: Typist) -> None:
    offsets, pulls = RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.PULL_MESSAGE
    routes = typed.cluster.brokers["one"].dispatcher.routes
    before = {code: routes[code] for code in (offsets, pulls)}
    typed.refuses("one", pulls)
    typed.meanwhile(0.5, lambda: typed.keeps_silent("one", offsets))
    typed.meanwhile(6, lambda: routes.update(before))
    told = typed("consume Orders -g g --until-end", "--timeout", "1")
    assert (told.code, len(told.lines)) == (0, 6)
    assert "; asking again" in told.err
    typed.refuses("one", offsets)
    typed.does("produce Orders x --quiet --count 4")
    told = typed("consume Orders -g g --until-end")
    assert (told.code, "not today" in told.err) == (FAILED, True)


def test_tail_follows_until_somebody_has_had_enough(typed: Typist) -> None:
    def send() -> None:
        client = typed.cluster.client("sender")

        async def work() -> None:
            await client.start()
            request = send_request("p", "Orders", 0, b"new", "UNIQ_KEY\x01u1", 1)
            await client.invoke(typed.cluster.address("two"), request, 3000)

        Deferred.fromCoroutine(work())

    typed.meanwhile(10, send)
    typed.interrupts(20)
    told = typed.as_typed("tail Orders")
    assert told.code == 0
    assert told.err == "following 4 queues; Ctrl-C ends it\n"
    (line,) = told.out.splitlines()
    assert line.endswith(" new")
    assert " two:0:" in line


def test_tail_ends_when_enough_were_shown(typed: Typist) -> None:
    began = typed.cluster.clock.seconds()
    told = typed.does("tail Orders --since earliest --count 3")
    assert len(told.lines) == 3
    assert since(typed, began) < 2
    told = typed.does(
        "tail Orders --since earliest --count 6 --queue one:0 --queue 1", "--no-follow"
    )
    places = {(line["broker_name"], line["queue_id"]) for line in told.lines}
    assert places == {("one", 0), ("one", 1), ("two", 1)}
    for wrong in ("x", "one:", "one:x", "1:"):
        assert typed(f"tail Orders --queue {wrong}").code == USAGE, wrong
    told = typed("tail Orders --queue 7")
    assert (told.code, "it has one:0, one:1, two:0, two:1" in told.err) == (NOT_FOUND, True)


def test_tail_goes_on_when_a_broker_is_back_and_complains_once(typed: Typist) -> None:
    """Each time that it is away, of each queue; once a second it asks again."""
    routes = typed.cluster.brokers["one"].dispatcher.routes
    pulls = {RequestCode.PULL_MESSAGE: routes[RequestCode.PULL_MESSAGE]}
    asked: list[float] = []

    def refuse() -> None:
        def answer(*_: object) -> None:
            asked.append(typed.cluster.clock.seconds())
            raise RequestRejected(1, "not today")

        routes[RequestCode.PULL_MESSAGE] = answer

    refuse()
    assert typed("tail Orders --since earliest --no-follow").code == FAILED
    asked.clear()
    typed.meanwhile(6, lambda: routes.update(pulls))
    typed.meanwhile(20, refuse)
    typed.meanwhile(26, lambda: routes.update(pulls))
    typed.interrupts(32)
    told = typed("tail Orders --since earliest")
    assert (told.code, len(told.lines)) == (0, 6)
    warnings = [json.loads(line)["warning"] for line in told.err.splitlines()]
    assert len(warnings) == 4
    assert all("not today" in text and text.endswith("; trying again") for text in warnings)
    assert 10 <= len(asked) <= 26


def test_messages_are_sent_one_batch_after_the_other(typed: Typist) -> None:
    made = typed.does("produce Orders x --property colour=green --property size=big=1 -p a=b")
    sent = typed.does(f"message show {made.lines[0]['msg_id']} --topic Orders").lines[0]
    assert sent["properties"].items() >= {"colour": "green", "size": "big=1", "a": "b"}.items()
    for wrong in ("colour", "=green", "colour="):
        assert typed(f"produce Orders x --property {wrong}").code == USAGE, wrong
    told = typed.does("produce Orders x --count 7 --in-flight 3 --shard s")
    assert [line["status"] for line in told.lines] == ["SEND_OK"] * 7
    assert len({(line["broker_name"], line["queue_id"]) for line in told.lines}) == 1
    offsets = [line["queue_offset"] for line in told.lines]
    assert offsets == list(range(offsets[0], offsets[0] + 7))
    spread = typed.does("produce Orders x --count 8").lines
    assert len({(line["broker_name"], line["queue_id"]) for line in spread}) == 4
    people = typed.as_typed("produce Orders x --count 2 --quiet")
    assert people.out == "2 sent, 0 failed\n"
    typed.interrupts(0.001)
    told = typed.does("produce Orders x --count 64 --in-flight 1 --quiet")
    assert 0 < told.lines[-1]["sent"] < 64


def test_what_was_not_sent_is_counted_and_told(typed: Typist, logged: list[Any]) -> None:
    for name in ("one", "two"):
        routes = typed.cluster.brokers[name].dispatcher
        routes.handle_run = None
        typed.refuses(name, RequestCode.SEND_MESSAGE_V2)
    told = typed("produce Orders x --count 3")
    assert (told.code, told.out) == (FAILED, "")
    assert len(told.err.splitlines()) == 3
    assert all("not today" in line for line in told.err.splitlines())
    told = typed("produce Orders x --count 3 --quiet")
    assert (told.code, told.lines) == (FAILED, [{"sent": 0, "failed": 3}])
    assert len(told.err.splitlines()) == 1, "the others would say the same"


def test_a_line_that_is_too_long_is_an_error_and_ends_it(typed: Typist) -> None:
    told = typed("produce Orders --quiet", given="a\n" + "x" * ((4 << 20) + 1) + "\nb\n")
    assert (told.code, told.lines) == (FAILED, [{"sent": 1, "failed": 1}])
    assert "more than 4 MiB" in told.err


def test_a_message_is_shown_by_place_key_or_id(typed: Typist) -> None:
    (known,) = typed.does("tail Orders --since earliest --no-follow --count 1").lines
    place = f"{known['broker_name']}:{known['queue_id']}:{known['queue_offset']}"
    for line in (
        f"message show --at {place} --topic Orders",
        f"message show {known['msg_id']} --topic Orders",
        f"message show {known['offset_msg_id']}",
        f"message show {known['offset_msg_id']} --topic Orders",
    ):
        (found,) = typed.does(line).lines
        assert (found["msg_id"], found["body"]) == (known["msg_id"], known["body"]), line
    (broker, queue) = place.split(":")[:2]
    told = typed(f"message show --at {broker}:{queue}:99 --topic Orders")
    assert (told.code, f"queue {queue} of Orders at {broker} has no message 99" in told.err) == (
        NOT_FOUND,
        True,
    )
    told = typed(f"message show {known['offset_msg_id']} --topic Others")
    assert told.code == NOT_FOUND
    assert len(typed.does("message show --key k1 --topic Orders --max 1").lines) == 2
    assert typed("message show --key k1 --topic Orders --since 0s").code == NOT_FOUND
    told = typed("message show --key k2 --topic Orders")
    assert "no broker of the topic Orders has a message with the key k2" in told.err


def test_a_message_is_named_in_one_way(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = Typist(SimCluster(), monkeypatch)
    for line in (
        "message show",
        "message show X --key k --topic Orders",
        "message show --key k --at one:0:1 --topic Orders",
        "message show --key k",
        "message show --at one:0:1",
        "message show --at one:0 --topic Orders",
        "message show --at :0:1 --topic Orders",
        "message show --at one:x:1 --topic Orders",
    ):
        assert typed(line).code == USAGE, line


def test_round_trips_have_their_times(typed: Typist) -> None:
    began = typed.cluster.clock.seconds()
    told = typed.does("cluster ping one --count 4 --send Orders --size 64")
    assert since(typed, began) < 2
    kinds = [(row["kind"], row["name"], row["asked"], row["failed"]) for row in told.rows]
    assert kinds == [
        ("name server", None, 4, 0),
        ("master", "one", 4, 0),
        ("send", "one", 4, 0),
    ]
    assert told.rows[2]["address"] == "Orders:0"
    for row in told.rows:
        least, mean, most = row["least_ms"], row["mean_ms"], row["most_ms"]
        assert 0 < least <= mean <= most < 100
        assert [round(value, 2) for value in (least, mean, most)] == [least, mean, most]
    sent = typed.does("tail Orders --since earliest --no-follow --queue one:0").lines
    assert [line["body"] for line in sent if line["body"][0] == "."] == ["." * 64] * 4
    by_address = typed.does(f"cluster ping {typed.cluster.address('two')} --count 1").rows
    assert [row["kind"] for row in by_address] == ["name server", "broker"]
    to_all = typed.does(f"cluster ping {typed.cluster.address('two')} --count 1 --send Orders").rows
    assert [row["name"] for row in to_all[2:]] == ["one", "two"]


def test_a_broker_that_fails_now_and_then_is_counted(typed: Typist) -> None:
    left = [2]
    handler = typed.cluster.brokers["one"].dispatcher.routes[RequestCode.GET_BROKER_RUNTIME_INFO]

    def now_and_then(channel: Any, command: Any) -> Any:
        left[0] -= 1
        return handler(channel, command) if left[0] >= 0 else Deferred()

    routes: dict[int, Callable[[Any, Any], Any]] = typed.cluster.brokers["one"].dispatcher.routes
    routes[RequestCode.GET_BROKER_RUNTIME_INFO] = now_and_then
    told = typed("cluster ping one --count 5", "--timeout", "0.5")
    assert told.code == NO_ANSWER
    row = told.rows[1]
    assert (row["asked"], row["failed"]) == (5, 3)
    assert row["least_ms"] > 0
    assert len(told.err.splitlines()) == 1, "it is told once"
    told = typed("cluster ping one --count 5", "--timeout", "0.5")
    assert told.rows[1] | {"asked": 1, "failed": 1, "least_ms": None} == told.rows[1]
    typed.interrupts(0.7)
    told = typed("cluster ping --count 10000", "--timeout", "0.5")
    assert told.code == 0
    assert told.rows[2] | {"asked": 0, "failed": 0} == told.rows[2]


def test_an_id_that_holds_a_former_address(typed: Typist) -> None:
    """Its broker has moved: whoever asks is told so, and with --topic finds the message."""
    former = Address.parse("10.9.9.9", 10911)
    stored = BrokerMessage("Orders", 0, b"old", former, former)
    store = typed.cluster.brokers["two"].store
    msg_id = typed.cluster.wait(store.put_message(stored)).append.msg_id
    told = typed(f"message show {msg_id}")
    assert told.code == NO_ANSWER
    assert "the address that its broker had when the message was stored, 10.9.9.9:10911" in told.err
    assert "give --topic" in told.err
    moved = typed.as_typed(f"message show {msg_id} --topic Orders")
    assert moved.code == 0
    assert "old" in moved.out
    assert "the former address of its broker, 10.9.9.9:10911" in moved.err
    elsewhere = msg_id[:-16] + f"{0x7000:016X}"
    told = typed(f"message show {elsewhere} --topic Orders")
    assert told.code == NOT_FOUND
    assert "no broker of Orders has a message with this id" in told.err


@pytest.mark.parametrize("shard", ["", " --shard customer-7"])
def test_producing_waits_for_a_broker_that_restarts(typed: Typist, shard: str) -> None:
    """It failed after "3 attempts within 3 ms"."""
    _away(typed, for_seconds=8)
    began = typed.cluster.clock.seconds()
    told = typed(f"produce Orders late --quiet --count 40 --in-flight 1{shard}")
    assert (told.code, told.lines[-1]) == (0, {"sent": 40, "failed": 0})
    assert since(typed, began) > 8


def test_producing_waits_no_longer_than_it_may(typed: Typist) -> None:
    """0 is one round; and Ctrl-C ends the wait."""
    for seconds in (0, 20):
        _away(typed, for_seconds=22)
        began = typed.cluster.clock.seconds()
        told = typed(f"produce Orders late --count 40 --in-flight 1 --wait {seconds}")
        assert told.code == FAILED
        assert seconds <= since(typed, began) < seconds + 6
        typed.cluster.run(60)
    _away(typed, for_seconds=40)
    typed.interrupts(5)
    began = typed.cluster.clock.seconds()
    told = typed("produce Orders late --quiet --count 40 --in-flight 1")
    assert (told.code, told.lines[-1]["failed"]) == (FAILED, 1)
    assert since(typed, began) < 12


def _away(typed: Typist, for_seconds: float) -> None:
    """Both brokers die in the middle of the next line, and come back."""

    def die() -> None:
        for name in ("one", "two"):
            typed.cluster.crash(name)
        typed.host.clock.callLater(for_seconds, come_back)

    def come_back() -> None:
        for name in ("one", "two"):
            typed.cluster.add_later(name)

    typed.meanwhile(0.005, die)


@pytest.mark.parametrize("power", [False, True])
def test_a_send_without_a_master_says_soon_for_what_it_waits(
    typed: Typist, monkeypatch: pytest.MonkeyPatch, *, power: bool
) -> None:
    """It said nothing for 63 s. `power`: the name server does not know yet that it is gone."""
    cluster = typed.cluster
    cluster.add("slave", BrokerRole.SLAVE, broker={"broker_name": "one", "broker_id": 1})
    cluster.run(12)
    warned: list[tuple[float, str]] = []
    began = cluster.clock.seconds()
    monkeypatch.setattr(
        Output, "warn", lambda _, text: warned.append((cluster.clock.seconds() - began, text))
    )
    for name in ("one", "two"):
        cluster.crash(name, power=power)
    told = typed("produce Orders x --count 2 --wait 20")
    assert (told.code, told.out) == (FAILED, "")
    ((seconds, text),) = warned
    assert seconds < (10 if power else 1)
    assert "tries again and again, for 20 s for each message (--wait)" in text
    assert text.startswith("no broker takes messages of Orders now: ")
