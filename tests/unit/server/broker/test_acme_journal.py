"""examples/acme-journal: a journal from outside, in a whole broker."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import twisted.plugins
from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.wire.codes import ResponseCode
from tests.unit.server.broker.sim_broker import SimBroker

EXAMPLE = Path(__file__).parents[4] / "examples" / "acme-journal" / "twisted" / "plugins"
COPY = "/other/commitlog"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SimBroker]:
    """Not started yet; its other disk is a folder."""
    folder = tmp_path / "twisted" / "plugins"  # Twisted writes its cache there
    shutil.copytree(EXAMPLE, folder)
    twisted.plugins.__path__.append(str(folder))
    broker = SimBroker()
    broker.configuration.ours.journal_plug_in = "two-disks"
    yield broker
    twisted.plugins.__path__.remove(str(folder))
    sys.modules.pop("twisted.plugins.acme_journal", None)


def copied(broker: SimBroker) -> bytes:
    """All files of the copy, in order."""
    disk = broker.host.seams.disk
    return b"".join(disk.read_bytes(f"{COPY}/{name}") for name in disk.list_dir(COPY))


def test_what_is_acknowledged_is_on_both_disks_also_after_a_start(broker: SimBroker) -> None:
    broker.configuration.plugin_options["two-disks.directory"] = COPY
    broker.start()
    for body in (b"first", b"second"):
        assert broker.send(body).code == ResponseCode.SUCCESS
        assert body in copied(broker)
    broker.stop()
    broker.start()
    assert broker.send(b"third").code == ResponseCode.SUCCESS
    log = broker.broker.store.log
    assert copied(broker)[: log.max_offset] == log.read(0, log.max_offset)
    broker.stop()


def test_a_disk_that_refuses_is_said_to_the_producer_and_the_next_send_tries_again(
    broker: SimBroker,
) -> None:
    broker.configuration.plugin_options["two-disks.directory"] = COPY
    broker.start()
    disk = broker.host.disk
    disk.fault = lambda operation, path: 28 if path.startswith(COPY) else None
    assert broker.send(b"first").code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    disk.fault = lambda operation, path: None
    assert broker.send(b"second").code == ResponseCode.SUCCESS
    assert b"first" in copied(broker)
    broker.stop()


def test_without_its_directory_it_stops_the_start(broker: SimBroker) -> None:
    with pytest.raises(ConfigurationError, match=r"two-disks\.directory is missing"):
        broker.start()
