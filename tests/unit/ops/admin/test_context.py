"""Clusters by name: which value wins, who may read them, and the commands."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.ops.admin.contexts import Contexts, merged
from rmq_ha.ops.admin.main import main
from rmq_ha.ops.admin.options import Options, common_options, current_options
from rmq_ha.ops.admin.session import USAGE

PROD = {"namesrv": "p:1", "access_key": "ops", "secret_key": "opssecret", "tls_ca": "/ca.pem"}


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "made" / "contexts.json")


def typed(file: str, *words: str, **environ: str) -> Result:
    env = {"RMQHA_CONTEXT_FILE": file, **environ}
    return CliRunner().invoke(main, ["context", *words], env=env)


def options_of(file: str, *arguments: str, **environ: str) -> Options:
    """What another command line comes to."""
    seen: list[Options] = []

    @click.command()
    @common_options
    def leaf() -> None:
        seen.append(current_options())

    env = {"RMQHA_CONTEXT_FILE": file, **environ}
    done = CliRunner().invoke(leaf, list(arguments), env=env)
    if not seen:
        raise click.UsageError(done.output)
    return seen[0]


def add_prod(file: str, *more: str) -> Result:
    words = ("add", "prod", "-n", "p:1", "--access-key", "ops", "--tls-ca", "/ca.pem", *more)
    return typed(file, *words, RMQHA_SECRET_KEY="opssecret")


def test_a_context_is_kept_privately_and_used(file: str) -> None:
    done = add_prod(file)
    assert done.exit_code == 0, done.output
    assert "opssecret" not in done.output
    assert stat.S_IMODE(Path(file).stat().st_mode) == 0o600
    assert stat.S_IMODE(Path(file).parent.stat().st_mode) == 0o700
    found = options_of(file, "--context", "prod")
    assert (found.namesrv, found.use_tls) == ("p:1", True)
    assert found.credentials is not None
    assert found.credentials.secret_key == "opssecret"
    assert options_of(file).namesrv == ""
    assert typed(file, "use", "prod").exit_code == 0
    assert options_of(file).namesrv == "p:1"
    typed(file, "use", "--none")
    assert options_of(file).namesrv == ""


def test_secrets_are_shown_only_when_asked_for(file: str) -> None:
    add_prod(file, "--use")
    listed = typed(file, "list", "--json")
    (row,) = json.loads(listed.output)["rows"]
    assert row == {
        "context": "prod",
        "used": True,
        "namesrv": "p:1",
        "account": "ops",
        "tls": True,
    }
    assert "opssecret" not in listed.output + typed(file, "show", "prod").output
    assert "opssecret" in typed(file, "show", "prod", "--show-secrets").output


def test_a_file_that_others_may_read_is_refused(file: str) -> None:
    add_prod(file)
    Path(file).chmod(0o640)
    done = typed(file, "list")
    assert (done.exit_code, f"chmod 600 {file}" in done.output) == (USAGE, True)
    with pytest.raises(click.UsageError, match="chmod 600"):
        options_of(file, "-n", "a:1")
    Path(file).chmod(0o600)
    Path(file).write_text("[]")
    with pytest.raises(ConfigurationError, match="no file of contexts"):
        Contexts.read(file)


def test_what_is_there_is_replaced_or_deleted_only_when_agreed(file: str) -> None:
    add_prod(file, "--use")
    before = Path(file).read_text()
    assert add_prod(file).exit_code == USAGE  # nobody is there to ask
    assert typed(file, "add", "prod", "-n", "q:1", "--dry-run").exit_code == 0
    assert typed(file, "add", "new", "-n", "q:1", "--dry-run").exit_code == 0
    assert typed(file, "delete", "prod", "--dry-run").exit_code == 0
    assert Path(file).read_text() == before
    assert typed(file, "add", "prod", "-n", "q:1", "--yes").exit_code == 0
    assert Contexts.read(file).known["prod"] == {"namesrv": "q:1"}
    assert typed(file, "delete", "prod", "--yes").exit_code == 0
    assert Contexts.read(file) == Contexts()
    for words in (("show", "prod"), ("use", "prod"), ("delete", "prod", "--yes"), ("use",)):
        assert typed(file, *words).exit_code == USAGE
    with pytest.raises(click.UsageError, match="there is no context prod"):
        options_of(file, "--context", "prod")


@pytest.mark.parametrize(
    "words", [("--access-key", "ops"), ("--tls-cert", "c.pem", "-n", "a:1"), ("--tls",)]
)
def test_halves_are_no_context(file: str, words: tuple[str, ...]) -> None:
    assert typed(file, "add", "prod", *words).exit_code == USAGE
    assert not Path(file).exists()


def test_certificate_and_key_come_from_one_place() -> None:
    context = {"namesrv": "p:1", "tls_cert": "c", "tls_key": "k", "tls_ca": "a"}
    line = {"tls_cert": "mine"}
    assert merged(line, line.keys(), context, is_named=True) == {
        "namesrv": "p:1",
        "tls_cert": "mine",
        "tls_ca": "a",
    }
    assert merged({"tls_key": "e"}, (), context, is_named=False) == {
        "namesrv": "p:1",
        "tls_key": "e",
        "tls_ca": "a",
    }


@pytest.mark.parametrize(
    ("line", "environ", "is_named", "expected"),
    [
        ({}, {}, False, PROD),
        ({"namesrv": "l:1"}, {}, True, PROD | {"namesrv": "l:1"}),
        ({}, {"namesrv": "e:1"}, True, PROD),
        # the account of the context in use is for its own cluster
        ({"namesrv": "l:1"}, {}, False, {"namesrv": "l:1"}),
        ({}, {"namesrv": "e:1"}, False, {"namesrv": "e:1"}),
        # account and secret come from one place
        ({"access_key": "me"}, {}, True, {"access_key": "me", "namesrv": "p:1"}),
        ({}, {"access_key": "me", "secret_key": "s"}, True, PROD),
        (
            {},
            {"access_key": "me", "secret_key": "s"},
            False,
            PROD | {"access_key": "me", "secret_key": "s"},
        ),
    ],
)
def test_who_wins(line: Any, environ: Any, is_named: bool, expected: Any) -> None:
    found = dict(merged({**environ, **line}, line.keys(), PROD, is_named=is_named))
    found.pop("tls_ca", None)
    assert found == {key: value for key, value in expected.items() if key != "tls_ca"}
