"""--check makes the plugins: what fails is named, and nothing is started."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import twisted.plugins
from rmq_ha.ops.app import tap
from rmq_ha.ops.app.options import BrokerOptions

MODULE = "rmqha_checked_plugins"
SOURCE = """
from zope.interface import implementer
from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.interfaces import (
    ICommitLogDispatcher, IDispatcherPlugin, IHookPlugin, IMessageStore, IMessageStorePlugin,
    ISendMessageHook,
)

MADE = []


@implementer(ICommitLogDispatcher, ISendMessageHook)
class Guest:
    def dispatch(self, requests): raise AssertionError("nothing is dispatched by --check")
    def start(self): raise AssertionError("nothing is started by --check")


@implementer(IDispatcherPlugin)
class Counter:
    name = "counter"

    def make_dispatcher(self, broker):
        if broker.option("counter.path") is None:
            raise ConfigurationError("counter.path is missing: the file to count in")
        MADE.append("counter")
        return Guest()


@implementer(IHookPlugin)
class Broken:
    name = "broken"

    def make_hook(self, broker):
        return {}["nothing"]


@implementer(IHookPlugin)
class Formless:
    name = "formless"

    def make_hook(self, broker):
        return object()


@implementer(IMessageStorePlugin)
class Around:
    name = "around"

    def wrap_store(self, broker, store):
        assert IMessageStore.providedBy(store)
        MADE.append("around")
        return store


plugins = [Counter(), Broken(), Formless(), Around()]
counter, broken, formless, around = plugins
"""


@pytest.fixture
def made(tmp_path: Path) -> Iterator[list[str]]:
    """What the installed plugins made."""
    folder = tmp_path / "site" / "twisted" / "plugins"
    folder.mkdir(parents=True)
    (folder / f"{MODULE}.py").write_text(SOURCE)
    twisted.plugins.__path__.append(str(folder))
    name = f"twisted.plugins.{MODULE}"
    __import__(name)
    found: list[str] = sys.modules[name].MADE
    yield found
    twisted.plugins.__path__.remove(str(folder))
    del sys.modules[name]


def check(tmp_path: Path, *settings: str) -> object:
    options = BrokerOptions()
    store = f"storePathRootDir={tmp_path}/store"
    options.parseOptions(
        ["--check", *[word for item in (store, *settings) for word in ("--set", item)]]
    )
    with pytest.raises(SystemExit) as left:
        tap.makeService(options)
    assert not (tmp_path / "store").exists()
    return left.value.code


def test_every_plugin_that_fails_is_named(tmp_path: Path, made: list[str]) -> None:
    """Each with its key and the reason, whether it is missing, refuses, or breaks."""
    reason = check(
        tmp_path,
        "dispatcherPlugIn=counter,none-such",
        "hookPlugIn=broken,formless",
        "messageStorePlugIn=around",
    )
    lines = str(reason).splitlines()
    assert lines[0] == (
        "rmqha: dispatcherPlugIn=counter: counter.path is missing: the file to count in"
    )
    assert lines[1].startswith("no IDispatcherPlugin called 'none-such' is installed")
    assert lines[2].startswith("hookPlugIn=broken: the plugin of twisted.plugins.")
    assert lines[2].endswith("failed: KeyError: 'nothing'")
    assert lines[3].startswith("hookPlugIn=formless: plugin 'formless'")
    assert len(lines) == 4
    assert made == ["around"]


def test_plugins_are_made_and_not_started(
    tmp_path: Path, made: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """What is well is not mentioned; an option that nobody asked for is."""
    settings = ("dispatcherPlugIn=counter", "messageStorePlugIn=around", "counter.path=x")
    assert check(tmp_path, *settings, "counter.pth=y") == 0
    printed = capsys.readouterr().out
    assert sorted(made) == ["around", "counter"]
    assert (
        "# counter.pth: plugin counter did not ask for this option; did you mean counter.path?"
        in printed
    )


def test_the_built_in_ones_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A classic broker and a member of a group."""
    assert check(tmp_path) == 0
    group = (
        "enableDLegerCommitLog=true",
        "dLegerGroup=g",
        "dLegerPeers=n0-127.0.0.1:40911;n1-127.0.0.1:40912;n2-127.0.0.1:40913",
        "dLegerSelfId=n0",
    )
    assert check(tmp_path, *group) == 0
    assert "port 40911" in capsys.readouterr().out
