"""
What the page costs a real broker, and how soon a browser paints it.

    python -m tests.page.cost [--pages 10] [--seconds 60]

Counted are processor seconds of the broker's process, without a page and with so many open, so
that a busy machine matters little; the paint is what the browser says of itself.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from rmq_ha.base.host.ports import free_ports
from rmq_ha.testing.real_brokers import ServerProcess
from tests.page.browser import browser, why_not

LIMIT = 0.01
"""Of a core, for all pages."""
_SETTINGS = """\
bindAddress=127.0.0.1
brokerIP1=127.0.0.1
brokerIP2=127.0.0.1
brokerName=broker-a
mappedFileSizeCommitLog=67108864
storePathRootDir=store
"""


def painted(page: Any, url: str) -> float:
    """Milliseconds from the navigation to the first paint with content."""
    page.goto(url)
    page.wait_for_selector(".tiles")
    assert page.evaluate("() => document.visibilityState") == "visible"
    entries = "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"
    return float(page.evaluate(entries))


def measure(server: ServerProcess, url: str, pages: int, seconds: float) -> bool:
    """
    Print it.

    :returns: it is below the limit.
    """
    assert server.process is not None
    process = psutil.Process(server.process.pid)

    def spend(what: str) -> float:
        began, before = time.monotonic(), process.cpu_times()
        time.sleep(seconds)
        now = process.cpu_times()
        used = now.user + now.system - before.user - before.system
        share = used / (time.monotonic() - began)
        print(f"{what}: {share:.2%} of a core", flush=True)
        return float(share)

    time.sleep(5)
    alone = spend("no page")
    with browser() as chrome:
        first = chrome.new_page()
        paints = sorted(painted(first, url) for _ in range(5))
        low, middle, high = paints[0], paints[2], paints[-1]
        print(f"first contentful paint: {middle:.0f} ms (of 5: {low:.0f} to {high:.0f})")
        for _ in range(pages - 1):
            painted(chrome.new_context().new_page(), url)  # one that is behind another rests
        cost = spend(f"{pages} pages") - alone
        print(f"{pages} pages cost {cost:.2%} of a core; the limit is {LIMIT:.0%}")
        busy = ", ".join(f"{load:.1f}" for load in psutil.getloadavg())
        print(f"load of this machine over 1, 5 and 15 minutes: {busy}")
    return cost < LIMIT


def main() -> None:
    """As a command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60)
    arguments = parser.parse_args()
    if why_not():
        sys.exit(why_not())
    with tempfile.TemporaryDirectory() as folder:
        base = free_ports(5)
        server = ServerProcess(Path(folder) / "broker", "rmqha")
        server.begin(
            f"{_SETTINGS}listenPort={base + 2}\nembeddedNamesrvPort={base + 1}\n"
            f"metricsPort={base + 4}\n"
        )
        try:
            server.wait()
            url = f"http://127.0.0.1:{base + 4}/"
            is_good = measure(server, url, arguments.pages, arguments.seconds)
        finally:
            server.end()
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
