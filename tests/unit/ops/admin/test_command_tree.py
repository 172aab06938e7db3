"""All commands of `rmqha-admin`, in one table: what they change, and whether they may take long.

What is destructive asks, shows what it would do, and can be scripted; what is long shows how far
it is. A command that is not in the table fails here.
"""

from __future__ import annotations

import inspect
import sys
from enum import Enum
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from rmq_ha.ops.admin import broker, cluster, group, ha, topic
from rmq_ha.ops.admin.main import main
from rmq_ha.ops.admin.options import Options
from rmq_ha.ops.admin.output import Output
from rmq_ha.ops.admin.session import USAGE, Session, perform
from tests.unit.client.sim_cluster import SimCluster


class Kind(Enum):
    """
    What a command does.

    LOOKS: it asks. ADDS: something new, where nothing is; nobody is asked, `--dry-run` shows it.
    CHANGES: what is there; it asks. SENDS: messages, as an application. OWN: files of whoever types
    it, which the line names.
    """

    LOOKS = "looks"
    ADDS = "adds"
    CHANGES = "changes"
    SENDS = "sends"
    OWN = "own"


class Row(NamedTuple):
    """
    :ivar is_long: it grows with brokers, queues, messages or the disk, or waits for somebody.
    :ivar line: what of CHANGES is typed behind its name.
    """

    kind: Kind
    is_long: bool
    line: str = ""


def looks(is_long: bool = True) -> Row:
    return Row(Kind.LOOKS, is_long)


def changes(line: str, is_long: bool = True) -> Row:
    return Row(Kind.CHANGES, is_long, line)


TABLE = {
    "acl delete": changes("ACCOUNT"),
    "acl export": Row(Kind.OWN, False),
    "acl import": changes("FILE"),
    "acl list": looks(),
    "acl set": changes("ACCOUNT"),
    "acl show": looks(),
    "acl version": looks(),
    "acl white": changes("10.1.1.1"),
    "audit-messages": looks(),
    "backup": Row(Kind.OWN, True),
    "bundle": Row(Kind.OWN, True),
    "broker clean": changes("b files"),
    "broker config get": looks(),
    "broker config set": changes("b fileReservedTime=12"),
    "broker list": looks(),
    "broker status": looks(),
    "broker writes": changes("b off"),
    "cluster export": Row(Kind.OWN, True),
    "cluster import": changes("FILE"),
    "cluster list": looks(),
    "cluster ping": Row(Kind.SENDS, True),
    "completion": looks(is_long=False),
    "connections": looks(),
    "consume": Row(Kind.SENDS, True),
    "context add": changes("c", is_long=False),
    "context delete": changes("c", is_long=False),
    "context list": looks(is_long=False),
    "context show": looks(is_long=False),
    "context use": Row(Kind.OWN, False),
    "demote": changes("-c FILE"),
    "dledger convert": Row(Kind.OWN, True),
    "dledger status": looks(is_long=False),
    "dledger transfer": changes("--to n1 --group g --peers n0-h:1;n1-h:2"),
    "dlq list": looks(),
    "dlq resend": changes("g"),
    "dlq show": looks(),
    "doctor": looks(),
    "group clients": looks(),
    "group clone": changes("from g"),
    "group create": Row(Kind.ADDS, True),
    "group delete": changes("g"),
    "group list": looks(),
    "group show": looks(),
    "group update": changes("g"),
    "ha status": looks(),
    "handover": changes("b"),
    "init": Row(Kind.ADDS, False),
    "kv delete": changes("k"),
    "kv list": looks(),
    "kv set": changes("k v"),
    "lag": looks(),
    "message copy": changes("ID --to T -t T", is_long=False),
    "message resend": changes("ID -t T", is_long=False),
    "message show": looks(),
    "message trace": looks(),
    "namesrv config get": looks(),
    "namesrv config set": changes("orderMessageEnable=true"),
    "produce": Row(Kind.SENDS, True),
    "promote": changes("-c FILE"),
    "reset-offset": changes("T -g g --to latest"),
    "restore": Row(Kind.ADDS, True),
    "route": looks(is_long=False),
    "setaside list": looks(is_long=False),
    "setaside resend": changes("DIR"),
    "setaside show": looks(),
    "snapshot": Row(Kind.OWN, True),
    "stats": looks(),
    "store dump": looks(),
    "store export-timer": changes("--config FILE"),
    "store fetch": Row(Kind.OWN, True),
    "store repair": changes("--config FILE"),
    "store verify": looks(),
    "tail": looks(),
    "group inflight": looks("G"),
    "timer levels": looks(),
    "timer status": looks(),
    "timer topics": looks(),
    "top": looks(),
    "topic allocate": looks(is_long=False),
    "topic create": Row(Kind.ADDS, True),
    "topic delete": changes("T"),
    "topic list": looks(),
    "topic status": looks(),
    "topic update": changes("T"),
    "transaction list": looks(),
    "transaction status": looks(),
    "verify-fleet": looks(),
    "verify-offsets": looks(),
    "verify-replica": looks(),
}
SHOWS_ITSELF = {"setaside show", "store dump", "consume", "tail", "top"}
"""What they do is what comes out, line by line."""


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> dict[str, click.Command]:
    """All commands that do something, by what is typed."""
    if not isinstance(command, click.Group):
        return {" ".join(path): command}
    context = click.Context(main)
    found: dict[str, click.Command] = {}
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        found |= leaves(below, (*path, name))
    return found


