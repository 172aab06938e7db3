"""Whoever changes something for all shows it and asks; only a yes changes anything."""

from __future__ import annotations

import pytest

from rmq_ha.ops.admin.session import FAILED, USAGE
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.typing_kit import Typist

ACCOUNTS = """
accounts:
- {accessKey: adminadmin, secretKey: adminsecret, admin: true}
- {accessKey: useruser, secretKey: usersecret}
"""
LINES: dict[str, tuple[str, list[int]]] = {
    "acl set useruser --default-topic SUB": ("Set useruser on 2 brokers?", [50, 50]),
    "acl white 10.1.1.1": ("Change them on 2 brokers?", [53, 53]),
    "acl delete useruser": ("Delete useruser on 2 brokers?", [51, 51]),
    "broker clean DefaultCluster queues": ("Have 2 brokers do this now?", [306, 306]),
    "broker config set DefaultCluster fileReservedTime=5 deleteWhen=03": (
        "Change 4 settings of 2 brokers?",
        [25, 25],
    ),
    "broker writes one off": ("Turn writes to one off?", []),
    "broker writes one on": ("Turn writes to one on?", []),
    "kv set colour green": ("Change colour at 1 name servers?", []),
    "kv delete size": ("Change size at 1 name servers?", []),
    "namesrv config set orderMessageEnable=true": ("Change 1 settings of 1 name servers?", []),
    "dlq resend g": ("Send 3 messages to g again?", [310, 15] * 3),
    "group clone g other": ("Set 4 offsets of other?", [15] * 4),
    "group update g --retries 3": ("Change g on 2 brokers?", [200, 200]),
    "reset-offset Orders -g g --to earliest": ("Reset g in Orders?", [15] * 4),
    "topic update Orders --queues 8": ("Change Orders on 2 brokers?", [17, 17]),
    "topic delete Orders": ("Delete Orders with 6 messages?", [215, 215]),
    "group delete g": ("Delete g and these topics?", [207, 215, 215] * 2),
}
"""What is asked, and the requests that then reach brokers and change something."""
CHANGING = {15, 17, 25, 50, 51, 53, 200, 207, 215, 222, 306, 310}


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Typist:
    """Two brokers with accounts, a topic, a group that has consumed it, dead letters, a key."""
    cluster = SimCluster()
    for name in ("one", "two"):
        cluster.add_guarded(name, ACCOUNTS)
    monkeypatch.setenv("RMQHA_ACCESS_KEY", "adminadmin")
    monkeypatch.setenv("RMQHA_SECRET_KEY", "adminsecret")
    typed = Typist(cluster, monkeypatch)
    typed.does("topic create Orders --queues 2")
    typed.does("topic create %DLQ%g --queues 1 --on one")
    typed.does("produce Orders x --quiet --count 6")
    typed.does("produce %DLQ%g dead --quiet --count 3")
    typed.does("consume Orders -g g --until-end")
    typed.does("kv set size large --yes")
    return typed


def changes(typed: Typist) -> list[int]:
    return [code for code in typed.asked if code in CHANGING]


def test_a_script_that_gives_no_answer_is_refused_before_anybody_is_asked(typed: Typist) -> None:
    typed.asked.clear()
    for line in LINES:
        told = typed(line)
        assert told.code == USAGE, line
        assert "give --yes, or --dry-run" in told.err
    assert typed.asked == []


def test_a_no_changes_nothing(typed: Typist) -> None:
    """Nor does who goes away without a word."""
    typed.sits_there()
    typed.asked.clear()
    for number, (line, (question, _)) in enumerate(LINES.items()):
        told = typed(line, given="" if number % 3 else "n\n")
        assert (told.code, question in told.err) == (FAILED, True), (line, told)
        assert "nothing was changed" in told.err
    assert changes(typed) == []


def test_a_dry_run_asks_nobody_and_changes_nothing(typed: Typist) -> None:
    typed.sits_there()
    typed.asked.clear()
    for line, (question, _) in LINES.items():
        told = typed(f"{line} --dry-run", given="y\n")
        assert (told.code, question in told.err) == (0, False), (line, told)
    assert changes(typed) == []


def test_a_yes_changes_it_on_each(typed: Typist) -> None:
    typed.sits_there()
    for line, (question, codes) in LINES.items():
        typed.asked.clear()
        told = typed(line, given="y\n")
        assert (told.code, question in told.err) == (0, True), (line, told)
        assert changes(typed) == codes, line
