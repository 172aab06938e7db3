"""Options, times and output of `rmqha-admin`."""

import io
import json
import sys
from contextlib import suppress
from datetime import datetime
from importlib import import_module
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from rmq_ha.base.errors import ConfigurationError, RemotingTimeout
from rmq_ha.client.rules.errors import BrokerRefused, NoNameServer, NoRoute
from rmq_ha.ops.admin.main import COMMANDS, main
from rmq_ha.ops.admin.message_text import body_text, body_values, time_text
from rmq_ha.ops.admin.options import Options, common_options, current_options
from rmq_ha.ops.admin.output import Output
from rmq_ha.ops.admin.points_in_time import PointInTime, WhenType
from rmq_ha.ops.admin.session import FAILED, NO_ANSWER, NOT_FOUND, USAGE, NothingFound, exit_code


def options_of(*arguments: str, **environ: str) -> Options:
    """What a command line comes to."""
    seen: list[Options] = []

    @click.group()
    @common_options
    def group() -> None: ...

    @group.command()
    @common_options
    def leaf() -> None:
        seen.append(current_options())

    done = CliRunner().invoke(group, list(arguments), env=environ)
    if not seen:
        raise click.UsageError(done.output)
    return seen[0]


def test_options_stand_before_or_after_the_command() -> None:
    """The one nearer to the command wins; the command line wins over the environment."""
    assert options_of("-n", "a:1", "leaf").namesrv == "a:1"
    assert options_of("leaf", "-n", "a:1").namesrv == "a:1"
    assert options_of("-n", "a:1", "leaf", "-n", "b:1").namesrv == "b:1"
    assert options_of("leaf", NAMESRV_ADDR="e:1").namesrv == "e:1"
    assert options_of("-n", "a:1", "leaf", NAMESRV_ADDR="e:1").namesrv == "a:1"
    assert options_of("--json", "leaf", "--timeout", "0.5").timeout_ms == 500


def test_accounts_and_certificates() -> None:
    """Halves are refused; a CA means TLS with verified servers."""
    given = options_of("leaf", RMQHA_ACCESS_KEY="a", RMQHA_SECRET_KEY="s")
    assert given.credentials is not None
    assert given.credentials.secret_key == "s"
    with pytest.raises(click.UsageError, match="together"):
        options_of("leaf", "--access-key", "a")
    with pytest.raises(click.UsageError, match="together"):
        options_of("leaf", "--tls-cert", "c.pem")
    tls = options_of("leaf", "--tls-ca", "ca.pem")
    assert tls.use_tls
    assert tls.tls["tls.client.authServer"] == "true"
    assert options_of("leaf", "--tls").tls == {}
    assert not tls.client_config().sign_only_over_tls
    signs = ("--access-key", "k", "--secret-key", "s", "--sign-only-over-tls")
    config = options_of("leaf", *signs).client_config()
    assert (config.sign_only_over_tls, config.sign_time) == (True, True)


def test_every_command_is_where_the_table_says() -> None:
    """And has a help of its own."""
    for place in COMMANDS.values():
        module, _, attribute = place.where.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        assert command.help
    shown = CliRunner().invoke(main, ["--help"]).output
    assert all(name in shown for name in COMMANDS)
    assert CliRunner().invoke(main, ["nonsense"]).exit_code == USAGE


def when(text: str) -> PointInTime:
    return WhenType().convert(text, None, None)


def test_times() -> None:
    """Ends of queues, so long ago, ISO 8601, ms."""
    assert when("earliest").to_ms(5000) == 0
    assert when("latest").to_ms(5000) == -1
    assert when("2s").to_ms(5000) == 3000
    assert when("2h").to_ms(5000) == 1
    assert when("1700000000000").to_ms(5) == 1700000000000
    assert when("2026-01-31T12:00:00+01:00").to_ms(5) == 1769857200000
    local = datetime(2026, 1, 31, 12).timestamp() * 1000
    assert when("2026-01-31T12:00:00").to_ms(5) == local


