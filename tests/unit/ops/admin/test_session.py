"""What all commands share: options, contexts, who asks whom, and how a command ends."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from rich.console import Console
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger, globalLogBeginner

from rmq_ha.base.errors import CannotDecide
from rmq_ha.base.remoting.signing import Credentials
from rmq_ha.base.wire.codes import RequestCode
from rmq_ha.base.wire.command import RemotingCommand
from rmq_ha.client.rules.errors import BrokerRefused
from rmq_ha.ops.admin import session as session_module
from rmq_ha.ops.admin.contexts import Contexts
from rmq_ha.ops.admin.main import main
from rmq_ha.ops.admin.options import Options, common_options, current_options
from rmq_ha.ops.admin.output import Output, OutputRows
from rmq_ha.ops.admin.points_in_time import PointInTime, WhenType
from rmq_ha.ops.admin.session import FAILED, USAGE, Session, hint, run_in_reactor
from rmq_ha.testing.host import World
from tests.unit.client.sim_cluster import SimCluster
from tests.unit.ops.admin.admin_kit import say
from tests.unit.ops.admin.typing_kit import Typist


def options_of(*arguments: str, **environ: str) -> Options:
    """What a command line comes to, without any context."""
    seen: list[Options] = []

    @click.command()
    @common_options
    def leaf() -> None:
        seen.append(current_options())

    env = {"RMQHA_CONTEXT_FILE": "/nowhere/contexts.json", **environ}
    done = CliRunner().invoke(leaf, list(arguments), env=env)
    if not seen:
        raise click.UsageError(done.output)
    return seen[0]


def test_each_option_is_what_the_client_gets() -> None:
    own = options_of(
        *("-n", "a:1", "--timeout", "1.5", "--access-key", "k", "--secret-key", "s"),
        *("--security-token", "t", "--tls-ca", "ca", "--tls-cert", "c", "--tls-key", "y", "-v"),
    )
    assert own == Options(
        namesrv="a:1",
        credentials=Credentials("k", "s", "t"),
        use_tls=True,
        tls={
            "tls.client.trustCertPath": "ca",
            "tls.client.authServer": "true",
            "tls.client.certPath": "c",
            "tls.client.keyPath": "y",
            "tls.test.mode.enable": "false",
        },
        timeout_ms=1500,
        verbose=True,
    )
    config = own.client_config()
    assert (config.mq_client_api_timeout_ms, config.connect_timeout_ms) == (1500, 1500)
    assert config.credentials == own.credentials
    assert (config.use_tls, config.tls) == (True, own.tls)
    assert options_of("--timeout", "30").client_config().connect_timeout_ms == 3000
    assert options_of("--timeout", "0.001").timeout_ms == 1
    assert options_of() == Options()
    assert options_of().timeout_ms == 5000
    own = options_of("--tls-cert", "c", "--tls-key", "y")
    assert "tls.client.authServer" not in own.tls


@pytest.mark.parametrize(
    "line", [("--secret-key", "s"), ("--access-key", "k"), ("--tls-key", "k"), ("--tls-cert", "c")]
)
def test_halves_are_refused(line: tuple[str, str]) -> None:
    with pytest.raises(click.UsageError, match="together"):
        options_of(*line)


def test_nobody_is_asked_by_two_name_servers_options() -> None:
    """The one nearest to the command wins, and the command line over the environment."""
    assert options_of("-n", "a:1", "-n", "b:1", NAMESRV_ADDR="e:1").namesrv == "b:1"
    assert options_of("-n", "a:1", NAMESRV_ADDR="e:1").namesrv == "a:1"


def session(as_json: bool = True, **options: Any) -> tuple[Session, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    output = Output(as_json, Console(file=out, width=200), Console(file=err, width=200))
    return Session(World(0).add("x").seams, Options(**options), output), out, err


def test_a_name_server_is_needed_but_where_addresses_are_known() -> None:
    cluster = SimCluster("one")
    asked = RemotingCommand(RequestCode.GET_BROKER_CONFIG)
    refused = RemotingCommand(9999)

    async def call(session: Session) -> None:
        answer = await session.call(cluster.address("one"), asked)
        session.output.line("", {"code": answer.code})

    async def exchange(session: Session) -> None:
        answer = await session.exchange(cluster.address("one"), refused)
        session.output.line("", {"code": answer.code})

    async def refuse(session: Session) -> None:
        await session.call(cluster.address("one"), refused)

    async def client(session: Session) -> None:
        await session.client()

    for namesrv in ("", cluster.namesrv.address):
        assert say(cluster, call, namesrv=namesrv).json == {"code": 0}
        assert say(cluster, exchange, namesrv=namesrv).json == {"code": 3}
        said = say(cluster, refuse, namesrv=namesrv)
        assert (said.code, json.loads(said.err)["code"]) == (FAILED, 3)
        assert say(cluster, client, namesrv=namesrv).code == (USAGE if not namesrv else 0)


def test_one_client_does_all_and_is_stopped_at_the_end() -> None:
    cluster = SimCluster("one")
    made: list[Any] = []

    async def work(session: Session) -> int:
        made.extend([await session.client(), await session.direct(), await session.client()])
        await session.call(cluster.address("one"), RemotingCommand(RequestCode.GET_BROKER_CONFIG))
        assert made[0].is_running
        return 7

    assert say(cluster, work).code == 7
    assert len(set(map(id, made))) == 1
    assert not made[0].is_running


def test_tls_without_a_root_is_warned_of_once() -> None:
    cluster = SimCluster("one")

    async def work(session: Session) -> None:
        await session.direct()
        await session.direct()

    said = say(cluster, work, use_tls=True)
    assert said.err.count("nobody checks who the servers are") == 1
    said = say(cluster, work, use_tls=True, tls={"tls.test.mode.enable": "true"})
    assert said.err == ""
    assert say(cluster, work).err == ""


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (CancelledError(), FAILED, "CancelledError"),
        (CannotDecide("cannot see"), FAILED, "cannot see"),
        (click.ClickException("wrong"), FAILED, "wrong"),
        (click.UsageError("wrong"), USAGE, "wrong"),
        (BrokerRefused(17, "no", "a:1"), FAILED, "a:1 answered TOPIC_NOT_EXIST (17): no"),
    ],
)
def test_what_went_wrong_is_told_and_ends_it(error: Exception, code: int, text: str) -> None:
    async def work(_: Session) -> None:
        raise error

    said = say(SimCluster(), work)
    assert said.code == code
    told = json.loads(said.err)
    assert (told["exit_code"], text in told["error"]) == (code, True)
    assert told.get("code") == getattr(error, "code", None)


def test_what_is_no_failure_of_a_command_is_not_hidden() -> None:
    async def work(_: Session) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        say(SimCluster(), work)


class Reactor:
    """:ivar before: what has to be over before it stops."""

    def __init__(self) -> None:
        self.before: list[Any] = []

    def addSystemEventTrigger(self, phase: str, event: str, call: Any) -> None:
        assert (phase, event) == ("before", "shutdown")
        self.before.append(call)


def test_a_command_ends_before_the_reactor_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C fires `interrupted` once, and the reactor waits until the command is over."""
    reactor, started = Reactor(), []
    flushed: list[bool] = []
    monkeypatch.setattr(session_module, "make_steady", lambda _: None)
    monkeypatch.setattr(session_module, "make_host", lambda _: World(0).add("x").seams)
    monkeypatch.setattr(session_module, "react", lambda start: started.append(start(reactor)))
    monkeypatch.setattr(sys.stdout, "flush", lambda: flushed.append(True), raising=False)
    goes_on: Deferred[None] = Deferred()
    sessions: list[Session] = []

    async def work(session: Session) -> int:
        sessions.append(session)
        await session.interrupted
        await goes_on
        return 5

    run_in_reactor(work, Options(as_json=True))
    (interrupt,) = reactor.before
    over = interrupt()
    assert sessions[0].interrupted.called
    assert interrupt() is over
    assert not over.called
    flushed.clear()
    goes_on.callback(None)
    assert over.called
    assert flushed == [True], "what was said leaves before the process does"
    failures: list[Any] = []
    started[0].addErrback(lambda failure: failures.append(failure.value))
    (end,) = failures
    assert (type(end), end.code) == (SystemExit, 5)


