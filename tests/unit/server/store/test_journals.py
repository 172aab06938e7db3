"""What every kind of journal promises to store and broker, whatever keeps the messages."""

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from rmq_ha.base.errors import StoreError
from rmq_ha.base.interfaces import IJournalPlugin
from rmq_ha.base.model.broker_identity import BrokerIdentity
from rmq_ha.base.model.message import Address, BrokerMessage
from rmq_ha.base.model.networks import Networks
from rmq_ha.base.model.status import BrokerRole, FlushDiskType, PutMessageStatus
from rmq_ha.server.broker.context import BrokerContext
from rmq_ha.server.broker.masters import TrustedMasters
from rmq_ha.server.plugins import checked_journal, load_plugins
from rmq_ha.server.replication.classic.journal import ClassicJournal
from rmq_ha.server.replication.epochs.epochs import Epoch, Epochs, encode_epochs
from rmq_ha.server.store.journal import Journal, JournalBrokerContext, Role
from rmq_ha.server.store.journal_statistics import JournalStatistics
from rmq_ha.server.store.message_store import DefaultMessageStore
from rmq_ha.testing.cluster import small_configuration
from rmq_ha.testing.host import World

KINDS = ("classic", "dledger", "controller")
ELECTED = KINDS[1:]


class NoTables:
    """Of a broker that has none to send."""

    def watch(self, changed: Any) -> None:
        """Nothing changes."""


class Rig:
    """A store around a journal on a simulated machine, without anybody else."""

    def __init__(self, kind: str, role: BrokerRole = BrokerRole.ASYNC_MASTER) -> None:
        self.world = World(1)
        host = self.world.add("b")
        self.configuration = small_configuration(host.ip, role, FlushDiskType.ASYNC_FLUSH)
        store, mode = self.configuration.store, self.configuration.controlled
        store.dleger_group, store.dleger_self_id = "g", "n0"
        store.dleger_peers = f"n0-{host.ip}:40911;n1-10.9.9.9:40911"
        store.enable_dleger_commit_log = kind == "dledger"
        mode.enable_controller_mode = kind == "controller"
        mode.controller_addr = "10.9.9.9:9878"
        (plugin,) = load_plugins(IJournalPlugin, [kind])
        made = plugin.make_journal(BrokerContext(host.seams, self.configuration, lambda _: None))
        self.journal: Journal = checked_journal(plugin, made)
        self.store = DefaultMessageStore(host.seams, self.configuration, self.journal)
        self.journal.join(
            JournalBrokerContext(
                calls=self,
                identity=lambda: BrokerIdentity("c", "b", 0, f"{host.ip}:1", f"{host.ip}:2"),
                tables=NoTables,
                set_master_address=lambda address: None,
                masters=TrustedMasters(Networks()),
            )
        )

    def invoke(self, *_: Any) -> "Deferred[Any]":
        """No controller answers."""
        return Deferred()

    def start(self) -> "Rig":
        self.store.load()
        self.wait(self.store.start())
        return self

    def wait(self, later: "Deferred[Any]") -> Any:
        results: list[Any] = []
        later.addBoth(results.append)
        self.world.clock.run_while(lambda: not results, 30)
        return results[0]

    def put(self) -> PutMessageStatus:
        here = Address.parse("10.0.0.1", 1)
        status: PutMessageStatus = self.wait(
            self.store.put_message(BrokerMessage("T", 0, b"body", here, here))
        ).status
        return status


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_kept_can_be_read_and_what_is_not_is_nowhere(kind: str) -> None:
    rig = Rig(kind)
    assert rig.put() is PutMessageStatus.SERVICE_NOT_AVAILABLE  # not even loaded
    rig.start()
    is_kept = rig.put() is PutMessageStatus.PUT_OK
    assert is_kept is (kind not in ELECTED)
    rig.world.clock.run_for(1)
    log = rig.journal.log
    assert rig.store.dispatcher.bytes_behind <= 0
    assert (rig.store.max_offset_in_queue("T", 0), log.readable_end > 0) == (is_kept, is_kept)
    assert log.min_offset <= log.readable_end <= log.max_offset <= log.written_end
    rig.wait(rig.store.stop())
    assert rig.put() is PutMessageStatus.SERVICE_NOT_AVAILABLE


