"""/api/... over a simulated network: what is told, to whom, and what it costs."""

import json
from typing import Any

import pytest

from rmq_ha.base.acl.signature import Signer
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.ops.app.page.gate import DOMAIN
from rmq_ha.ops.app.page.port import PageSettings
from rmq_ha.ops.app.page.search import MOST_FOUND
from rmq_ha.ops.app.status.server import StatusServer
from rmq_ha.testing.host import SimHost
from tests.page.cluster import STATUS_PORT, Bridge, PageCluster
from tests.unit.server.broker.test_longest_turn import MOST, Turns

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    '"><svg onload=alert(3)>',
    "javascript:alert(4)",
    "a\u202egnp.exe",
    "\ud800 half a character",
    "x" * 300,
    "%2e%2e/%00",
]
ADMIN = "accounts:\n- accessKey: operator\n  secretKey: secret-of-operator\n  admin: true\n"
GUEST = "- accessKey: guest12\n  secretKey: secret-of-guest\n  topicPerms: [orders=SUB]\n"


class Asking:
    """Asks a simulated status port as an HTTP client does."""

    def __init__(self, cluster: PageCluster, host: SimHost) -> None:
        self.host = host
        self.cluster = cluster
        self.bridge = Bridge(cluster, host)
        self.cookie = ""

    def __call__(
        self,
        path: str,
        *,
        method: str = "GET",
        body: str = "",
        name: str = "127.0.0.1",
        **more: str,
    ) -> tuple[int, dict[str, str], Any]:
        lines = [f"{method} {path} HTTP/1.1", f"Host: {name}", "Connection: close"]
        lines += [f"{key}: {value}" for key, value in more.items()]
        if self.cookie:
            lines.append(f"Cookie: {self.cookie}")
        if body:
            lines.append(f"Content-Length: {len(body)}")
        head, _, data = self.bridge.exchange(
            ("\r\n".join(lines) + "\r\n\r\n" + body).encode()
        ).partition(b"\r\n\r\n")
        status, *fields = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in fields)
        if headers.get("transfer-encoding") == "chunked":
            data = unchunked(data)
        is_json = headers.get("content-type") == "application/json"
        return int(status.split()[1]), headers, json.loads(data) if is_json else data.decode()

    def get(self, path: str) -> Any:
        status, _, answer = self(path)
        assert status == 200, answer
        return answer

    def enter(self, account: str, secret: str) -> int:
        challenge = self("/api/session")[2]["challenge"]
        signature = Signer(secret, is_long=True).sign((DOMAIN + challenge).encode())
        wanted = {"challenge": challenge, "signature": signature, "account": account}
        status, headers, _ = self("/api/session", method="POST", body=json.dumps(wanted))
        self.cookie = headers.get("set-cookie", "").partition(";")[0]
        return status


def unchunked(data: bytes) -> bytes:
    found = b""
    while data:
        size, _, rest = data.partition(b"\r\n")
        found, data = found + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return found


@pytest.fixture(scope="module")
def cluster() -> PageCluster:
    made = PageCluster()
    made.add("broker-a")
    made.add("broker-b", BrokerRole.SLAVE, of="broker-a")
    made.run(40)
    made.topic("broker-a", "orders")
    made.topic("broker-a", "audit")
    made.consume("shop-1", "fulfilment", "orders")
    made.run(35)
    made.send("broker-a", "orders", 40)
    made.run(8)
    made.send_one("broker-a", "orders", b"\xff\x00 no text", "KEYS\x01k1 k2\x02TAGS\x01t\x02")
    made.run(12)
    return made


@pytest.fixture(scope="module")
def ask(cluster: PageCluster) -> Asking:
    return Asking(cluster, cluster.hosts["broker-a"])


def test_the_sheet_of_a_master(cluster: PageCluster, ask: Asking) -> None:
    ask.get("/api/overview")
    cluster.run(2)
    sheet = ask.get("/api/overview")
    assert (sheet["server"], sheet["role"], sheet["is_ready"]) == ("broker", "SYNC_MASTER", True)
    members = [(item["role"], item["state"], item["lag_bytes"]) for item in sheet["members"]]
    assert members == [("master", "takes messages", None), ("slave", "caught up", 0)]
    assert all(item["since_ms"] > 0 for item in sheet["members"])
    machines = [(item["broker_id"], item["is_here"], item["tone"]) for item in sheet["machines"]]
    assert machines == [(0, True, "good"), (1, False, "good")]
    assert sheet["machines"][1]["behind_bytes"] == 0
    assert sheet["numbers"]["consumer_groups"] == 1
    assert sheet["numbers"]["puts"] >= 41
    assert sheet["disk"]["total"] > sheet["disk"]["free"] > 0
    assert sheet["lanes"][0]["name"] == sheet["address"]