def test_what_the_client_logs_is_shown_if_somebody_wants_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[Any] = []
    monkeypatch.setattr(
        globalLogBeginner,
        "beginLoggingTo",
        lambda observers, redirectStandardIO: begun.append((observers, redirectStandardIO)),
    )
    monkeypatch.setattr(session_module, "react", lambda _: None)
    run_in_reactor(lambda _: None, Options())  # type: ignore[arg-type, return-value]
    assert begun == []
    run_in_reactor(lambda _: None, Options(verbose=True))  # type: ignore[arg-type, return-value]
    (((observer,), redirects),) = begun
    assert redirects is False
    log = Logger("client", observer=observer)
    log.info("seen")
    log.debug("not seen")
    assert "seen" in (told := capsys.readouterr().err)
    assert "not seen" not in told


@pytest.mark.parametrize(
    ("text", "known", "advice"),
    [
        ("the request is not signed", {"has_account": False}, "give an account"),
        ("the request is not signed", {"has_account": True}, ""),
        (
            "Connection was closed cleanly.",
            {"use_tls": False},
            "the server may take TLS only: try --tls",
        ),
        ("Connection was closed cleanly.", {"use_tls": True}, ""),
        ("The topic[T] is conflict with system topic.", {}, "RocketMQ itself uses this topic"),
        ("none makes topics by itself", {}, "rmqha-admin topic create TOPIC"),
        ("something else", {}, ""),
    ],
)
def test_what_to_try_next_depends_on_who_asked(
    text: str, known: dict[str, bool], advice: str
) -> None:
    told = hint(text, **({"has_account": False, "use_tls": False} | known))
    assert told.startswith(f"; {advice}") if advice else told == ""
    account = Credentials("k", "s") if known.get("has_account") else None
    own, _, _ = session(credentials=account, use_tls=known.get("use_tls", False))
    assert own.with_hint(text) == text + told


