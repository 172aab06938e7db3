"""The live tail, what waits, and lives of messages, over a simulated network."""

from typing import Any

import pytest

from rmq_ha.base.model.status import BrokerRole
from rmq_ha.client.rules.listening import ConsumeConcurrentlyStatus
from rmq_ha.ops.app.page.tail import FIRST_SHOWN, MOST_LOOKED, MOST_SHOWN
from tests.page.cluster import PageCluster
from tests.page.test_api import Asking

ID = "0A1400031A2C18B4AAC21F5%09d"
CLIENT = "10.20.30.40:7"


def traces(*lines: tuple[str, ...]) -> bytes:
    """As a client of RocketMQ writes them."""
    return "".join("\x01".join(line) + "\x02" for line in lines).encode()


@pytest.fixture(scope="module")
def cluster() -> PageCluster:
    made = PageCluster()
    broker = made.add("broker-a", BrokerRole.ASYNC_MASTER, timer_wheel_enable=True)
    broker.configuration.broker.transaction_check_interval = 20_000
    made.run(5)
    made.topic("broker-a", "orders", 2)
    made.topic("broker-a", "busy", 2)
    made.topic("broker-a", "RMQ_SYS_TRACE_TOPIC", 1)
    return made


@pytest.fixture(scope="module")
def ask(cluster: PageCluster) -> Asking:
    return Asking(cluster, cluster.hosts["broker-a"])


def send(cluster: PageCluster, topic: str, body: bytes, number: int, **more: str) -> str:
    named = {"UNIQ_KEY": ID % number, **more}
    text = "".join(f"{name}\x01{value}\x02" for name, value in named.items())
    return cluster.send_one("broker-a", topic, body, text)


class TestTail:
    def test_a_tail_shows_what_comes_and_each_message_once(
        self, cluster: PageCluster, ask: Asking
    ) -> None:
        assert FIRST_SHOWN == 10
        for number in range(20):
            send(cluster, "orders", b"old %d" % number, number)
        first = ask.get("/api/tail?topic=orders")
        assert [item["body"] for item in first["messages"]] == [
            f"old {number}" for number in range(15, 20)
        ], "half of them for each of two queues"
        send(cluster, "orders", b'{"a":1}', 100, KEYS="k1 k2", TAGS="placed")
        send(cluster, "orders", b"Later", 101)
        page = ask.get(f"/api/tail?topic=orders&cursor={first['cursor']}")
        assert [item["body"] for item in page["messages"]] == ['{"a":1}', "Later"]
        assert (page["looked"], page["skipped"], page["left_out"]) == (2, 0, 0)
        assert (page["messages"][0]["keys"], page["messages"][0]["tags"]) == ("k1 k2", "placed")
        for wanted, count in (("tag=placed", 1), ("key=k2", 1), ("key=k", 0), ("text=LATER", 1)):
            found = ask.get(f"/api/tail?topic=orders&cursor={first['cursor']}&{wanted}")
            assert (len(found["messages"]), found["looked"]) == (count, 2), wanted
        again = ask.get(f"/api/tail?topic=orders&cursor={page['cursor']}")
        assert (again["messages"], again["looked"]) == ([], 0)
        assert again["cursor"] == page["cursor"]

    def test_a_busy_topic_shows_the_newest_and_counts_the_rest(
        self, cluster: PageCluster, ask: Asking
    ) -> None:
        cursor = ask.get("/api/tail?topic=busy")["cursor"]
        cluster.send("broker-a", "busy", MOST_LOOKED + 100, 2, b"b")
        page = ask.get(f"/api/tail?topic=busy&cursor={cursor}")
        assert len(page["messages"]) == MOST_SHOWN
        assert page["looked"] == MOST_LOOKED
        assert page["skipped"] == 100 + MOST_LOOKED - MOST_SHOWN
        ends = {item["queue_offset"] for item in page["messages"]}
        assert max(ends) == (MOST_LOOKED + 100) // 2 - 1

    @pytest.mark.parametrize("cursor", ["x", "-1", "1..2", "1." * 300 + "1", "f" * 16])
    def test_another_cursor_is_refused(self, ask: Asking, cursor: str) -> None:
        status, _, answer = ask(f"/api/tail?topic=orders&cursor={cursor}")
        assert (status, "cursor" in answer["error"]) == (400, True)

    def test_a_topic_that_was_made_anew_begins_at_its_first_message(self, ask: Asking) -> None:
        page = ask.get("/api/tail?topic=orders&cursor=ffff.ffff")
        assert page["looked"] == sum(int(part, 16) for part in page["cursor"].split("."))


