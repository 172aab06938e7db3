"""What a start looks at, and what it makes of it: names of brokers, keys, the log's file."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.controller import ControllerConfiguration
from rmq_ha.base.config.namesrv_configuration import NamesrvConfiguration
from rmq_ha.base.errors import ConfigurationError
from rmq_ha.ops.app import log
from rmq_ha.ops.app.check import check_tls
from rmq_ha.ops.app.make import known_brokers
from rmq_ha.ops.app.status.traffic import MOST_CLIENT_KINDS, OTHERS, _kind, _most_frequent
from twisted import internet


def test_who_is_named_in_the_settings_is_a_broker_of_this_cluster() -> None:
    configuration = BrokerConfiguration()
    assert known_brokers(configuration) == []
    configuration.broker.namesrv_addr = "ns1:9876; [::1]:9876"
    configuration.store.ha_master_address = "master:10912"
    configuration.store.dleger_peers = "n0-m0:40911;n1-m1:40911"
    configuration.controller.controller_dleger_peers = "n0-c0:9878;n1-c1:9878"
    assert known_brokers(configuration) == ["c0", "c1", "ns1", "::1", "master", "m0", "m1"]
    controller = ControllerConfiguration()
    controller.controller.controller_dleger_peers = "n0-c0:9878"
    assert known_brokers(controller) == ["c0"]


@pytest.mark.parametrize("wanted", [False, True])
def test_who_demands_tls_has_to_offer_it(wanted: bool) -> None:
    broker, namesrv = BrokerConfiguration(), NamesrvConfiguration()
    broker.ours.acl_requires_tls = namesrv.namesrv.acl_requires_tls = wanted
    for configuration in (broker, namesrv):
        configuration.plugin_options["tls.server.mode"] = "disabled"
        if wanted:
            with pytest.raises(ConfigurationError, match="aclRequiresTls=true"):
                check_tls(configuration)
        else:
            assert check_tls(configuration) == []
    controller = ControllerConfiguration()
    controller.plugin_options["tls.server.mode"] = "disabled"
    assert check_tls(controller) == []


@pytest.fixture
def _usr1() -> Iterator[None]:
    kept = signal.getsignal(signal.SIGUSR1)
    yield
    signal.signal(signal.SIGUSR1, kept)


@pytest.mark.usefixtures("_usr1")
def test_a_signal_that_somebody_has_stays_his(tmp_path: Path) -> None:
    for take in (lambda: log._rotating_file(str(tmp_path / "log"), 3), log._survive_sigusr1):
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        take()
        assert signal.getsignal(signal.SIGUSR1) != signal.SIG_DFL
        signal.signal(signal.SIGUSR1, own)
        take()
        assert signal.getsignal(signal.SIGUSR1) is own


@pytest.mark.usefixtures("_usr1")
def test_a_signal_has_the_log_rotated_in_the_reactors_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler may come in the middle of a line that is being written."""
    calls: list[Any] = []
    reactor = SimpleNamespace(callFromThread=calls.append)
    monkeypatch.setattr(internet, "reactor", reactor, raising=False)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    file = log._rotating_file(str(tmp_path / "log"), 3)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert calls == [file.rotate]


def own(*_: Any) -> None: ...


def test_kinds_of_clients_are_bounded_whatever_they_say_of_themselves() -> None:
    client: Any = SimpleNamespace(language="X" * 30, version=399, sdk="")
    language, version = _kind(client)
    assert language == "x" * 20
    assert version == version.lower() != ""
    few = Counter({("java", "v4"): 3, ("cpp", "v2"): 1})
    assert _most_frequent(few, 2) == [(("java", "v4"), 3), (("cpp", "v2"), 1)]
    many = Counter({(str(number), "v", "m"): 2 for number in range(MOST_CLIENT_KINDS + 3)})
    found = _most_frequent(many, 3)
    assert len(found) == MOST_CLIENT_KINDS + 1
    assert found[-1] == ((OTHERS,) * 3, 6)