def test_times_at_their_edges() -> None:
    kind = WhenType()
    assert kind.get_metavar() == "earliest|latest|TIME|10m"
    assert kind.convert(PointInTime(5), None, None) == PointInTime(5)
    assert kind.convert("9" * 15, None, None) == PointInTime(int("9" * 15))
    for text in ("9" * 16, "²", "yesterday", "2026-13-01"):
        with pytest.raises(click.BadParameter, match="is no time"):
            kind.convert(text, None, None)


def test_a_file_of_contexts_is_what_it_should_be() -> None:
    decode = Contexts.decode
    assert decode(b"{}", "f") == Contexts()
    data = {"used": 7, "contexts": {"a": {"namesrv": "x:1", "unknown": 1}}}
    assert decode(json.dumps(data).encode(), "f") == Contexts("7", {"a": {"namesrv": "x:1"}})
    with pytest.raises(Exception, match=r"no context b \(known: a, c\)"):
        Contexts(None, {"c": {}, "a": {}}).get("b")
    with pytest.raises(Exception, match=r"no context b \(known: none\)"):
        Contexts().get("b")
    for text in (b"", b"[]", b"7", b'{"contexts": [1]}', b'{"contexts": {"a": 7}}', b"\xff"):
        with pytest.raises(Exception, match="f is no file of contexts"):
            decode(text, "f")


def test_a_context_is_kept_as_it_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = ("--context-file", str(tmp_path / "c.json"))
    typed = Typist(SimCluster(), monkeypatch)
    monkeypatch.chdir(tmp_path)
    line = "context add prod --access-key ops --tls-cert c.pem --tls-key k.pem --timeout 3"
    told = typed(f"{line} --access-key ops", *at)
    assert (told.code, "go together" in told.err) == (USAGE, True), "nobody can be asked"
    monkeypatch.setattr("rmq_ha.ops.admin.context.is_interactive", lambda: True)
    told = typed(line, *at, given="opssecret\n")
    assert told.code == 0, told
    assert told.lines == [
        {
            "context": "prod",
            "is_new": True,
            "namesrv": typed.cluster.namesrv.address,
            "access_key": "ops",
            "secret_key": "(hidden)",
            "tls_cert": str(tmp_path / "c.pem"),
            "tls_key": str(tmp_path / "k.pem"),
            "timeout": 3.0,
        }
    ]
    shown = typed.does("context show prod --show-secrets", *at).lines[0]
    assert shown["secret_key"] == "opssecret"
    (row,) = typed.does("context list", *at).rows
    assert row["tls"] is True
    assert row["used"] is False
    told = typed("context add other --secret-key s", *at)
    assert (told.code, "go together" in told.err) == (USAGE, True)
    told = typed("context add other --tls-cert c", *at)
    assert (told.code, "go together" in told.err) == (USAGE, True)
    told = typed("context add other", *at, namesrv="")
    assert (told.code, "a context needs name servers" in told.err) == (USAGE, True)


