"""Documents that teach: each example in them is run, on a simulated clock or a broker in here."""

import asyncio
import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module, invalidate_caches
from inspect import iscoroutinefunction
from pathlib import Path
from textwrap import dedent
from time import monotonic, sleep
from typing import Any

import pytest

from rmq_ha.client import ClientConfig
from rmq_ha.client.aio import connect
from rmq_ha.testing.client_world import ClientWorld
from tests.unit.client.whole_broker import Bench

DOCS = Path(__file__).parents[3] / "docs"
EXAMPLE = re.compile(r"(?:^ {4}# (\w+)\.py\n(?:(?: {4}.*)?\n)+)", re.MULTILINE)
PAGES = ("tutorial", "howto", "guarantees", "migration")
LIMIT_S = 20.0


def examples(page: str) -> dict[str, str]:
    text = (DOCS / f"{page}.md").read_text() + "\n"
    return {found[1]: dedent(found[0]) for found in EXAMPLE.finditer(text)}


def all_tests() -> Iterator[tuple[str, str, str]]:
    for page in PAGES:
        for module, text in examples(page).items():
            for name in re.findall(r"^(?:async )?def (test_\w+)", text, re.MULTILINE):
                yield page, module, name


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Writes the examples of a page as its readers do, and has them imported."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)

    def written(page: str) -> None:
        for module, text in examples(page).items():
            (tmp_path / f"{module}.py").write_text(text)
        invalidate_caches()

    yield written
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize(("page", "module", "name"), list(all_tests()))
def test_an_example(page: str, module: str, name: str, modules: Callable[[str], Any]) -> None:
    """As `rmqha_world` runs it."""
    modules(page)
    test = getattr(import_module(module), name)
    options: dict[str, Any] = {}
    for mark in getattr(test, "pytestmark", []):
        options |= mark.kwargs
    with ClientWorld(**options) as world:
        if iscoroutinefunction(test):
            world.run(test(world))
        else:
            test(world)


def test_the_shop_is_small_in_all_of_its_forms() -> None:
    """What the client takes off its users: at most 40 lines, and names of two modules."""
    found = examples("tutorial")
    for module in ("shop", "shop_twisted", "shop_threads"):
        lines = [line for line in found[module].splitlines() if line.strip()]
        assert len(lines) <= 40, module
        ours = set(re.findall(r"^from (rmq_ha[\w.]*) import", found[module], re.MULTILINE))
        assert ours == {"rmq_ha.client"}, module


def test_each_row_beside_others_is_shown() -> None:
    """By a test, or by an example that a test runs; whoever has none says so."""
    text = (DOCS / "client.md").read_text()
    table = re.findall(r"^\| .*$", text[text.index("## Beside others") :].split("\n## ")[0], re.M)
    assert len(table) > 25
    headings = {page: (DOCS / f"{page}.md").read_text() for page in ("howto", "tutorial")}
    for row in table[1:]:
        shown = row.split("|")[-2].strip()
        tests = re.findall(r"`tests/[\w/]+\.py::\w+`", shown)  # test_spec.py looks for these
        pages = re.findall(r'(howto|tutorial)\.md, "?([^";]+)', shown)
        assert tests or pages or shown == "nothing: see below", row
        for page, heading in pages:
            assert re.search(rf"^## {heading}", headings[page], re.MULTILINE), row


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientConfig]:
    bench = Bench(tmp_path_factory.mktemp("broker"))
    yield ClientConfig(
        namesrv_addr=bench.namesrv_addr,
        poll_name_server_interval_ms=200,
        heartbeat_broker_interval_ms=500,
    )
    bench.close()


def test_the_shop_on_uvloop(
    settings: ClientConfig, modules: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole program: it ends when an order is shipped."""
    uvloop = pytest.importorskip("uvloop", reason="pip install 'rmq-ha[test]'")
    modules("tutorial")
    main = import_module("main")
    monkeypatch.setattr(main, "connect", lambda: connect(settings))  # routes are looked for sooner
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(main.main(), LIMIT_S))


def test_the_shop_with_threads(settings: ClientConfig, modules: Callable[[str], Any]) -> None:
    modules("tutorial")
    until = monotonic() + LIMIT_S
    orders = [{"number": "1", "price": 3}, {"number": "2", "price": 0}]
    with import_module("shop_threads").ThreadShop(settings, retries=0) as shop:
        for order in orders:
            shop.place(order)
        while not (shop.shipped and shop.dead) and monotonic() < until:
            sleep(0.02)
    assert (shop.shipped, shop.dead) == (["1"], ["2"])