@given(st.text(max_size=30))
def test_any_text_is_a_time_or_refused(text: str) -> None:
    """With the one error that click knows."""
    with suppress(click.BadParameter):
        assert isinstance(when(text), PointInTime)


def output(as_json: bool) -> tuple[Output, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    return Output(as_json, Console(file=out, width=40), Console(file=err, width=200)), out, err


def test_tables_for_people_and_programs() -> None:
    """Nothing is cut in a narrow terminal; JSON has every value as it is."""
    rows: list[list[Any]] = [["x" * 50, 1, None, True], ["y", 22, "[b]", False]]
    people, out, _ = output(False)
    people.table("T", ("a", "b", "c", "d"), rows, lag=3)
    text = out.getvalue()
    assert "x" * 50 in text
    assert "[b]" in text
    assert "lag: 3" in text
    people.table("T", ("a", "b", "c", "d"), rows, done=False)
    assert out.getvalue().endswith("not done yet\n"), "it is asked, or done, next"
    people.table("T", ("a", "b", "c", "d"), rows, deleted=False)
    assert out.getvalue().endswith("not deleted yet\n")
    programs, out, _ = output(True)
    programs.table("T", ("a", "b", "c", "d"), rows, lag=3)
    value = json.loads(out.getvalue())
    assert value["rows"][0] == {"a": "x" * 50, "b": 1, "c": None, "d": True}
    assert value["lag"] == 3


@pytest.mark.parametrize(
    ("values", "cell"), [([10_000, 7], "    7"), ([10_000, 0], "    0"), ([10_000, "x"], "x")]
)
def test_numbers_stand_below_each_other(values: list[Any], cell: str) -> None:
    """One that is 0, too."""
    people, out, _ = output(False)
    people.table("T", ("count",), [[value] for value in values])
    assert out.getvalue().splitlines()[-1].rstrip() == cell


@pytest.mark.parametrize("as_json", [True, False])
def test_a_line_leaves_at_once(as_json: bool) -> None:
    """Whoever reads it through a pipe sees it before the next one comes."""
    raw = io.BytesIO()
    pipe = io.TextIOWrapper(io.BufferedWriter(raw))
    Output(as_json, Console(file=pipe)).line("told", {"what": "told"})
    assert b"told" in raw.getvalue()


def test_errors_go_to_stderr() -> None:
    """As JSON if wanted; notes are for people only."""
    people, out, err = output(False)
    people.error("no [route]")
    people.note("note")
    assert "error: no [route]" in err.getvalue()
    assert "note" in err.getvalue()
    programs, out, err = output(True)
    programs.error("no", code=1)
    programs.warn("careful")
    programs.note("note")
    with programs.progress("working", 3) as steps:
        steps.advance()
    assert [json.loads(line) for line in err.getvalue().splitlines()] == [
        {"error": "no", "code": 1},
        {"warning": "careful"},
    ]
    assert out.getvalue() == ""


def test_bodies() -> None:
    """Text if it is, and always one line."""
    assert body_values(b"a\nb") == {"body": "a\nb"}
    assert body_values(b"\xff") == {"body_base64": "/w=="}
    assert body_text(b"a\nb") == "a b"
    assert body_text(b"\xff\x00") == "(2 bytes) ff00"
    assert "(1000 bytes)" in body_text(b"x" * 1000)
    assert time_text(0) == "-"
    assert time_text(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert time_text(sys.maxsize) == str(sys.maxsize)


def test_exit_codes() -> None:
    """Scripts can tell what to do."""
    assert exit_code(NoRoute("T", "no")) == NOT_FOUND
    assert exit_code(NothingFound("no")) == NOT_FOUND
    assert exit_code(NoNameServer("no")) == NO_ANSWER
    assert exit_code(RemotingTimeout("no")) == NO_ANSWER
    assert exit_code(ConfigurationError("no")) == USAGE
    assert exit_code(BrokerRefused(1, "no", "a")) == FAILED
