"""
Screenshots of the page over a believable cluster.

    python -m tests.page.screenshots [--into docs/images] [--minutes 62]

Two widths, light and dark; each below 150 KB.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from tests.page.browser import browser, why_not
from tests.page.cluster import TOKEN, Bridge, believable

MOST_BYTES = 150_000
VIEWS = {
    "overview": "",
    "groups": "#/groups",
    "group": "#/group/reporting",
    "search": "#/search?by=key&topic=orders",
}
SIZES = {"1440": (1440, 1000), "390": (390, 844)}


def enter(page: Any, url: str) -> None:
    """Sign in with the token."""
    page.goto(url)
    page.fill("#entry input[name=secret]", TOKEN)
    page.click("#entry button")
    page.wait_for_selector(".tiles")


def take(into: Path, minutes: int, only: str = "") -> list[Path]:
    """All of them; the files."""
    into.mkdir(parents=True, exist_ok=True)
    cluster = believable(minutes, "10.20.0")
    bridge = Bridge(cluster, cluster.hosts["broker-a"])
    made = []
    with browser() as chrome:
        for size, (width, height) in SIZES.items():
            for scheme in ("light", "dark"):
                context = chrome.new_context(
                    viewport={"width": width, "height": height}, color_scheme=scheme
                )
                page = context.new_page()
                enter(page, bridge.url)
                for name, place in VIEWS.items():
                    if only and only != name:
                        continue
                    path = into / f"page-{name}-{size}-{scheme}.png"
                    page.goto(bridge.url + place)
                    page.wait_for_selector("main[aria-busy]", state="detached")
                    if name == "overview":
                        page.wait_for_selector("main tbody tr:nth-child(3)")
                    page.wait_for_timeout(300)
                    if name == "search":
                        page.fill("#search [name=value]", "order-47111")
                        page.click("#search button.main")
                        page.wait_for_selector(".message")
                    page.screenshot(path=str(path), full_page=name == "overview" and size != "390")
                    made.append(path)
                context.close()
    bridge.close()
    return made


def compressed(path: Path) -> None:
    """256 colours are enough for what has few."""
    from PIL import Image

    with Image.open(path) as image:
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    """As a command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=Path("build/page"))
    parser.add_argument("--minutes", type=int, default=62)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    if why_not():
        sys.exit(why_not())
    for path in take(arguments.into, arguments.minutes, arguments.only):
        compressed(path)
        size = path.stat().st_size
        print(f"{path}  {size / 1000:.0f} KB{'  TOO LARGE' if size > MOST_BYTES else ''}")


if __name__ == "__main__":
    main()
