"""
Finds values that a server accepts although they are surely mistakes. The start logs them, and
`--check` fails.

RocketMQ takes such values without a word. For example, quotes become part of a name, and `~`
becomes the name of a directory.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from rmq_ha.base.config.addresses import ANY_ADDRESS
from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.dledger import is_dledger
from rmq_ha.base.config.families import note_families_of_broker
from rmq_ha.base.config.fields import EMBEDDED_NAMESRV, keys_of
from rmq_ha.base.config.plans import embeds_namesrv, port_plan
from rmq_ha.base.config.settings import (
    ConfigNotice,
    DoubtfulValue,
    Setting,
    reason_to_doubt,
    without_effect,
)
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.model.host_port import parse_host_port
from rmq_ha.base.model.networks import canonical, is_loopback
from rmq_ha.base.model.printable import one_line
from rmq_ha.base.model.status import BrokerRole

_NAME = re.compile(r"[^\s;,:@/\\]*")
NAMES = "commands and clients take this name apart; use letters, digits, - and _"


def stands_alone(name: str) -> bool:
    """
    Return whether the name of a broker or cluster can stand in commands, lists of addresses and
    paths.
    """
    return _NAME.fullmatch(name) is not None


def note_doubts(
    targets: Iterable[Any], settings: Mapping[str, Setting], notices: list[ConfigNotice]
) -> None:
    """
    Note the doubtful values of any server, and the keys of its status port that have no effect.

    :param targets: the filled objects of the configuration.
    """
    targets = list(targets)
    secrets = {
        key for target in targets for key, row in keys_of(target).items() if row.is_secret
    } | {key for key in settings if key.lower().endswith("password")}
    for setting in settings.values():
        is_secret = setting.key in secrets
        reason = reason_to_doubt(setting.value)
        if reason and not (is_secret and setting.value[0] not in "\"'"):
            shown = "***" if is_secret else one_line(setting.value)
            notices.append(DoubtfulValue(f"{setting.where}: {setting.key}={shown}: {reason}"))
    own = next(target for target in targets if hasattr(target, "metrics_port"))
    has_accounts = any(getattr(target, "acl_enable", False) for target in targets)
    _note_status_port(own, has_accounts, settings, notices)


def _note_status_port(
    own: Any, has_accounts: bool, settings: Mapping[str, Setting], notices: list[ConfigNotice]
) -> None:
    address = own.metrics_address
    if not own.metrics_port:
        for key, is_set in (
            ("metricsAddress", not is_loopback(address)),
            ("pageToken", bool(own.page_token)),
        ):
            if is_set and key in settings:
                text = f"{settings[key].where}: {key} has no effect without metricsPort"
                notices.append(ConfigNotice(text))
        return
    if is_loopback(address) or own.page_token or has_accounts:
        return
    where = settings.get("metricsAddress")
    if where is None:
        return
    text = f"whoever reaches port {own.metrics_port} reads /metrics and /healthz"
    if own.page_enable:
        text += ", and the page shows nothing to anybody without pageToken"
    if address in ANY_ADDRESS:
        text += "; it is open on all addresses: name the one that Prometheus asks"
    notices.append(ConfigNotice(f"{where.where}: metricsAddress={where.value}: {text}"))


def check_broker(
    configuration: BrokerConfiguration,
    settings: Mapping[str, Setting],
    surroundings: Surroundings,
    notices: list[ConfigNotice],
) -> None:
    """
    Note the parts of a broker's complete configuration that do not fit together.

    :raises ConfigurationError: clients are told an address to which nobody can connect, or the
        broker would connect to itself as to another server.
    """
    for key in ("brokerIP1", "brokerIP2"):
        if key in settings and canonical(settings[key].value) in ANY_ADDRESS:
            reader = "clients" if key == "brokerIP1" else "slaves"
            raise settings[key].error(
                f"this stands for all addresses of a listener, and {reader} cannot connect to it; "
                "write the address of this machine that they reach"
            )
    _check_own_ports(configuration, settings, surroundings)
    _note_all_addresses(configuration, settings, notices)
    _note_loopback(configuration, settings, notices)
    note_families_of_broker(configuration, settings, surroundings, notices)
    if configuration.store.file_reserved_time == 0:
        notices.append(
            DoubtfulValue(
                f"{settings['fileReservedTime'].where}: fileReservedTime=0: at the hour of "
                "deleteWhen every file of the log but the newest is deleted, read or not; write "
                "the hours for which messages are kept, such as 72"
            )
        )
    _note_names_and_grpc(configuration, settings, notices)
    _note_without_effect(configuration, settings, notices)


def _note_names_and_grpc(
    configuration: BrokerConfiguration, settings: Mapping[str, Setting], notices: list[ConfigNotice]
) -> None:
    for key in ("brokerName", "brokerClusterName"):
        setting = settings.get(key)
        if setting and not reason_to_doubt(setting.value) and not stands_alone(setting.value):
            notices.append(
                DoubtfulValue(f"{setting.where}: {key}={one_line(setting.value)}: {NAMES}")
            )
    port = configuration.ours.grpc_server_port
    if port and "grpcServerPort" in settings and not configuration.ours.pop_enable:
        notices.append(
            ConfigNotice(
                f"{settings['grpcServerPort'].where}: grpcServerPort={port} serves producers "
                "alone: consumers of RocketMQ 5 need popEnable=true"
            )
        )


def _check_own_ports(
    configuration: BrokerConfiguration,
    settings: Mapping[str, Setting],
    surroundings: Surroundings,
) -> None:
    """
    Check that no address to connect to is a port of this broker itself.

    :raises ConfigurationError: an address to connect to is a port of this broker.
    """
    served = {"namesrvAddr": "name server", "controllerAddr": "controller"}
    purposes = {
        planned.port: planned.purpose
        for planned in port_plan(configuration)
        if not any(word in planned.purpose for word in ("name server", "controller"))
    }
    for key, addresses in configuration.dialled_addresses().items():
        for address in addresses:
            try:
                host, port = parse_host_port(address)
            except ValueError:  # controllerAddr, which nobody reads without enableControllerMode
                continue
            purpose = purposes.get(port)
            if purpose and _is_own(host, configuration, surroundings):
                setting = settings.get(key) or Setting(key, address, "environment")
                raise setting.error(
                    f"port {port} of this machine is this broker's own, for {purpose}; name the "
                    f"port of a {served.get(key, 'master')}"
                )


def _is_own(host: str, configuration: BrokerConfiguration, surroundings: Surroundings) -> bool:
    """Whether a connection to one of this broker's own ports at this host comes to this broker."""
    broker, bound = configuration.broker, configuration.ours.bind_address
    told = {broker.broker_ip1, broker.broker_ip2}
    if bound not in ANY_ADDRESS:
        return host in {bound, *told} or (host.lower() == "localhost" and is_loopback(bound))
    named = host.lower() in ("localhost", surroundings.host_name.lower())
    return named or is_loopback(host) or host in {surroundings.address, *told, *ANY_ADDRESS}