def test_distances_are_of_one_moment(cluster: PageCluster, ask: Asking) -> None:
    """A log that grew since the others were asked makes nobody late."""
    ask.get("/api/overview")
    cluster.run(1)
    before = ask.get("/api/overview")["machines"]
    cluster.send("broker-a", "audit", 8)
    cluster.run(1.1)
    after = ask.get("/api/overview")["machines"]
    assert after[0]["log_end"] > before[0]["log_end"]
    assert after[1]["behind_bytes"] == 0


def test_the_sheet_of_a_slave(cluster: PageCluster) -> None:
    sheet = Asking(cluster, cluster.hosts["broker-b"]).get("/api/overview")
    assert sheet["role"] == "SLAVE"
    assert [(item["role"], item["state"]) for item in sheet["members"]] == [
        ("slave", "following"),
        ("master", "answers"),
    ]


def test_plots_and_only_what_is_new(ask: Asking) -> None:
    points = ask.get("/api/history")
    assert points["step_s"] == 10
    assert len(points["at_ms"]) == len(points["series"]["put_rate"]) >= 4
    assert max(value or 0 for value in points["series"]["put_rate"]) > 0
    newer = ask.get(f"/api/history?since={points['at_ms'][-2]}")
    assert newer["at_ms"] == points["at_ms"][-1:]
    assert ask("/api/history?span=2h")[0] == 400


def test_lists_and_sheets(ask: Asking) -> None:
    topics = ask.get("/api/topics?kind=normal&text=ord")
    assert [(row["name"], row["messages"]) for row in topics["rows"]] == [("orders", 41)]
    sheet = ask.get("/api/topic?name=orders")
    assert sum(queue["max_offset"] for queue in sheet["queues"]) == 41
    assert [item["name"] for item in sheet["groups"]] == ["fulfilment"]
    groups = ask.get("/api/groups?text=ful&sort=lag")
    (row,) = groups["rows"]
    names = ("members", "topics", "lag", "retrying", "dead")
    assert [row[name] for name in names] == [1, 1, 0, 0, 0]
    clients = ask.get("/api/clients?text=fulfil")
    assert [row["kind"] for row in clients["rows"]] == ["consumer"]


def test_which_member_has_which_queue(ask: Asking) -> None:
    """Asked of the consumer itself."""
    sheet = ask.get("/api/group?name=fulfilment")
    (member,) = sheet["members"]
    queues = [queue for queue in sheet["queues"] if queue["topic"] == "orders"]
    assert {queue["member"] for queue in queues} == {member["client_id"]}
    assert member["queues"] == 5  # with that of its retry topic
    assert {(queue["lag"], queue["behind_s"]) for queue in queues} == {(0, None)}
    assert sum(queue["committed"] for queue in queues) == 41
    assert sheet["subscriptions"][0]["expression"] == "*"


def test_how_far_a_group_is_behind_in_messages_and_in_time(
    cluster: PageCluster, ask: Asking
) -> None:
    broker = cluster.brokers["broker-a"]
    cluster.send("broker-a", "audit", 8)
    ends = [broker.store.max_offset_in_queue("audit", number) for number in range(4)]
    for number, back in enumerate((0, 1, 2, -1)):  # the last one is ahead of what there is
        broker.consumer_offsets.commit("late", "audit", number, ends[number] - back)
    cluster.run(30)
    queues = ask.get("/api/group?name=late")["queues"]
    assert [queue["lag"] for queue in queues] == [0, 1, 2, 0]
    assert [queue["end"] for queue in queues] == ends
    assert [queue["behind_s"] is None for queue in queues] == [True, False, False, True]
    assert all(30 <= queue["behind_s"] < 40 for queue in queues[1:3])
    rows = {row["name"]: row for row in ask.get("/api/groups?sort=lag")["rows"]}
    assert (rows["late"]["lag"], rows["late"]["topics"]) == (3, 1)


