"""Makes the configuration of a controller from a properties file.

Spec: controller.md, section 2.3.
"""

import os.path
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rmq_ha.base.config.addresses import add_own_name, resolve_names
from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.controller import ControllerConfig, ControllerConfiguration
from rmq_ha.base.config.dledger_settings import parse_peers
from rmq_ha.base.config.doubtful import note_doubts
from rmq_ha.base.config.families import note_family, own_peer
from rmq_ha.base.config.fields import keys_of
from rmq_ha.base.config.key_readers import with_unknown_keys
from rmq_ha.base.config.namesrv_configuration import NamesrvConfiguration
from rmq_ha.base.config.plans import controller_port_plan
from rmq_ha.base.config.ports import check_metrics_port
from rmq_ha.base.config.settings import ConfigNotice, Setting, collect, fill, unknown_keys
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.host_port import parse_host_port


class LoadedController(NamedTuple):
    """The complete configuration of a controller, and the notices for its operator."""

    configuration: ControllerConfiguration
    notices: list[ConfigNotice]


def load_controller(
    text: str,
    surroundings: Surroundings,
    *,
    name: str = "",
    overrides: Iterable[tuple[str, str]] = (),
) -> LoadedController:
    """
    Read a controller's properties, and compute the values that were left out.

    :param name: path of the file, for messages. updateControllerConfig writes into this file.
    :raises ConfigurationError: a value does not fit; the message names file, line, key and reason.
    """
    notices: list[ConfigNotice] = []
    settings = collect(text, name, overrides, notices)
    configuration = ControllerConfiguration()
    own = configuration.controller
    with with_unknown_keys(notices):
        targets = (own, configuration.server, configuration.unserved)
        fill(settings, targets, configuration.plugin_options, notices)
        resolve_names((own,), settings, surroundings, notices)
        add_own_name((own,), surroundings)
        configuration.server.listen_port = _complete(own, settings, surroundings)
        if own.config_store_path or name:
            own.config_store_path = surroundings.absolute(own.config_store_path or name)
        if own.acl_enable:
            own.acl_directory = surroundings.absolute(own.acl_directory or _acl_directory(name))
        check_metrics_port(controller_port_plan(configuration), settings)
        notices += unknown_keys(configuration.plugin_options, settings)
        note_doubts(targets, settings, notices)
        _note_family(own, settings, surroundings, notices)
    return LoadedController(configuration, notices)


def controller_within(
    configuration: BrokerConfiguration | NamesrvConfiguration,
    settings: Mapping[str, Setting],
    surroundings: Surroundings,
    notices: list[ConfigNotice],
) -> None:
    """
    Complete the configuration of the controller that a name server runs. Both read the same file.

    :raises ConfigurationError: as `load_controller` raises it.
    """
    if configuration.runs_controller:
        _complete(configuration.controller, settings, surroundings)
        _note_family(configuration.controller, settings, surroundings, notices)
        return
    shared = {key for target in configuration.own_objects for key in keys_of(target)}
    notices += [
        ConfigNotice(
            f"{settings[key].where}: {key} has no effect without enableControllerInNamesrv=true",
            is_unknown=True,
        )
        for key in keys_of(ControllerConfig)
        if key in settings and key not in shared
    ]


def _complete(
    own: ControllerConfig, settings: Mapping[str, Setting], surroundings: Surroundings
) -> int:
    """Compute the paths that the file leaves out. Return the port of the controller."""
    if own.controller_type.lower() != "dledger":
        raise settings["controllerType"].error("only DLedger is implemented")
    own.controller_store_path = surroundings.absolute(
        own.controller_store_path or surroundings.below_home("DLedgerController")
    )
    return _own_port(own.controller_dleger_peers, own)


def _note_family(
    own: ControllerConfig,
    settings: Mapping[str, Setting],
    surroundings: Surroundings,
    notices: list[ConfigNotice],
) -> None:
    """Check that brokers and other controllers reach the address of this controller's own entry."""
    host = own_peer(own.controller_dleger_peers, own.controller_dleger_self_id)
    setting = settings.get("controllerDLegerPeers")
    note_family(setting, host, own.bind_address, surroundings, notices)


def _acl_directory(name: str) -> str:
    """Return the directory of plain_acl.yml where aclDirectory is empty."""
    if not name:
        raise ConfigurationError(
            "aclEnable=true: set aclDirectory to the directory of plain_acl.yml; without a "
            "properties file nothing tells where it is"
        )
    return os.path.dirname(name)


def _own_port(text: str, own: ControllerConfig) -> int:
    try:
        peers = parse_peers(text)
        address = peers[own.controller_dleger_self_id]
    except KeyError as error:
        raise ConfigurationError(
            f"controllerDLegerSelfId={error.args[0]} is not in controllerDLegerPeers={text}"
        ) from None
    except ConfigurationError as error:
        reason = str(error).replace("dLegerPeers", "controllerDLegerPeers")
        raise ConfigurationError(f"{reason}; for one controller n0-<its address>:9878") from None
    return parse_host_port(address).port
