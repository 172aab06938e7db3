"""The prompt on a simulated pair. docs/testing.md, "A playground"."""

import re
import subprocess
import sys
from pathlib import Path

from rmq_ha.client import SendStatus
from rmq_ha.testing.playground import BANNER, Playground

DOCUMENT = Path(__file__).parents[3] / "docs" / "testing.md"


def test_a_pair_is_killed_cut_and_wound() -> None:
    lines: list[str] = []
    playground = Playground(1, lines.append)
    try:
        assert playground.send("Orders", "one").send_status is SendStatus.SEND_OK
        playground.consume("Orders")
        playground.wind(10)
        assert [line.split(maxsplit=2)[2] for line in lines] == ["Orders 0/0: b'one'"]
        playground.cut("broker-1", "broker-2")
        later = playground.send("Orders", b"two", delay_level=5, tags="a", keys="k")
        assert later.send_status is not SendStatus.SEND_OK
        assert playground.messages("Orders") == [b"one"]
        playground.heal()
        playground.wind(70)
        assert set(playground.messages("Orders")) == {b"one", b"two"}  # a retry may double it
        playground.world.fail_over()
        lines.clear()
        playground.state()
        assert "  broker-1: killed" in lines
        assert any("broker-2: ASYNC_MASTER, log to" in line for line in lines)
    finally:
        playground.world.close()


def test_the_banner_names_words_that_there_are() -> None:
    playground = Playground(1, print)
    words = {*playground.words(), "world"}
    playground.wind(1)  # the machines start
    playground.world.close()
    named = {a or b for a, b in re.findall(r"^  (\w+)|(?<=\) )(\w+)\(", BANNER, re.MULTILINE)}
    assert "send" in named
    assert named <= words
    assert words - named <= {"now", "timedelta"}


def test_what_the_document_types_is_answered_so() -> None:
    shown = DOCUMENT.read_text().split("## A playground")[1]
    typed = re.findall(r"^    >>> (.*)$", shown, re.MULTILINE)
    answers = re.findall(r"^    (?!>>>)\s*(\S.*)$", shown, re.MULTILINE)
    command = [sys.executable, "-m", "rmq_ha.testing.playground"]
    done = subprocess.run(
        command, input="\n".join(typed), text=True, capture_output=True, timeout=60, check=True
    )
    for answer in answers:
        assert answer in done.stdout
    assert "log to" in done.stdout
    assert "Traceback" not in done.stderr
