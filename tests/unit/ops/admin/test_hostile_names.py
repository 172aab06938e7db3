"""Names, tags, keys and remarks of others do nothing to the terminal of who looks at them."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from rmq_ha.base.model.printable import is_one_line
from rmq_ha.base.model.status import BrokerRole
from rmq_ha.base.model.topic_config import SubscriptionGroupConfig, TopicConfig
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.ops.admin.output import Output, OutputRows
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.test_agreed_lines import CHANGES, LINES
from tests.unit.ops.admin.typing_kit import Typist

TITLE = "\x1b]0;owned\x07"
HOSTILE = f"{TITLE}\x1b[2J\x9b31m\u202eexe\x7f[red]x\r\b"
WORST = f"{HOSTILE}\nerror: a line of its own\u2028\ud800"


def is_harmless(text: str) -> bool:
    return all(is_one_line(line) for line in text.split("\n"))


def test_every_command_beside_hostile_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tail` and `message show` wrote tags and keys raw: PUB on one topic cleared the screen."""
    cluster = SimCluster("one")
    cluster.add("slave", BrokerRole.SLAVE, broker={"broker_name": "one", "broker_id": 1})
    cluster.run(12)
    typed = Typist(cluster, monkeypatch)
    typed.does("topic create Orders --queues 2")
    typed.does("topic create %DLQ%g --queues 1")
    hostile = ["--tags", HOSTILE, "--key", "k1", "--key", HOSTILE, "--property", f"a={HOSTILE}"]
    typed.does("produce Orders --quiet", *hostile, given=f"{HOSTILE}\n")
    typed.does("produce %DLQ%g --quiet", *hostile, given="dead\n")
    typed.does("consume Orders -g g --count 1")
    broker = cluster.brokers["one"]
    for name in (HOSTILE, WORST):
        broker.topics._table[name] = TopicConfig(name, 1, 1, 6)
        broker.groups._table[name] = SubscriptionGroupConfig(name)
        broker.consumer_offsets.commit(name, "Orders", 0, 1)
    cluster.run(61)
    shown = 0
    for line in LINES + CHANGES:
        for how in (["--json"], []):
            told = typed.as_typed(line, *how)
            assert is_harmless(told.out + told.err), line
            shown += "owned" in told.out + told.err
            for row in told.out.splitlines() if how else []:
                json.loads(row)
    assert shown > 10, "others' names are what these commands show"
    typed.refuses("one", RequestCode.GET_BROKER_RUNTIME_INFO, WORST)
    for how in (["--json"], []):
        told = typed.as_typed("broker status one", *how)
        assert "owned" in told.out + told.err
        assert is_harmless(told.out + told.err)


class Told:
    """What an `Output` for people, or for programs, writes to both of its ends."""

    def __init__(self, as_json: bool) -> None:
        self.files = StringIO(), StringIO()
        consoles = [Console(file=file, width=300, soft_wrap=True) for file in self.files]
        self.output = Output(as_json, *consoles)

    @property
    def text(self) -> str:
        return "".join(file.getvalue() for file in self.files)


WAYS: dict[str, Any] = {
    "table": lambda output: output.table(WORST, [WORST, "n"], [[WORST, 1]], more=WORST),
    "fields": lambda output: output.fields({WORST: WORST, "list": [WORST]}),
    "line": lambda output: output.line(WORST, {WORST: WORST}),
    "say": lambda output: output.say(WORST),
    "note": lambda output: output.note(WORST),
    "warn": lambda output: output.warn(WORST),
    "error": lambda output: output.error(WORST, value=WORST),
}


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_the_one_place_where_it_goes_out(way: str, as_json: bool) -> None:
    told = Told(as_json)
    WAYS[way](told.output)
    assert is_harmless(told.text)
    if not (as_json and way in ("say", "note")):
        assert "owned" in told.text
        assert "[red]x" in told.text, "nor is it read as the markup of our own colours"
    assert not [line for line in told.text.split("\n") if line.startswith("error: a line of")]
    for line in told.text.splitlines() if as_json else []:
        assert WORST in json.dumps(json.loads(line), ensure_ascii=False) or json.loads(line)


def test_screens_and_bars() -> None:
    """Of `top`, and of whatever takes long."""
    told = Told(as_json=False)
    with told.output.screen() as screen:
        screen.show([OutputRows(WORST, [WORST], [[WORST]])], [WORST])
    consoles = [Console(file=file, force_terminal=True, width=300) for file in told.files]
    output = Output(False, *consoles)
    with output.screen() as screen:
        screen.show([OutputRows(WORST, [WORST], [[WORST]])], [WORST])
    with output.progress(WORST, 3) as steps:
        steps.advance()
    assert TITLE not in told.text
    assert "\x9b" not in told.text
    assert "\u202e" not in told.text