def test_what_waits_for_its_time_and_for_its_producer(cluster: PageCluster, ask: Asking) -> None:
    for number in range(2):
        send(cluster, "orders", b"d", 200 + number, DELAY="14")
    now_ms = cluster.hosts["broker-a"].seams.now_ms()
    send(cluster, "orders", b"t", 210, TIMER_DELIVER_MS=str(now_ms + 600_000))
    early = ask.get("/api/waiting")["halves"]
    assert (early["number"], "first check" in early["note"]) == (None, True)
    send(cluster, "orders", b"half", 220, TRAN_MSG="true", PGROUP="makers")
    cluster.run(90)
    waiting = ask.get("/api/waiting")
    (level,) = waiting["levels"]
    assert (level["level"], level["delay"], level["waiting"]) == (14, "10m", 2)
    assert abs(level["next_due_ms"] - now_ms - 600_000) < 5000
    assert level["next_due_ms"] <= level["last_due_ms"]
    timers = waiting["timers"]
    assert (timers["work"], timers["waiting"], timers["late_s"]) == ("delivering", 1, 0)
    assert timers["topics"] == [{"topic": "orders", "waiting": 1}]
    by_bound = {item["within_s"]: item["waiting"] for item in timers["due"]}
    assert (by_bound[300], by_bound[900]) == (0, 1)
    halves = waiting["halves"]
    assert halves["number"] == 1
    (row,) = halves["rows"]
    assert (row["group"], row["topic"], row["id"]) == ("makers", "orders", ID % 220)
    assert row["checks"] >= 1


def lanes(ask: Asking, place: str) -> dict[str, list[tuple[str, bool]]]:
    life = ask.get(f"/api/life?place={place}")
    return {
        lane["group"]: [(step["what"], step["is_sure"]) for step in lane["steps"]]
        for lane in life["lanes"]
    }


class TestLife:
    def test_a_message_that_was_retried_until_it_was_dead(
        self, cluster: PageCluster, ask: Asking
    ) -> None:
        def listener(messages: Any, context: Any) -> Any:
            is_bad = messages[0].msg_id == ID % 300
            # The third time is the last: -1 stands for the dead-letter queue.
            context.delay_level_when_next_consume = 1 if messages[0].reconsume_times < 2 else -1
            return ConsumeConcurrentlyStatus.RECONSUME_LATER if is_bad else None

        consumer = cluster.consume("shop-1", "fulfilment", "orders", listener=listener)
        cluster.run(5)
        place = send(cluster, "orders", b"bad", 300)
        cluster.run(40)
        cluster.wait(consumer.stop())
        found = lanes(ask, place)
        assert found[""] == [("made", True), ("stored", True)]
        whats = [what for what, _ in found["fulfilment"]]
        assert whats.count("retried") == 2
        assert whats.count("dead letter") == 1
        assert found["fulfilment"][-1] == ("passed", True)
        life = ask.get(f"/api/life?place={place}")
        assert "gave the message back" in life["lanes"][1]["steps"][-1]["text"]
        offsets = cluster.brokers["broker-a"].consumer_offsets
        offsets.commit("silent", "orders", 0, 10_000)
        assert lanes(ask, place)["silent"] == [("passed", False)]
        steps = ask.get(f"/api/life?place={place}")["lanes"][-1]["steps"]
        assert "whether it was handled is not known without traces" in steps[0]["text"]
        assert "no client has left a trace" in life["note"]

    def test_traces_say_who_handled_it(self, cluster: PageCluster, ask: Asking) -> None:
        place = send(cluster, "orders", b"traced", 310)
        offsets = cluster.brokers["broker-a"].consumer_offsets
        offsets.commit("audit", "orders", 0, 10_000)
        at, mid = "1700000000000", ID % 310
        body = traces(
            ("Pub", at, "r", "makers", "orders", mid, "", "", CLIENT, "6", "3", "0", "x", "true"),
            ("SubBefore", at, "r", "audit", "q", mid, "0", ""),
            ("SubAfter", "q", mid, "12", "true", "", "0", "1700000000020", "audit"),
        )
        cluster.send_one("broker-a", "RMQ_SYS_TRACE_TOPIC", body, f"KEYS\x01{mid}\x02")
        cluster.run(1)
        found = lanes(ask, place)
        assert found[""] == [("made", True), ("sent", True), ("stored", True)]
        assert found["audit"] == [("delivered", True), ("handled", True), ("passed", True)]
        assert found["fulfilment"] == [("waiting", False)]

    def test_a_delayed_message_before_and_after_its_time(
        self, cluster: PageCluster, ask: Asking
    ) -> None:
        waiting = send(cluster, "orders", b"late", 320, DELAY="3")
        search = ask.get(f"/api/search?by=id&topic=orders&value={ID % 320}")
        assert [item["place_id"] for item in search["found"]] == [waiting]
        assert "these wait, or waited" in search["note"]
        half = ask.get("/api/waiting")["halves"]["rows"][0]["place_id"]
        assert [what for what, _ in lanes(ask, half)[""]] == ["made", "half message"]
        whats = [what for what, _ in lanes(ask, waiting)[""]]
        assert whats == ["made", "delayed", "waits until"]
        cluster.run(15)
        (found,) = ask.get(f"/api/search?by=id&topic=orders&value={ID % 320}")["found"]
        whats = [what for what, _ in lanes(ask, found["place_id"])[""]]
        assert whats == ["made", "delayed", "due", "stored"]

    def test_a_place_without_a_message(self, ask: Asking) -> None:
        status, _, answer = ask("/api/life?place=nope")
        assert (status, "offsetMsgId" in answer["error"]) == (400, True)
        assert ask("/api/life?place=7F00000100002A9F00000000000000FF")[0] == 404