def test_a_message_by_key_id_and_time(cluster: PageCluster, ask: Asking) -> None:
    (found,) = ask.get("/api/search?by=key&topic=orders&value=k2")["found"]
    assert (found["keys"], found["tags"], found["body_kind"]) == ("k1 k2", "t", "hex")
    assert [item["state"] for item in found["consumers"]] == ["passed"]
    (again,) = ask.get(f"/api/search?by=id&value={found['place_id']}")["found"]
    assert again == found
    at = found["stored_ms"]
    by_time = ask.get(f"/api/search?by=time&topic=orders&from={at}&to={at}")["found"]
    assert found in by_time
    every = ask.get("/api/search?by=time&topic=orders")["found"]
    assert len(every) == 41
    assert [item["stored_ms"] for item in every] == sorted(item["stored_ms"] for item in every)
    assert ask.get("/api/search?by=key&topic=orders&value=nobody")["found"] == []


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/api/search?by=key&topic=nope&value=k", 400, "no topic 'nope'"),
        ("/api/search?by=key&topic=orders", 400, "give the key"),
        ("/api/search?by=id&value=short", 400, "give a topic"),
        ("/api/search?by=taste", 400, "id, key or time"),
        ("/api/search?by=time&topic=orders&from=-1", 400, "whole number"),
        ("/api/topic?name=nope", 404, "no topic"),
        ("/api/group", 400, "name is missing"),
        ("/api/group?name=nope", 404, "no group"),
        ("/api/nope", 404, "no /api/nope"),
        ("/page/../../../etc/passwd", 404, "no such file"),
        ("/page/nope.js", 404, "no such file"),
    ],
)
def test_what_cannot_be_answered_says_why(ask: Asking, path: str, status: int, text: str) -> None:
    found, _, answer = ask(path)
    assert found == status
    assert text in (answer["error"] if isinstance(answer, dict) else answer)


def test_a_browser_is_told_what_it_must_not_do(ask: Asking) -> None:
    for path in ("/", "/page/app.js", "/api/overview", "/api/nope"):
        headers = ask(path)[1]
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
    etag = ask("/page/app.js")[1]["etag"]
    status, _, body = ask("/page/app.js", **{"If-None-Match": etag})
    assert (status, body) == (304, "")


def test_a_name_that_leads_here_by_chance_gets_nothing(ask: Asking) -> None:
    """A site may point its own name at 127.0.0.1: its pages could read what a browser gets."""
    assert ask("/api/overview", name="evil.example")[0] == 421
    assert ask("/api/overview", name="localhost:5557")[0] == 200
    assert ask("/api/overview", name="[::1]:5557")[0] == 200


def test_it_is_read_only(ask: Asking) -> None:
    for method in ("POST", "PUT", "DELETE"):
        assert ask("/api/overview", method=method)[0] in (405, 501)
    assert ask("/api/session", method="POST", body="{}", Origin="http://evil.example")[0] == 421
    assert ask("/api/session", method="POST", body="[" * 4000)[0] == 400


def test_metrics_and_health_are_what_they_were(ask: Asking) -> None:
    assert ask("/healthz")[2].startswith("ready: ")
    assert "rmqha_build_info" in ask("/metrics", name="broker-a")[2]
    assert ask("/metrics", name="evil.example")[0] == 421


def test_a_topic_says_which_messages_it_takes(cluster: PageCluster, ask: Asking) -> None:
    """As `rmqha-admin topic create --type FIFO` sets it."""
    topics = cluster.brokers["broker-a"].topics._table
    topics["typed"] = TopicConfig("typed", 1, 1, 6, attributes={"message.type": "FIFO"})
    try:
        rows = ask.get("/api/topics?text=typed")["rows"]
        assert [(row["name"], row["message_type"]) for row in rows] == [("typed", "FIFO")]
    finally:
        del topics["typed"]


def test_hostile_names_come_as_they_are_in_json(cluster: PageCluster, ask: Asking) -> None:
    broker = cluster.brokers["broker-a"]
    for name in HOSTILE:
        broker.topics._table[name] = TopicConfig(name, 1, 1, 6)
        broker.groups._table[name] = SubscriptionGroupConfig(name)
    cluster.run(5)
    try:
        names = [row["name"] for row in ask.get("/api/topics?limit=500")["rows"]]
        assert set(HOSTILE) <= set(names)
        assert set(HOSTILE) <= {row["name"] for row in ask.get("/api/groups?limit=500")["rows"]}
        assert ask("/api/topic?name=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")[0] == 200
    finally:
        for name in HOSTILE:
            del broker.topics._table[name], broker.groups._table[name]


def test_many_pages_cost_one_look(cluster: PageCluster, ask: Asking) -> None:
    """What ten of them ask within a second is gathered once."""
    board = cluster.servers["broker-a"]._status.page._answers.board  # type: ignore[union-attr]
    cluster.run(3)
    seen: list[int] = []
    original = board.overview
    board.overview = lambda: seen.append(1) or original()  # type: ignore[method-assign]
    try:
        for _ in range(10):
            ask.get("/api/overview")
    finally:
        board.overview = original  # type: ignore[method-assign]
    assert len(seen) <= 2


