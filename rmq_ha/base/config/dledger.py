"""The start rules of DLedger mode: the keys of the group, and the port for its members.

Spec: dledger.md, chapter 1.
"""

from collections.abc import Mapping

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.dledger_settings import parse_ids, parse_peers
from rmq_ha.base.config.settings import ConfigNotice, Setting, without_effect
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.host_port import parse_host_port
from rmq_ha.base.model.status import BrokerRole

UNDECIDED_BROKER_ID = -1
"""The brokerId of a broker whose role no election has decided yet."""


def is_dledger(configuration: BrokerConfiguration) -> bool:
    """Return whether a DLedger group keeps the commit log of this broker."""
    return configuration.store.enable_dleger_commit_log


def dledger_port(configuration: BrokerConfiguration) -> int:
    """
    Return the port at which the other members of the group reach this one.

    :raises ConfigurationError: dLegerPeers cannot be read, or has no entry of this member.
    """
    store = configuration.store
    peers = parse_peers(store.dleger_peers or "")
    own = peers.get(store.dleger_self_id or "")
    if own is None:
        raise ConfigurationError(
            f"dLegerSelfId={store.dleger_self_id} is not in dLegerPeers, which has "
            f"{', '.join(peers)}"
        )
    return parse_host_port(own).port


def apply_dledger(
    configuration: BrokerConfiguration,
    settings: Mapping[str, Setting],
    surroundings: Surroundings,
    notices: list[ConfigNotice],
) -> None:
    """
    Check the keys of DLedger, and set what an election will overwrite.

    :raises ConfigurationError: a key is missing or does not fit the others.
    """
    if not is_dledger(configuration):
        for target in (configuration.store, configuration.ours):
            notices += without_effect(target, settings, "enableDLegerCommitLog")
        return
    store, broker = configuration.store, configuration.broker
    for key, value in (
        ("dLegerGroup", store.dleger_group),
        ("dLegerPeers", store.dleger_peers),
        ("dLegerSelfId", store.dleger_self_id),
    ):
        if not (value or "").strip():
            raise settings["enableDLegerCommitLog"].error(f"{key} is missing")
    try:
        peers = parse_peers(store.dleger_peers or "")
    except ConfigurationError as error:
        raise settings["dLegerPeers"].error(str(error)) from None
    if store.dleger_self_id not in peers:
        raise settings["dLegerSelfId"].error(f"is not in dLegerPeers, which has {', '.join(peers)}")
    strangers = [name for name in parse_ids(store.preferred_leader_id) if name not in peers]
    if strangers:
        raise settings["preferredLeaderId"].error(
            f"{', '.join(strangers)} is not in dLegerPeers, which has {', '.join(peers)}"
        )
    # Only after all checks: the overwritten values would hide what the operator wrote.
    _overwrite(configuration, settings, notices)
    if broker.namesrv_addr is None:
        notices.append(
            ConfigNotice(
                "without namesrvAddr no client finds this DLedger group, and its followers do not "
                "learn topics, groups and consumer offsets from the leader"
            )
        )
    if store.store_path_dledger_commit_log:
        store.store_path_dledger_commit_log = ",".join(
            surroundings.absolute(path.strip())
            for path in store.store_path_dledger_commit_log.split(",")
            if path.strip()
        )


def _overwrite(
    configuration: BrokerConfiguration, settings: Mapping[str, Setting], notices: list[ConfigNotice]
) -> None:
    """Reset brokerRole and brokerId, which the election decides; note the keys without effect."""
    for key in ("brokerRole", "brokerId"):
        if key in settings:
            notices.append(
                ConfigNotice(
                    f"{settings[key].where}: {key} has no effect: the group's election decides"
                )
            )
    if "haMasterAddress" in settings:
        notices.append(
            ConfigNotice(
                f"{settings['haMasterAddress'].where}: haMasterAddress has no effect in DLedger"
            )
        )
    configuration.broker.broker_id = UNDECIDED_BROKER_ID
    configuration.store.broker_role = BrokerRole.ASYNC_MASTER
