"""How far the followers are, and what a broker's configuration says to the core."""

from types import SimpleNamespace
from typing import Any

import pytest

from rmq_ha.config.broker_configuration import BrokerConfiguration
from rmq_ha.dledger.assembly import make_settings
from rmq_ha.dledger.statistics import _behind
from rmq_ha.dledger.values import Entry
from rmq_ha.errors import StoreError
from rmq_ha.model.status import FlushDiskType


def ledger(**changes: Any) -> Any:
    """Entries 10 to 14, of 52 bytes each; the first one begins at 1000."""
    entries = {index: Entry(index, 1, 480 + 52 * index, b"body") for index in range(10, 15)}
    known = {
        "begin_index": 10,
        "end_index": 14,
        "begin_pos": 1000,
        "end_pos": 1260,
        "entry": entries.get,
    }
    return SimpleNamespace(**(known | changes))


@pytest.mark.parametrize(
    ("index", "behind"),
    [(14, (0, 0)), (15, (0, 0)), (13, (1, 52)), (10, (4, 208)), (9, (5, 260)), (-1, (5, 260))],
)
def test_how_far_a_member_is_behind(index: int, behind: tuple[int, int]) -> None:
    """Also of one that lacks what the leader has deleted."""
    assert _behind(ledger(), index) == behind


def test_a_disk_that_does_not_say_leaves_the_entries_known() -> None:
    def refuse(index: int) -> None:
        raise StoreError("the checksum differs")

    assert _behind(ledger(entry=refuse), 12) == (2, None)


def configured() -> BrokerConfiguration:
    found = BrokerConfiguration()
    found.store.dleger_group, found.store.dleger_self_id = "g", "n0"
    found.store.dleger_peers = "n0-h:1;n1-h:2;n2-h:3"
    return found


def test_a_batch_size_turns_batches_on() -> None:
    configuration = configured()
    configuration.store.enable_batch_push = False
    configuration.ours.dledger_push_batch_size = 0
    assert not make_settings(configuration).is_enable_batch_push
    configuration.ours.dledger_push_batch_size = 4321
    found = make_settings(configuration)
    assert (found.is_enable_batch_push, found.max_batch_push_size) == (True, 4321)


@pytest.mark.parametrize("kind", list(FlushDiskType))
def test_under_sync_flush_only_what_is_synced_is_vouched_for(kind: FlushDiskType) -> None:
    configuration = configured()
    configuration.store.flush_disk_type = kind
    assert make_settings(configuration).sync_before_ack is (kind is FlushDiskType.SYNC_FLUSH)
