"""The page in a real browser: what people see, and what must never happen there."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmq_ha.base.acl.signature import Signer
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.model.subscription import SubscriptionData
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.ops.app.page.gate import DOMAIN
from tests.page.browser import browser, why_not
from tests.page.cluster import Bridge, PageCluster
from tests.page.test_api import HOSTILE

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "there is one")

PHONE = {"width": 390, "height": 844}
DESK = {"width": 1440, "height": 900}
SECTIONS = [
    "overview", "topics", "groups", "clients", "waiting", "dead", "events", "search", "tail",
]  # fmt: skip
TOKEN = "sixteen characters"


@pytest.fixture(scope="module")
def chrome() -> Iterator[Any]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def cluster() -> PageCluster:
    made = PageCluster()
    made.add("broker-a")
    made.add("broker-b", BrokerRole.SLAVE, of="broker-a")
    made.add("guarded", BrokerRole.ASYNC_MASTER, page_token=TOKEN)
    made.run(40)
    made.topic("broker-a", "orders")
    made.consume("shop-1", "fulfilment", "orders")
    made.run(35)
    made.send("broker-a", "orders", 40)
    made.run(8)
    made.send_one("broker-a", "orders", b'{"order": 1}', "KEYS\x01k1\x02TAGS\x01t\x02")
    made.run(22)
    broker = made.brokers["broker-a"]
    for name in HOSTILE:
        broker.topics._table[name] = TopicConfig(name, 1, 1, 6)
        broker.groups._table[name] = SubscriptionGroupConfig(name)
        broker.consumer_offsets.commit(name, "orders", 0, 1)
        made.servers["broker-a"]._status.page._answers.board.note("log", "warn", name)  # type: ignore
    info = broker.consumers.group("fulfilment")
    info.subscriptions[HOSTILE[0]] = SubscriptionData(HOSTILE[0], HOSTILE[2])
    body = HOSTILE[1].encode()
    made.send_one("broker-a", "orders", body, f"KEYS\x01evil\x02{HOSTILE[0]}\x01{HOSTILE[2]}\x02")
    made.run(3)
    return made


@pytest.fixture(scope="module")
def bridge(cluster: PageCluster) -> Bridge:
    return Bridge(cluster, cluster.hosts["broker-a"])


class Opened:
    """A page, and everything that its console said."""

    def __init__(self, chrome: Any, **more: Any) -> None:
        self.context = chrome.new_context(**{"viewport": DESK, **more})
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: self.said.append(dialog.message) or dialog.dismiss())
        self.asked: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))

    def go(self, bridge: Bridge, section: str = "overview") -> Any:
        self.page.goto(f"{bridge.url}#/{section}")
        self.page.wait_for_selector("main:not([aria-busy]) > :not(.wait)")
        return self.page


@pytest.fixture
def opened(chrome: Any) -> Iterator[Any]:
    made: list[Opened] = []

    def make(**more: Any) -> Opened:
        made.append(Opened(chrome, **more))
        return made[-1]

    yield make
    for one in made:
        one.context.close()


def test_every_section_is_drawn_and_the_console_is_silent(opened: Any, bridge: Bridge) -> None:
    """Nothing breaks the policy, nothing comes from another host, no script of a name runs."""
    one = opened()
    for section in SECTIONS:
        page = one.go(bridge, section)
        assert page.locator("main h1").count() == 1
        assert page.locator("#nav [aria-current=page]").count() == 1
    assert one.said == []
    assert {url.split("/")[2] for url in one.asked} == {f"127.0.0.1:{bridge.port}"}


def test_the_sheet_says_what_there_is(opened: Any, bridge: Bridge) -> None:
    page = opened().go(bridge)
    text = page.inner_text("main")
    assert page.locator(".member").count() == 2
    assert "takes messages" in text
    assert "caught up" in text
    assert page.locator(".tile").count() == 8
    assert page.locator(".chart svg .line").count() >= 4
    assert re.search(r"at most \d", page.get_attribute("[data-key=rates] .chart", "aria-label"))
    page.wait_for_selector("main tbody tr:nth-child(2)", timeout=20_000)
    assert "sync master" in page.inner_text("#who")


def test_what_happened_comes_before_the_plots_when_something_is_red(
    opened: Any, bridge: Bridge
) -> None:
    one = opened()
    page = one.go(bridge)
    titles = "() => [...document.querySelectorAll('main h2')].map((item) => item.textContent)"
    calm = page.evaluate(titles)
    assert calm.index("What happened") > calm.index("The cluster")

    def with_fault(route: Any) -> None:
        answer = route.fetch()
        notice = {"tone": "error", "text": "the disk is full", "hint": ""}
        route.fulfill(response=answer, json={**answer.json(), "notices": [notice]})

    page.route("**/api/overview*", with_fault)
    page.wait_for_selector("text=the disk is full", timeout=20_000)
    red = page.evaluate(titles)
    assert red.index("What happened") < red.index("The last hour")
    assert red.count("What happened") == 1
    assert one.said == []


def test_hostile_names_are_text(opened: Any, cluster: PageCluster, bridge: Bridge) -> None:
    one = opened()
    info = cluster.brokers["broker-a"].consumers.group("fulfilment")
    for section in ("topics", "groups", "events", "group/fulfilment", "topic/orders"):
        with bridge.hold():  # a heartbeat of the consumer may have taken it back
            info.subscriptions[HOSTILE[0]] = SubscriptionData(HOSTILE[0], HOSTILE[2])
        page = one.go(bridge, section)
        page.wait_for_selector("main table, main .events")
        assert HOSTILE[0] in page.inner_text("main")
    page.goto(f"{bridge.url}#/search?by=key&topic=orders")
    page.wait_for_selector("#search")
    page.fill("#search [name=topic]", "orders")
    page.fill("#search [name=value]", "evil")
    page.click("#search .main")
    page.wait_for_selector(".message pre")
    assert page.inner_text(".message pre") == HOSTILE[1]
    page.click("#nav >> text=Topics")
    page.locator("main a", has_text=HOSTILE[2]).click()
    page.wait_for_selector("h1.name")
    assert page.inner_text("h1.name") == HOSTILE[2]
    assert page.locator("main img, main script, main [onload], main [onerror]").count() == 0
    assert one.said == []


def test_a_message_is_found_and_who_has_passed_it(opened: Any, bridge: Bridge) -> None:
    page = opened().go(bridge, "search")
    page.fill("#search [name=topic]", "orders")
    page.fill("#search [name=value]", "k1")
    page.keyboard.press("Enter")
    page.wait_for_selector(".message")
    assert page.inner_text(".message pre") == '{\n  "order": 1\n}'
    page.wait_for_selector(".way")
    ways = page.locator(".way").all_inner_texts()
    stops = page.locator(".way >> nth=0 >> li").all_inner_texts()
    assert ["made" in stops[0], "stored" in stops[1]] == [True, True]
    (way,) = [text for text in ways if text.startswith("fulfilment")]
    assert "passed" in way
    assert "whether it was handled is not known without traces" in way
    page.click(".message summary")
    page.keyboard.press("r")
    page.wait_for_timeout(300)
    assert page.locator(".message details[open]").count() == 1, "what people opened stays open"
    page.check("#search [value=id]")
    page.fill("#search [name=value]", "no such id")
    page.click("#search .main")
    page.wait_for_selector("text=No such message")
    page.check("#search [value=time]")
    page.click("#search .main")
    page.wait_for_selector(".message >> nth=9")


def test_a_tail_shows_what_comes_until_it_is_paused(
    opened: Any, cluster: PageCluster, bridge: Bridge
) -> None:
    def send(number: int) -> None:
        with bridge.hold():
            body = b'{"tail": %d}' % number
            cluster.send_one("broker-a", "orders", body, f"KEYS\x01t{number}\x02TAGS\x01<b>\x02")
        page.clock.fast_forward(2100)

    one = opened()
    one.page.clock.install()
    page = one.go(bridge, "topic/orders")
    page.click("main >> text=live tail")
    page.wait_for_selector(".tail li")
    send(1)
    page.wait_for_selector(".tail li:first-child >> text=t1")
    page.click(".tail li:first-child summary")
    assert page.inner_text(".tail [open] pre") == '{\n  "tail": 1\n}'
    send(2)
    page.wait_for_selector(".tail li:first-child >> text=t2")
    assert page.inner_text(".tail [open] pre") == '{\n  "tail": 1\n}', "it stays open"
    page.click("#pause")
    page.wait_for_timeout(200)
    before = sum("/api/tail" in url for url in one.asked)
    send(3)
    page.wait_for_timeout(200)
    assert sum("/api/tail" in url for url in one.asked) == before
    page.click("#pause")
    page.wait_for_selector(".tail li:first-child >> text=t3")
    page.fill("#tail [name=key]", "t2")
    page.click("#tail .main")
    page.wait_for_selector(".tail li:only-child >> text=t2")
    page.fill("#tail [name=topic]", "no-such-topic")
    page.click("#tail .main")
    page.wait_for_selector("text=there is no topic")
    # The console names each refused request of a page; nothing else is said.
    assert [text for text in one.said if "status of 400" not in text] == []


def test_plots_go_back_thirty_days(opened: Any, cluster: PageCluster, bridge: Bridge) -> None:
    board: Any = cluster.servers["broker-a"]._status.page._answers.board  # type: ignore[union-attr]
    now_ms = cluster.hosts["broker-a"].now_ms()
    for number in range(700):
        at_ms = now_ms - (700 - number) * 3_600_000
        board.past.rings[2].add(at_ms, {"put_rate": 100.0 + number})
    page = opened().go(bridge)
    page.click("[data-hours='720']")
    page.wait_for_selector("h2:text('The last 30 days')")
    chart = page.locator("[data-key=rates] .chart")
    page.wait_for_selector("[data-key=rates] .chart[tabindex]")
    assert "the last 30 days, points of an hour" in chart.get_attribute("aria-label")
    marks = page.locator("[data-key=rates] .x span").all_inner_texts()
    assert all(re.fullmatch(r"\d\d-\d\d", mark) for mark in marks), marks
    assert page.locator("[data-hours]").all_inner_texts() == ["1 h", "12 h", "7 d", "30 d"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_scrolls_one_way_only(opened: Any, bridge: Bridge, scheme: str) -> None:
    one = opened(viewport=PHONE, color_scheme=scheme, has_touch=True)
    for section in [*SECTIONS, "group/fulfilment", "topic/orders", "tail/orders"]:
        page = one.go(bridge, section)
        page.wait_for_timeout(50)
        wide = page.evaluate("() => document.documentElement.scrollWidth")
        assert wide <= PHONE["width"], section


COLOURS, NAMES = (
    Path(__file__).with_name(name).read_text().partition("\n")[2]
    for name in ("colours.js", "names.js")
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrasts_and_names(opened: Any, bridge: Bridge, scheme: str) -> None:
    """WCAG 2.2 AA: 1.4.3, 4.1.2, 1.1.1, 3.1.1."""
    one = opened(color_scheme=scheme, reduced_motion="reduce")
    for section in [*SECTIONS, "group/fulfilment", "topic/orders", "tail/orders"]:
        page = one.go(bridge, section)
        page.wait_for_selector("main h1")
        assert page.evaluate(COLOURS) == [], section
        assert page.evaluate(NAMES) == [], section


def test_light_and_dark_by_system_and_by_switch(opened: Any, bridge: Bridge) -> None:
    one = opened(color_scheme="dark")
    page = one.go(bridge)
    background = "() => getComputedStyle(document.documentElement).backgroundColor"
    dark = page.evaluate(background)
    page.click("#theme")
    light = page.evaluate(background)
    assert light != dark
    page.reload()
    page.wait_for_selector(".tiles")
    assert page.evaluate(background) == light
    page.keyboard.press("d")
    assert page.evaluate(background) == dark


def test_the_keyboard_is_enough(opened: Any, bridge: Bridge) -> None:
    page = opened().go(bridge)
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.className") == "skip"
    order = []
    for _ in range(9):
        page.keyboard.press("Tab")
        order.append(page.evaluate("() => document.activeElement.textContent"))
        outline = page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
    assert order[0] == "Overview"
    assert order[7] == "Search"
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_selector("h1:text('Topics')")
    page.keyboard.press("/")
    page.keyboard.type("orders")
    page.wait_for_selector("main tbody tr:only-child")
    assert page.evaluate("() => document.activeElement.id") == "find"
    page.keyboard.press("Escape")
    page.wait_for_selector("main tbody tr:nth-child(3)")
    page.locator("#nav a").first.focus()
    page.keyboard.press("?")
    page.wait_for_selector("#help[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("#help[open]", state="detached")
    page.keyboard.press("g")
    page.keyboard.press("o")
    page.wait_for_selector(".chart[tabindex]")
    page.locator(".chart[tabindex]").first.focus()
    page.keyboard.press("ArrowLeft")
    assert "/s" in page.inner_text(".when:not([hidden])")


def test_what_is_shown_stays_where_it_is(opened: Any, bridge: Bridge) -> None:
    """New figures come without losing focus or what was typed."""
    page = opened().go(bridge, "topics")
    page.wait_for_selector("main tbody tr")
    page.fill("#find", "ord")
    page.wait_for_selector("main tbody tr:only-child")
    page.focus("main tbody a")
    page.keyboard.press("r")
    page.wait_for_timeout(300)
    assert page.evaluate("() => document.activeElement.textContent") == "orders"
    assert page.input_value("#find") == "ord"


def test_a_server_that_went_away_and_came_back(opened: Any, bridge: Bridge) -> None:
    page = opened().go(bridge)
    bridge.is_down = True
    try:
        page.keyboard.press("r")
        page.wait_for_timeout(200)
        page.keyboard.press("r")
        page.wait_for_selector("#banner:not([hidden])")
        assert "broker-a does not answer" in page.inner_text("#banner")
        assert "takes messages" in page.inner_text("main")
    finally:
        bridge.is_down = False
    page.click("#banner button")
    page.wait_for_selector("#banner", state="hidden")


def test_who_has_the_token_is_let_in(opened: Any, cluster: PageCluster) -> None:
    """The signature of the page's own HMAC is the one that the server makes; the token stays."""
    bridge = Bridge(cluster, cluster.hosts["guarded"])
    one = opened()
    sent: list[str] = []
    one.page.on("request", lambda request: sent.append(request.post_data or ""))
    one.page.goto(bridge.url)
    one.page.fill("#entry [name=secret]", "another one, of some length")
    one.page.click("#entry .main")
    one.page.wait_for_selector("text=the token is wrong")
    one.page.fill("#entry [name=secret]", TOKEN)
    one.page.click("#entry .main")
    one.page.wait_for_selector(".tiles")
    assert TOKEN not in "".join(sent)
    one.page.click("#leave")
    one.page.wait_for_selector("#entry")
    assert one.page.locator(".tiles").count() == 0
    long = "a secret that is longer than a block of the hash: " + "\u20ac" * 20
    signed = one.page.evaluate(
        "async ([secret, text]) => (await import('/page/sign.js')).sign(secret, text)",
        [long, DOMAIN + "x" * 200],
    )
    assert signed == Signer(long, is_long=True).sign((DOMAIN + "x" * 200).encode())


def test_nobody_is_asked_while_nobody_looks(opened: Any, bridge: Bridge) -> None:
    one = opened()
    page = one.go(bridge)
    page.evaluate(
        "() => { Object.defineProperty(document, 'visibilityState', { value: 'hidden' });"
        " document.dispatchEvent(new Event('visibilitychange')); }"
    )
    page.wait_for_timeout(300)
    before = len(one.asked)
    page.wait_for_timeout(6000)
    assert len(one.asked) == before