LEAVES = leaves(main)


def options_of(name: str) -> set[str]:
    return {text for item in LEAVES[name].params for text in item.opts}


def of_kind(kind: Kind) -> list[str]:
    return sorted(name for name, row in TABLE.items() if row.kind is kind)


def test_every_command_is_in_the_table() -> None:
    assert set(LEAVES) == set(TABLE)


def is_one_of_several(item: click.Parameter) -> bool:
    """A flag that says which, like `init --pair`: those that go together have one name."""
    return isinstance(getattr(item, "flag_value", None), str)


@pytest.mark.parametrize("name", sorted(TABLE))
def test_no_two_options_of_a_command_have_one_name(name: str) -> None:
    """Click would give both what was given to one: a new secret would sign, say."""
    names = [item.name for item in LEAVES[name].params if not is_one_of_several(item)]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("name", of_kind(Kind.CHANGES))
def test_what_changes_something_asks_and_can_be_scripted(name: str, tmp_path: Path) -> None:
    """Where nobody can be asked it refuses, and says with which options it would not have to."""
    assert {"--yes", "--dry-run"} <= options_of(name)
    path = tmp_path / "broker.properties"
    path.write_text("brokerName=b\n")
    places = {"FILE": str(path), "DIR": str(tmp_path)}
    words = [places.get(word, word) for word in TABLE[name].line.split()]
    contexts = ["--context-file", str(tmp_path / "contexts.json"), "-n", "127.0.0.1:1"]
    made = CliRunner().invoke(main, ["context", "add", "c", "--yes", *contexts])
    assert made.exit_code == 0, made.output
    result = CliRunner().invoke(main, [*name.split(), *words, *contexts])
    assert result.exit_code == USAGE, (result.output, result.exception)
    assert "--yes" in result.output
    assert "--dry-run" in result.output


@pytest.mark.parametrize("name", of_kind(Kind.ADDS))
def test_what_adds_something_shows_it_first_if_it_is_asked_to(name: str) -> None:
    assert "--dry-run" in options_of(name)
    assert "--yes" not in options_of(name), "it asks nobody"


@pytest.mark.parametrize("name", of_kind(Kind.LOOKS))
def test_what_only_looks_asks_nothing(name: str) -> None:
    assert not {"--yes", "--dry-run"} & options_of(name)


@pytest.mark.parametrize("name", sorted(n for n, row in TABLE.items() if row.is_long))
def test_what_takes_long_has_a_bar(name: str) -> None:
    """Or rows that come as it goes."""
    if name in SHOWS_ITSELF:
        return
    callback: Any = LEAVES[name].callback
    module = sys.modules[inspect.unwrap(callback).__module__]
    seen = [module] + [
        sys.modules[item.__module__]
        for item in vars(module).values()
        if getattr(item, "__module__", "").startswith("rmq_ha.ops.admin")
    ]
    texts = [inspect.getsource(item) for item in seen]
    assert any(call in text for text in texts for call in (".track(", ".progress("))


@pytest.mark.parametrize(
    ("work", "title"),
    [
        (lambda s: broker.show_brokers(s, ""), "asking brokers"),
        (cluster.show_clusters, "asking brokers"),
        (lambda s: topic.show_topics(s, ""), "asking brokers"),
        (lambda s: group.show_groups(s, ""), "asking brokers"),
        (lambda s: ha.show_pairs(s, ""), "asking brokers"),
        (lambda s: cluster.show_times(s, "", 2), "asking"),
    ],
)
def test_on_a_terminal_the_bar_is_seen_and_goes_away(work: Any, title: str) -> None:
    """Also when the command fails inside of it: the cursor comes back, the error stands last."""
    known = SimCluster("one", "two")
    for server, is_good in ((known.namesrv.address, True), ("10.9.9.9:9876", False)):
        err = StringIO()
        consoles = [Console(file=StringIO(), width=200), Console(file=err, force_terminal=True)]
        host = known.world.hosts.get("admin") or known.world.add("admin")
        options = Options(namesrv=server, timeout_ms=500)
        session = Session(host.seams, options, Output(False, *consoles))
        assert (known.wait(perform(session, work), 60) == 0) is is_good
        text = err.getvalue()
        assert (title in text) is is_good
        assert text.count("\x1b[?25l") == text.count("\x1b[?25h"), "a cursor that stays hidden"


def test_an_error_inside_of_a_bar_leaves_no_bar_behind() -> None:
    err = StringIO()
    output = Output(False, Console(file=StringIO()), Console(file=err, force_terminal=True))
    rows = output.track("asking", [1, 2, 3])
    assert next(iter(rows)) == 1
    output.error("it broke")
    text = err.getvalue()
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1
    assert text.rstrip().endswith("it broke")