@pytest.fixture(scope="module")
def large() -> PageCluster:
    made = PageCluster()
    broker = made.add("broker-a")
    for number in range(3000):
        name = f"T{number}"
        broker.topics._table[name] = TopicConfig(name, 16, 16, 6)
    for number in range(600):
        broker.groups._table[f"G{number}"] = SubscriptionGroupConfig(f"G{number}")
        for queue_id in range(64):
            broker.consumer_offsets.commit(f"G{number}", f"T{number % 7}", queue_id, 0)
    broker.topics._table["T1"] = TopicConfig("T1", 64, 64, 6)
    made.send("broker-a", "T1", 640, 64)
    made.run(3)
    return made


class TestLongTurns:
    """Nothing that the page asks holds the reactor for more than some milliseconds."""

    @pytest.mark.parametrize(
        "path",
        [
            "/api/overview",
            "/api/topics?limit=500&sort=messages",
            "/api/groups?limit=500",
            "/api/clients",
            "/api/topic?name=T1",
            "/api/group?name=G1",
            "/api/search?by=time&topic=T1",
            "/api/search?by=key&topic=T1&value=nobody",
            "/api/history",
            "/api/tail?topic=T1&cursor=" + ".".join(["0"] * 64),
            "/api/waiting",
        ],
    )
    def test_a_turn(self, large: PageCluster, path: str) -> None:
        turns = Turns.__new__(Turns)
        turns._clock, turns._step, turns.most = large.clock, large.clock.step, 0
        asking = Asking(large, large.hosts["broker-a"])
        most = turns.of(lambda: asking.get(path))
        assert most <= MOST / 6, path  # 8 ms of the broker and of the one that asks

    def test_the_search_is_bounded(self, large: PageCluster) -> None:
        found = Asking(large, large.hosts["broker-a"]).get("/api/search?by=time&topic=T1")["found"]
        assert len(found) == MOST_FOUND


class TestWhoMayLook:
    """Where others than this machine reach the port, or access control is in force."""

    @pytest.fixture
    def guarded(self) -> PageCluster:
        made = PageCluster()
        host = made.world.add("broker-a")
        made.hosts["broker-a"] = host
        host.disk.replace("/conf/plain_acl.yml", (ADMIN + GUEST).encode())
        made.add("broker-a", acl_plug_in="plain", acl_directory="/conf")
        return made

    def test_an_administrator_signs(self, guarded: PageCluster) -> None:
        ask = Asking(guarded, guarded.hosts["broker-a"])
        assert ask("/api/overview")[0] == 401
        assert ask("/api/search?by=id&value=x")[0] == 401
        assert ask("/healthz")[0] == 200
        assert ask.enter("operator", "wrong") == 403
        assert ask.enter("guest12", "secret-of-guest") == 403
        assert ask.enter("nobody", "secret-of-operator") == 403
        assert ask("/api/overview")[0] == 401
        assert ask.enter("operator", "secret-of-operator") == 200
        assert ask.get("/api/session") == {
            "is_open": True, "ways": ["account"], "challenge": "", "who": "operator",
        }  # fmt: skip
        assert ask.get("/api/overview")["name"] == "broker-a"
        ask("/api/session", method="POST", body="{}")
        assert ask("/api/overview")[0] == 401
        refused = guarded.brokers["broker-a"].access_controls[0].refused
        assert refused["signature"] == 3

    def test_a_token(self) -> None:
        made = PageCluster()
        made.add("broker-a", page_token="sixteen characters")
        ask = Asking(made, made.hosts["broker-a"])
        assert ask("/api/overview")[0] == 401
        assert ask("/api/overview", Authorization="Bearer sixteen characters")[0] == 200
        assert ask("/api/overview", Authorization="Bearer another")[0] == 401
        assert ask.enter("", "sixteen characters") == 200
        assert ask("/api/overview", name="broker-a.example")[0] == 200

    def test_an_open_port_without_either_shows_nothing(self) -> None:
        made = PageCluster("10.0.0")
        made.add("broker-a")
        status, _, answer = Asking(made, made.hosts["broker-a"])("/api/overview", name="10.0.0.3")
        assert status == 421
        assert "pageToken" in answer["error"]

    def test_no_page_at_all(self) -> None:
        made = PageCluster()
        made.add("broker-a", page_enable=False)
        ask = Asking(made, made.hosts["broker-a"])
        assert ask("/api/overview")[0] == 404
        assert "/healthz" in ask("/")[2]


def test_before_the_server_serves_and_after() -> None:
    made = PageCluster()
    host = made.world.add("b")
    server = StatusServer(host.seams, "rmqha", STATUS_PORT, host.ip, PageSettings())
    made.wait(server.start())
    status, _, answer = Asking(made, host)("/api/overview")
    assert (status, "/healthz" in answer["error"]) == (503, True)
    made.wait(server.stop())