def test_a_context_is_replaced_or_deleted_only_when_agreed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = ("--context-file", str(tmp_path / "c.json"))
    typed = Typist(SimCluster(), monkeypatch)
    for name in ("a", "b"):
        typed.does(f"context add {name} --use", *at)
    assert typed.does("context list", *at).rows[1]["used"] is True
    typed.sits_there()
    told = typed("context delete a", *at, given="n\n")
    assert (told.code, "nothing was changed" in told.err) == (FAILED, True)
    told = typed("context add a --timeout 7", *at, given="n\n")
    assert (told.code, "Replace the context a?" in told.err) == (FAILED, True)
    assert "timeout" not in typed.does("context show a", *at).lines[0]
    assert typed("context add a --timeout 7", *at, given="y\n").code == 0
    assert typed.does("context show a", *at).lines[0]["timeout"] == 7
    told = typed.does("context delete a", *at, given="y\n")
    shown, done = told.lines
    assert (shown["context"], shown["namesrv"]) == ("a", typed.cluster.namesrv.address)
    assert done == {"context": "a", "deleted": True}
    assert [row["used"] for row in typed.does("context list", *at).rows] == [True], "b stays"
    assert typed.does("context use --none", *at).lines == [{"used": None}]
    assert typed.does("context use b", *at).lines == [{"used": "b"}]
    typed.does("context delete b --yes", *at)
    assert json.loads((tmp_path / "c.json").read_text()) == {"used": None, "contexts": {}}
    (tmp_path / "c.json").write_text("[")
    for line in ("context list", "context show a", "context use a", "context delete a --yes"):
        told = typed(line, *at)
        assert (told.code, "is no file of contexts" in told.err) == (USAGE, True), line
    (tmp_path / "c.json").unlink()
    (tmp_path / "c.json").mkdir()
    told = typed("context add c", *at)
    assert told.code == USAGE


def test_a_word_that_is_no_command_has_its_neighbours_told() -> None:
    done = CliRunner().invoke(main, ["topics"])
    assert (done.exit_code, "Did you mean topic or top?" in done.output) == (USAGE, True)
    done = CliRunner().invoke(main, ["qqq"])
    assert (done.exit_code, "-h lists all of them" in done.output) == (USAGE, True)
    assert CliRunner().invoke(main, ["verify_offsets", "--help"]).exit_code == 0


def test_a_table_that_is_asked_for_what_is_unknown() -> None:
    out = io.StringIO()
    output = Output(False, Console(file=out, width=20))
    output.table("T", ("name", "n", "is"), [["a", None, True], ["b", 2.5, False]], more=None)
    assert [line.rstrip() for line in out.getvalue().splitlines()] == [
        "T",
        "name    n  is",
        "a       -  yes",
        "b     2.5  no",
        "more: -",
    ]
    out.truncate(0)
    out.seek(0)
    output.fields({"a": 1, "long": "x" * 30})
    output.say("s" * 30)
    assert out.getvalue().splitlines() == ["a     1", "long  " + "x" * 30, "s" * 30]
    with output.screen() as screen:
        screen.show([OutputRows("R", ("c",), [["v"]])], [])
    assert out.getvalue().splitlines()[-3:-1] == ["R", "c"]


def test_what_is_for_programs_has_nothing_else() -> None:
    out, err = io.StringIO(), io.StringIO()
    output = Output(True, Console(file=out), Console(file=err, force_terminal=True))
    output.say("x")
    output.note("x")
    with output.progress("working", 1) as steps:
        steps.advance()
    assert list(output.track("asking", [1, 2])) == [1, 2]
    assert (out.getvalue(), err.getvalue()) == ("", "")
    output.line("text", {"ä": Path("p")})
    assert out.getvalue() == '{"ä": "p"}\n'
    with output.screen() as screen:
        screen.show([OutputRows("rows", ("c",), [["v"]])], ["p"])
    assert json.loads(out.getvalue().splitlines()[-1]) == {"rows": [{"c": "v"}], "problems": ["p"]}


def test_bars_count_and_only_the_outer_one_is_shown() -> None:
    err = io.StringIO()
    console = Console(file=err, force_terminal=True, width=100)
    output = Output(False, Console(file=io.StringIO()), console)
    with output.progress("outer", 2) as outer, output.progress("inner", 9) as inner:
        inner.advance()
        outer.advance(2)
    text = err.getvalue()
    assert "outer" in text
    assert "2/2" in text
    assert "inner" not in text
    assert list(output.track("second", [1, 2, 3])) == [1, 2, 3]
    assert "3/3" in err.getvalue()