@pytest.mark.parametrize("kind", KINDS)
def test_a_broker_begins_as_the_master_unless_somebody_elects_and_then_it_says_why_not(
    kind: str,
) -> None:
    rig = Rig(kind).start()
    role = rig.journal.role
    assert role.begins_as_master is (kind not in ELECTED)
    assert bool(role.electorate) is bool(rig.journal.why_no_puts()) is (kind in ELECTED)
    rig.configuration.store.broker_role = BrokerRole.SLAVE
    assert (role.is_slave, role.begins_as_master, rig.store.is_slave) == (True, False, True)
    rig.wait(rig.store.stop())


def test_a_synchronous_master_without_a_slave_says_so_and_lists_none() -> None:
    rig = Rig("classic", BrokerRole.SYNC_MASTER).start()
    assert rig.put() is PutMessageStatus.SLAVE_NOT_AVAILABLE
    assert rig.journal.info() == {"slaves": []}
    assert len(rig.journal.reloadable()) == 2
    rig.wait(rig.store.stop())


def test_who_replicates_hears_first_of_what_a_turn_appended_and_nobody_else_does() -> None:
    """Slaves have it under way while the disk works."""
    rig = Rig("classic")
    journal: Any = rig.journal
    first, other = journal.replication, ClassicJournal(rig.store.host, rig.configuration).service
    assert journal.once_a_turn.index(first.appended) == 0
    journal.replicated_by(other)
    assert journal.once_a_turn.index(other.appended) == 0
    assert first.appended not in journal.once_a_turn
    journal.replicated_by(None)
    assert other.appended not in journal.once_a_turn


def test_a_slave_tells_of_its_master() -> None:
    rig = Rig("classic", BrokerRole.SLAVE)
    rig.journal.set_master_address("10.9.9.9:10912")
    rig.start()
    rig.world.clock.run_for(1)
    info = rig.journal.info()
    assert info["slaves"] == []
    assert info["master"]["address"] == "10.9.9.9:10912"
    assert set(info["master"]) == {"address", "state", "fault", "silent_ms", "set_aside"}
    rig.wait(rig.store.stop())


@pytest.mark.parametrize("kind", KINDS)
def test_a_journal_that_was_never_started_can_be_stopped_and_closed(kind: str) -> None:
    """A start that fails on its way stops what there is."""
    rig = Rig(kind)
    rig.store.load()
    assert rig.wait(rig.journal.stop()) is None
    rig.journal.close()
    assert isinstance(rig.journal.statistics(), JournalStatistics)
    assert isinstance(rig.journal.info(), dict)


def test_who_observes_a_role_is_told_what_the_electorate_wants() -> None:
    """And before there is anybody, nobody is."""
    told: list[object] = []

    class Observer:
        def follow(self) -> None:
            told.append("follow")

        def stand(self) -> None:
            told.append("stand")

        def lead(self, term: int) -> None:
            told.append(term)

    role = Role(Rig("classic").configuration.store)
    role.follow()
    role.observe(Observer())
    role.stand()
    role.lead(3)
    role.follow()
    assert told == ["stand", 3, "follow"]


def test_a_pair_does_not_take_the_store_of_a_broker_in_controller_mode() -> None:
    """Its epochs would vouch for what the pair writes, once it is in controller mode again."""
    rig = Rig("classic")
    disk, epochs = rig.store.host.disk, f"{rig.store.root}/epochFileCheckpoint"
    disk.replace(epochs, encode_epochs(Epochs([Epoch(1, 0)])))
    with pytest.raises(StoreError, match=r"was in controller mode.*Set it again; or, .*remove"):
        rig.store.load()
    rig = Rig("controller")
    rig.store.host.disk.replace(epochs, encode_epochs(Epochs()))
    rig.store.load()
