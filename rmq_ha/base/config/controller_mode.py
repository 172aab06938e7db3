"""The start rules of a broker in controller mode.

Spec: controller.md, sections 2.1 and 2.2.
"""

from collections.abc import Mapping

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.dledger_settings import parse_peers
from rmq_ha.base.config.settings import ConfigNotice, Setting, without_effect
from rmq_ha.base.model.host_port import parse_host_port
from rmq_ha.base.model.status import BrokerRole

UNDECIDED_BROKER_ID = -1
"""The brokerId of a broker until a controller gives it another one."""
_OVERWRITTEN = ("brokerRole", "brokerId", "haMasterAddress")


def is_controlled(configuration: BrokerConfiguration) -> bool:
    """Return whether controllers decide the role of this broker."""
    return configuration.controlled.enable_controller_mode


def apply_controller_mode(
    configuration: BrokerConfiguration,
    settings: Mapping[str, Setting],
    notices: list[ConfigNotice],
) -> None:
    """
    Check the keys of controller mode, and set what an election will overwrite.

    :raises ConfigurationError: a key is missing or does not fit the others.
    """
    mode = configuration.controlled
    if not mode.enable_controller_mode:
        notices += without_effect(mode, settings, "enableControllerMode")
        return
    where = settings["enableControllerMode"]
    if configuration.store.enable_dleger_commit_log:
        raise where.error("a DLedger group elects for itself: enableDLegerCommitLog must be false")
    if not mode.controllers and configuration.ours.enable_controller_in_namesrv:
        peers = parse_peers(configuration.controller.controller_dleger_peers)
        mode.controller_addr = ";".join(peers.values())
    if not mode.controllers:
        raise where.error("controllerAddr is missing: host:port of every controller, with ;")
    for address in mode.controllers:
        try:
            parse_host_port(address)
        except ValueError as error:
            raise settings["controllerAddr"].error(str(error)) from None
    for name, value, least in (
        ("inSyncReplicas", mode.in_sync_replicas, 1),
        ("minInSyncReplicas", mode.min_in_sync_replicas, 1),
        ("brokerHeartbeatInterval", mode.broker_heartbeat_interval, 100),
        ("controllerHeartBeatTimeoutMills", mode.controller_heart_beat_timeout_mills, 1000),
    ):
        if value < least:
            raise settings[name].error(f"must be {least} at least")
    configuration.was_slave = configuration.store.broker_role is BrokerRole.SLAVE
    # The keys of the pair stay in the file, so that switching controller mode on and off is one
    # line. A former slave may lack messages, so `was_slave` keeps it from being elected at once.
    for name in _OVERWRITTEN:
        if name == "brokerRole" and configuration.was_slave:
            told = "brokerRole=SLAVE: never elected before it has followed a master"
            notices.append(ConfigNotice(f"{settings[name].where}: {told}"))
        elif name in settings:
            notices.append(
                ConfigNotice(
                    f"{settings[name].where}: {name} has no effect: the controllers decide"
                )
            )
    root = configuration.store.store_path_root_dir
    mode.store_path_epoch_file = mode.store_path_epoch_file or f"{root}/epochFileCheckpoint"
    mode.store_path_broker_identity = mode.store_path_broker_identity or f"{root}/brokerIdentity"
    configuration.broker.broker_id = UNDECIDED_BROKER_ID
    configuration.store.broker_role = BrokerRole.ASYNC_MASTER
    configuration.store.ha_master_address = None
    is_embedded = configuration.ours.enable_controller_in_namesrv
    if configuration.broker.namesrv_addr is None and not is_embedded:
        notices.append(
            ConfigNotice(
                "without namesrvAddr no client finds this broker, whatever it is elected for"
            )
        )
