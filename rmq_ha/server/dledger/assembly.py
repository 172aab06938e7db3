"""Makes the parts of a DLedger member from a broker's configuration.

Spec: dledger.md, chapter 1.
"""

from typing import Any

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.dledger_settings import DLedgerSettings, parse_ids, parse_peers
from rmq_ha.base.model.networks import Networks
from rmq_ha.base.model.status import FlushDiskType
from rmq_ha.base.seams import Disk
from rmq_ha.base.store_format.delay_levels import parse_delay_levels
from rmq_ha.server.dledger.classic import ClassicPart
from rmq_ha.server.dledger.commit_log import DLedgerCommitLog
from rmq_ha.server.dledger.ledger import Ledger
from rmq_ha.server.dledger.members import Members
from rmq_ha.server.store.log.layout import classic_commit_log

_BATCHES_IN_FLIGHT = 4


def make_settings(configuration: BrokerConfiguration) -> DLedgerSettings:
    """
    Translate a broker's configuration into the settings of the core.

    :raises ConfigurationError: `dLegerPeers` cannot be read, or has no entry for this member.
    """
    store, own = configuration.store, configuration.ours
    batches: dict[str, Any] = {"is_enable_batch_push": store.enable_batch_push}
    if own.dledger_push_batch_size:
        batches = {
            "is_enable_batch_push": True,
            "max_batch_push_size": own.dledger_push_batch_size,
            "max_batches_in_flight": _BATCHES_IN_FLIGHT,
        }
    return DLedgerSettings(
        group=store.dleger_group or "",
        self_id=store.dleger_self_id or "",
        peers=parse_peers(store.dleger_peers or ""),
        preferred_leader_ids=parse_ids(store.preferred_leader_id),
        sync_before_ack=store.flush_disk_type is FlushDiskType.SYNC_FLUSH,
        commit_own_term_only=own.dledger_commit_own_term_only,
        sticky_leader=own.dledger_sticky_leader,
        hand_over_when_full=own.dledger_hand_over_when_full,
        **batches,
    )


def dledger_directory(configuration: BrokerConfiguration) -> str:
    """Return the member's directory. Only its data files may be elsewhere."""
    store = configuration.store
    return f"{store.store_path_root_dir}/dledger-{store.dleger_self_id}"


def make_dledger_log(disk: Disk, configuration: BrokerConfiguration) -> DLedgerCommitLog:
    """
    Make the member's commit log. Nothing is read from the disk before the store loads.

    :raises ConfigurationError: the delay levels cannot be read.
    """
    store = configuration.store
    paths = [path.strip() for path in (store.store_path_dledger_commit_log or "").split(",")]
    ledger = Ledger(
        disk,
        dledger_directory(configuration),
        store.mapped_file_size_commit_log,
        data_directories=[path for path in paths if path],
    )
    classic = ClassicPart(classic_commit_log(disk, store))
    levels = parse_delay_levels(store.message_delay_level)
    return DLedgerCommitLog(store, ledger, levels, classic)


def make_members(configuration: BrokerConfiguration, settings: DLedgerSettings) -> Members:
    """
    Make the rules that say from which addresses this member accepts requests.

    :raises ValueError: a list of hosts cannot be read. Loading a configuration has checked these
        lists.
    """
    own = configuration.ours
    return Members(settings, Networks(own.dledger_peer_hosts), Networks(own.dledger_operator_hosts))
