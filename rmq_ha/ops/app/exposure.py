"""Warns when a server is open to the network, or its secrets to every user of its machine."""

import os
import stat
from collections.abc import Iterator
from typing import Any

from rmq_ha.base.config.addresses import ANY_ADDRESS
from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.controller import ControllerConfig, ControllerConfiguration
from rmq_ha.base.config.fields import keys_of
from rmq_ha.base.config.tls_keys import TLS_KEYS
from rmq_ha.base.model.networks import EVERYBODY
from rmq_ha.base.tls.options import TlsOptions
from rmq_ha.server.acl.files import DEFAULT_FILE, FOLDER

_LOOPBACK = ("127.", "::1", "localhost")
_ENFORCING = "enforcing"


def exposure(bind_address: str, options: dict[str, str], *, has_acl: bool = False) -> str | None:
    """
    Return a warning for a server that anybody in the network may use; None: it is guarded.

    :param has_acl: access control is in force.
    """
    if has_acl or options.get("tls.server.mode") == _ENFORCING:
        return None
    if bind_address.startswith(_LOOPBACK):
        return None
    return (
        f"listening on {_place(bind_address)} without ACL or TLS: whoever reaches this port may "
        "read, write and configure; set bindAddress, aclEnable=true, or tls.server.mode=enforcing"
    )


def replication_exposure(
    bind_address: str,
    options: dict[str, str],
    port: int,
    allowed_slaves: str,
) -> str | None:
    """
    Return a warning for a broker that guards its clients' ports but not the port for slaves; None:
    it guards both.

    :param port: the port for slaves.
    :param allowed_slaves: `haAllowedSlaves`.
    """
    if allowed_slaves.strip() not in ("", EVERYBODY):
        return None
    if options.get("tls.ha.mode") == _ENFORCING or bind_address.startswith(_LOOPBACK):
        return None
    return (
        f"port {port} on {_place(bind_address)} gives every message to whoever connects and says "
        "to be a slave, and believes its acknowledgements: set haAllowedSlaves"
        ", better tls.ha.mode=enforcing with tls.ha.trustCertPath"
    )


def group_exposure(bind_address: str, options: dict[str, str], port: int) -> str | None:
    """
    Return a warning for a member of a DLedger group that does not guard the port for other members;
    None: it does.

    :param port: the port for the other members.
    """
    if options.get("tls.ha.mode") == _ENFORCING or bind_address.startswith(_LOOPBACK):
        return None
    return (
        f"port {port} on {_place(bind_address)} believes whoever comes from the address of a "
        "member of the group: set tls.ha.mode=enforcing with tls.ha.trustCertPath if other "
        "processes run there, or the network can be listened to"
    )


def controller_exposure(
    bind_address: str, options: dict[str, str], own: ControllerConfig
) -> str | None:
    """
    Return a warning for a controller that strangers may join or command; None: they may not.

    :param bind_address: address of the controller's port, from `controllerDLegerPeers`.
    """
    if own.controller_open_to_all:
        return (
            f"controllerOpenToAll=true: whoever reaches the controller's port on "
            f"{_place(bind_address)} elects masters, changes sets and keeps dead brokers alive, as "
            "with RocketMQ's controllers. Remove it; Java's brokers need no more than "
            "controllerAllowedBrokers with their addresses"
        )
    is_guarded = bool(own.controller_allowed_brokers.strip()) or own.acl_enable
    if is_guarded or exposure(bind_address, options) is None:
        return None
    return (
        f"the controller's port on {_place(bind_address)} gives an id to whoever says to be a new "
        "broker: set controllerAllowedBrokers to the brokers' addresses, or aclEnable=true"
    )


def _place(bind_address: str) -> str:
    return "all addresses" if bind_address in ANY_ADDRESS else bind_address


def readable_secrets(configuration: Any, properties_file: str | None) -> list[str]:
    """
    Return a warning for each file of secrets that every user of this machine may read.

    :param configuration: the configuration of a broker, a name server or a controller.
    :param properties_file: the file that the configuration was read from.
    :raises ConfigurationError: `tls.config.file` cannot be read.
    """
    return [
        f"every user of this machine can read {path}, which holds {what}: chmod o-rwx {path}"
        for path, what in _secrets(configuration, properties_file)
        if _is_readable_by_all(path)
    ]


def _secrets(configuration: Any, properties_file: str | None) -> Iterator[tuple[str, str]]:
    is_broker = isinstance(configuration, BrokerConfiguration)
    if isinstance(configuration, ControllerConfiguration):
        directory = configuration.controller.acl_directory
    else:
        directory = (configuration.ours if is_broker else configuration.namesrv).acl_directory
    if directory:
        yield f"{directory}/{DEFAULT_FILE}", "secret keys"
        for folder, _, names in os.walk(f"{directory}/{FOLDER}"):
            yield from ((f"{folder}/{name}", "secret keys") for name in names)
    tls = TlsOptions(configuration.plugin_options, _read)
    for key in sorted(TLS_KEYS):
        if key.endswith(".keyPath") and tls.is_set(key):
            yield tls.text(key), f"the key of {key}"
        elif key.endswith(".keyPassword") and tls.is_set(key):
            own = properties_file if key in configuration.plugin_options else None
            yield own or tls.config_file or "", key
    if is_broker and configuration.ours.ha_secret_file:
        yield configuration.ours.ha_secret_file, "haSecretFile's secrets"
    if not properties_file:
        return
    for target in configuration.own_objects:
        for row in keys_of(target).values():
            if row.is_secret and getattr(target, row.attribute):
                yield properties_file, row.name


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _is_readable_by_all(path: str) -> bool:
    try:
        return bool(stat.S_IMODE(os.stat(path).st_mode) & stat.S_IROTH)
    except OSError:
        return False