def _note_all_addresses(
    configuration: BrokerConfiguration, settings: Mapping[str, Setting], notices: list[ConfigNotice]
) -> None:
    for key in (*configuration.dialled_addresses(), "dLegerPeers"):
        setting = settings.get(key)
        if setting is not None and re.search(r"(?<![\d.])0\.0\.0\.0:", setting.value):
            notices.append(
                DoubtfulValue(
                    f"{setting.where}: {key}={one_line(setting.value)}: 0.0.0.0 stands for all "
                    "addresses of a listener: name the machine to connect to"
                )
            )


def _note_loopback(
    configuration: BrokerConfiguration, settings: Mapping[str, Setting], notices: list[ConfigNotice]
) -> None:
    bound = configuration.ours.bind_address
    for key, told in (
        ("brokerIP1", configuration.broker.broker_ip1 or ""),
        ("brokerIP2", configuration.broker.broker_ip2 or ""),
    ):
        if key not in settings or bound in ANY_ADDRESS or is_loopback(told) == is_loopback(bound):
            continue
        notices.append(
            DoubtfulValue(
                f"{settings[key].where}: {key}={told}: this broker listens on {bound} alone "
                f"(bindAddress), so a connection to {told} does not reach it"
            )
        )


def _note_without_effect(
    configuration: BrokerConfiguration, settings: Mapping[str, Setting], notices: list[ConfigNotice]
) -> None:
    if not embeds_namesrv(configuration):
        reason = ": this broker runs no name server"
        notices += without_effect(configuration.ours, settings, EMBEDDED_NAMESRV, reason)
    is_master = configuration.store.broker_role is not BrokerRole.SLAVE
    is_elected = is_dledger(configuration) or configuration.controlled.enable_controller_mode
    if is_master and not is_elected and configuration.dialled_addresses()["haMasterAddress"]:
        where = settings["haMasterAddress"].where
        notices.append(
            ConfigNotice(f"{where}: haMasterAddress has no effect: this broker is a master")
        )
    _note_sizes(configuration, settings, notices)


def _note_sizes(
    configuration: BrokerConfiguration, settings: Mapping[str, Setting], notices: list[ConfigNotice]
) -> None:
    own, store = configuration.ours, configuration.store
    largest = settings.get("maxMessageSize")
    if largest and store.max_message_size >= store.mapped_file_size_commit_log:
        notices.append(
            DoubtfulValue(
                f"{largest.where}: maxMessageSize={largest.value}: a message of that size fits "
                f"into no file of the log (mappedFileSizeCommitLog="
                f"{store.mapped_file_size_commit_log}) and is refused"
            )
        )
    if own.disk_space_clean_forcibly_ratio >= own.disk_space_warning_level_ratio:
        notices.append(
            DoubtfulValue(
                f"diskSpaceCleanForciblyRatio={own.disk_space_clean_forcibly_ratio} is not below "
                f"diskSpaceWarningLevelRatio={own.disk_space_warning_level_ratio}: messages are "
                "refused before old files go"
            )
        )
