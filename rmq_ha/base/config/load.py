"""
Makes the configuration of a broker or a name server from a properties file, and the properties text
from a configuration.

Spec: store.md, section 13.
"""

import os.path
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from rmq_ha.base.config.addresses import ANY_ADDRESS, add_own_name, resolve_names
from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.controller import ControllerConfig, ControllerConfiguration
from rmq_ha.base.config.controller_mode import apply_controller_mode, is_controlled
from rmq_ha.base.config.dledger import apply_dledger, is_dledger
from rmq_ha.base.config.doubtful import check_broker, note_doubts
from rmq_ha.base.config.fields import keys_of
from rmq_ha.base.config.key_readers import with_unknown_keys
from rmq_ha.base.config.load_controller import controller_within
from rmq_ha.base.config.namesrv_configuration import NamesrvConfiguration
from rmq_ha.base.config.plans import embeds_namesrv, namesrv_port_plan, port_plan
from rmq_ha.base.config.ports import check_controller_port, check_grpc_port, check_metrics_port
from rmq_ha.base.config.remote_change import fixed_refusal
from rmq_ha.base.config.settings import (
    ConfigNotice,
    Setting,
    change,
    collect,
    fill,
    render_objects,
    unknown_keys,
)
from rmq_ha.base.config.surroundings import Surroundings
from rmq_ha.base.config.values import parse_value
from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.printable import one_line
from rmq_ha.base.model.status import BrokerRole

BROKER_PORT = 10911
NAMESRV_PORT = 9876
PLAIN_ACL = "plain"
_PLUG_IN_KEYS = (
    "message_store_plug_in",
    "journal_plug_in",
    "dispatcher_plug_in",
    "hook_plug_in",
    "acl_plug_in",
)
AnyConfiguration = BrokerConfiguration | NamesrvConfiguration | ControllerConfiguration


class LoadedBroker(NamedTuple):
    """The complete configuration of a broker, and the notices for its operator."""

    configuration: BrokerConfiguration
    notices: list[ConfigNotice]


class LoadedNamesrv(NamedTuple):
    """The complete configuration of a name server, and the notices for its operator."""

    configuration: NamesrvConfiguration
    notices: list[ConfigNotice]


def load_broker(
    text: str,
    surroundings: Surroundings,
    *,
    name: str = "",
    overrides: Iterable[tuple[str, str]] = (),
) -> LoadedBroker:
    """
    Read a broker's properties, apply the start rules, and compute the values that were left out.

    :param text: content of the file; may be empty.
    :param name: path of the file, for messages and as `config_file`; may be relative.
    :param overrides: settings that win over the file.
    :raises ConfigurationError: a value does not fit; the message names file, line, key and reason.
    """
    notices: list[ConfigNotice] = []
    settings = collect(text, name, overrides, notices)
    configuration = BrokerConfiguration()
    configuration.server.listen_port = BROKER_PORT
    with with_unknown_keys(notices):
        targets = (*configuration.own_objects, configuration.controller, configuration.unserved)
        fill(settings, targets, configuration.plugin_options, notices)
        resolve_names(targets, settings, surroundings, notices)
        add_own_name(targets, surroundings)
        configuration.config_file = surroundings.absolute(name) if name else None
        _complete_broker(configuration, surroundings)
        apply_dledger(configuration, settings, surroundings, notices)
        controller_within(configuration, settings, surroundings, notices)
        apply_controller_mode(configuration, settings, notices)
        _apply_role(configuration, settings, notices)
        _apply_ports(configuration, settings, notices)
        _apply_batch_size(configuration, settings, notices)
        _check_duplicates(configuration, settings)
        _complete_acl(configuration, settings, surroundings)
        _check_plugin_options(configuration, settings, notices)
        note_doubts(targets, settings, notices)
        check_broker(configuration, settings, surroundings, notices)
    return LoadedBroker(configuration, notices)


def load_namesrv(
    text: str,
    surroundings: Surroundings,
    *,
    name: str = "",
    overrides: Iterable[tuple[str, str]] = (),
) -> LoadedNamesrv:
    """
    Read a name server's properties, and compute the values that were left out.

    :param name: path of the file, for messages. updateNamesrvConfig writes into this file.
    :raises ConfigurationError: a value does not fit; the message names file, line, key and reason.
    """
    notices: list[ConfigNotice] = []
    settings = collect(text, name, overrides, notices)
    configuration = NamesrvConfiguration()
    configuration.server.listen_port = NAMESRV_PORT
    own = configuration.namesrv
    with with_unknown_keys(notices):
        targets = (own, configuration.server, configuration.controller, configuration.unserved)
        fill(settings, targets, configuration.plugin_options, notices)
        resolve_names(targets, settings, surroundings, notices)
        add_own_name(targets, surroundings)
        controller_within(configuration, settings, surroundings, notices)
        # The plan reads the host names and the controller's settings, so it is made after them.
        plan = namesrv_port_plan(configuration)
        check_controller_port(plan, settings)
        check_metrics_port(plan, settings)
        own.rocketmq_home = own.rocketmq_home or surroundings.environ.get("ROCKETMQ_HOME")
        own.kv_config_path = surroundings.absolute(
            own.kv_config_path or surroundings.below_home("namesrv", "kvConfig.json")
        )
        own.config_store_path = surroundings.absolute(
            own.config_store_path
            or name
            or surroundings.below_home("namesrv", "namesrv.properties")
        )
        if own.acl_enable:
            directory = own.acl_directory or _acl_directory(own.rocketmq_home, name)
            own.acl_directory = surroundings.absolute(directory)
        notices += unknown_keys(configuration.plugin_options, settings)
        note_doubts(targets, settings, notices)
    return LoadedNamesrv(configuration, notices)


def render(configuration: AnyConfiguration) -> list[str]:
    """
    Return `key=value` lines of all keys, in Java's order, then those of rmq-ha and of plugins.
    """
    return render_objects(_objects(configuration)) + _option_lines(configuration)


def render_changed(configuration: AnyConfiguration) -> list[str]:
    """Return the lines of `render` whose values differ from the defaults of 4.9.7."""
    return render_objects(_objects(configuration), only_changed=True) + _option_lines(configuration)


def update(configuration: BrokerConfiguration, changes: Mapping[str, str]) -> list[str]:
    """
    Change a running broker's settings: all that are known, or none.

    :returns: the keys that were known; the others are ignored, as in RocketMQ.
    :raises ConfigurationError: a value does not fit.
    """
    return list(change(_objects(configuration), changes))


def update_refusal(configuration: BrokerConfiguration, keys: Iterable[str]) -> str | None:
    """Return why a running broker does not change these keys; None: it may change them."""
    own = (*configuration.own_objects, configuration.unserved)
    return fixed_refusal(own, keys, "the broker", _controller(configuration))


def _objects(configuration: AnyConfiguration) -> tuple[Any, ...]:
    """Return the objects whose keys are shown: first the served keys, then the unserved ones."""
    within: tuple[ControllerConfig, ...] = ()
    if not isinstance(configuration, ControllerConfiguration):
        within = _controller(configuration)
    return (*configuration.own_objects, *within, configuration.unserved)


def _controller(
    configuration: BrokerConfiguration | NamesrvConfiguration,
) -> tuple[ControllerConfig, ...]:
    """Return the settings of the controller in this process; empty: none runs in it."""
    return (configuration.controller,) if configuration.runs_controller else ()


def _option_lines(configuration: AnyConfiguration) -> list[str]:
    """Return the lines of the keys with a dot, without passwords: peers can ask for the lines."""
    return [
        f"{key}={one_line(value)}"
        for key, value in configuration.plugin_options.items()
        if not key.lower().endswith("password")
    ]


def _complete_broker(configuration: BrokerConfiguration, surroundings: Surroundings) -> None:
    """Compute the values that Java computes from the machine. Spec: store.md, section 13.4."""
    broker, store = configuration.broker, configuration.store
    environ = surroundings.environ
    broker.rocketmq_home = broker.rocketmq_home or environ.get("ROCKETMQ_HOME")
    if broker.namesrv_addr is None and environ.get("NAMESRV_ADDR", "").strip():
        broker_key = keys_of(broker)["namesrvAddr"]
        try:
            broker.namesrv_addr = parse_value(broker_key, environ["NAMESRV_ADDR"])
        except ValueError as error:
            raise ConfigurationError(
                f"environment: NAMESRV_ADDR={environ['NAMESRV_ADDR']}: {error}"
            ) from None
    broker.broker_name = broker.broker_name or surroundings.host_name
    bound = configuration.ours.bind_address
    address = surroundings.address if bound in ANY_ADDRESS else bound
    broker.broker_ip1 = broker.broker_ip1 or address
    broker.broker_ip2 = broker.broker_ip2 or address
    root = surroundings.absolute(store.store_path_root_dir or surroundings.below_home("store"))
    store.store_path_root_dir = root
    store.store_path_commit_log = surroundings.absolute(
        store.store_path_commit_log or f"{root}/commitlog"
    )


def _apply_role(
    configuration: BrokerConfiguration, settings: Mapping[str, Setting], notices: list[ConfigNotice]
) -> None:
    """
    Make brokerRole and brokerId fit each other, unless an election decides the role.

    Spec: store.md, section 13.2.

    :raises ConfigurationError: a SLAVE has no brokerId above 0, or no way to find its master.
    """
    broker, store = configuration.broker, configuration.store
    if is_dledger(configuration) or is_controlled(configuration):
        return  # an election decides the role, and brokerId is an id that stays
    where = settings.get("brokerId") or Setting("brokerId", str(broker.broker_id), "default")
    if store.broker_role is not BrokerRole.SLAVE:
        if broker.broker_id != 0:
            role = store.broker_role.name
            notices.append(
                ConfigNotice(
                    f"{where.where}: brokerId={broker.broker_id} becomes 0: {role} is a master"
                )
            )
        broker.broker_id = 0
        return
    if broker.broker_id <= 0:
        raise where.error("a SLAVE needs a brokerId above 0")
    if broker.namesrv_addr is None:
        if store.ha_master_address is None:
            raise settings["brokerRole"].error(
                "a SLAVE must find its master: set namesrvAddr (it learns the address there), "
                "or haMasterAddress to replicate messages alone"
            )
        notices.append(
            ConfigNotice(
                "without namesrvAddr this SLAVE replicates messages from haMasterAddress, but not "
                "topics, groups and consumer offsets, and no client finds it"
            )
        )
    elif configuration.ours.acl_access_key and not configuration.ours.ha_trusted_masters:
        notices.append(
            ConfigNotice(
                "without haTrustedMasters this SLAVE sends its signed requests to whomever the "
                "name server takes for its master"
            )
        )


def _apply_ports(
    configuration: BrokerConfiguration, settings: Mapping[str, Setting], notices: list[ConfigNotice]
) -> None:
    """
    Set the port for slaves, which is always listenPort + 1, and check that no port has two
    purposes.

    Spec: store.md, section 13.2.

    :raises ConfigurationError: a port has two purposes, or listenPort has no room beside it.
    """
    port = configuration.server.listen_port
    if not 3 <= port <= 65534:
        where = settings["listenPort"]
        raise where.error("must be from 3 to 65534: listenPort - 2 and listenPort + 1 are used too")
    setting = settings.get("haListenPort")
    if setting and configuration.store.ha_listen_port != port + 1:
        notices.append(
            ConfigNotice(
                f"{setting.where}: haListenPort={setting.value} becomes {port + 1}: replication "
                f"always uses listenPort + 1"
            )
        )
    configuration.store.ha_listen_port = port + 1
    if is_dledger(configuration):
        _check_dledger_port(configuration, settings)
    if embeds_namesrv(configuration):
        embedded = configuration.ours.embedded_namesrv_port
        for planned in port_plan(configuration)[:3]:
            if planned.port == embedded:
                raise ConfigurationError(
                    f"embeddedNamesrvPort={embedded}: this port is for {planned.purpose}; "
                    f"set another, or namesrvAddr"
                )
    check_controller_port(port_plan(configuration), settings)
    check_grpc_port(port_plan(configuration), settings)
    check_metrics_port(port_plan(configuration), settings)


def _check_duplicates(configuration: BrokerConfiguration, settings: Mapping[str, Setting]) -> None:
    """
    Check that the index of keys is on if duplicateWindowMillis is set: a broker looks up in it
    whether it has stored the id of a message before.

    :raises ConfigurationError: the index is off.
    """
    if configuration.ours.duplicate_window_millis and not configuration.store.message_index_enable:
        raise settings["duplicateWindowMillis"].error(
            "ids are looked up in the index of keys, which is off: remove messageIndexEnable=false"
        )


def _apply_batch_size(
    configuration: BrokerConfiguration, settings: Mapping[str, Setting], notices: list[ConfigNotice]
) -> None:
    """
    Let a haTransferBatchSize of the file replace haTransferBatchMax; note a haTransferBatchMax
    beside it that has no effect.
    """
    store, own = configuration.store, configuration.ours
    named, largest = settings.get("haTransferBatchSize"), settings.get("haTransferBatchMax")
    if named is None:
        return
    if largest is None:
        own.ha_transfer_batch_max = store.ha_transfer_batch_size
    elif store.ha_transfer_batch_size != keys_of(store)["haTransferBatchSize"].default:
        notices.append(
            ConfigNotice(
                f"{largest.where}: haTransferBatchMax={largest.value} does nothing: "
                f"haTransferBatchSize={named.value} is set"
            )
        )


def _check_dledger_port(
    configuration: BrokerConfiguration, settings: Mapping[str, Setting]
) -> None:
    """
    Check that the port of the group is not a port for clients.

    :raises ConfigurationError: the two ports are the same.
    """
    *others, own = port_plan(configuration)[:3]
    for planned in others:
        if planned.port == own.port:
            raise settings["dLegerPeers"].error(
                f"the own entry's port {own.port} is for {planned.purpose}; give it another"
            )


def _complete_acl(
    configuration: BrokerConfiguration,
    settings: Mapping[str, Setting],
    surroundings: Surroundings,
) -> None:
    """
    Check the settings of secrets, and complete those of access control: aclEnable=true chooses the
    built-in plugin, and its directory is computed if it is missing.

    Spec: remoting.md, section 10.3.

    :raises ConfigurationError: settings of secrets do not fit each other, or the directory of
        plain_acl.yml is not known. A broker that shall check access never runs without access
        control.
    """
    own = configuration.ours
    if own.ha_secret_file:
        if own.ha_secret:
            raise settings["haSecretFile"].error("haSecret is set, too: leave one of them out")
        own.ha_secret_file = surroundings.absolute(own.ha_secret_file)
    if own.ha_secret_required and not (own.ha_secret or own.ha_secret_file):
        raise settings["haSecretRequired"].error(
            "haSecret is missing, and haSecretFile: nobody could know it"
        )
    if bool(own.acl_access_key) != bool(own.acl_secret_key):
        setting = settings["aclAccessKey" if own.acl_access_key else "aclSecretKey"]
        shown = setting if own.acl_access_key else setting._replace(value="***")
        raise shown.error("aclAccessKey and aclSecretKey need each other")
    if configuration.broker.acl_enable and not own.acl_plug_in:
        own.acl_plug_in = PLAIN_ACL
    if PLAIN_ACL not in _names(own.acl_plug_in):
        return
    home = configuration.broker.rocketmq_home
    directory = own.acl_directory or _acl_directory(home, configuration.config_file)
    own.acl_directory = surroundings.absolute(directory)


def _acl_directory(home: str | None, config_file: str | None) -> str:
    """
    Return the directory of plain_acl.yml if aclDirectory is empty.

    :param home: rocketmqHome.
    :param config_file: path of the properties file.
    :raises ConfigurationError: both are missing.
    """
    if home:
        return f"{home}/conf"
    if config_file:
        return os.path.dirname(config_file)
    raise ConfigurationError(
        "aclEnable=true: set aclDirectory to the directory of plain_acl.yml; without a "
        "properties file and rocketmqHome nothing tells where it is"
    )


def _names(text: str) -> set[str]:
    return {name.strip() for name in text.split(",")}


def _check_plugin_options(
    configuration: BrokerConfiguration, settings: Mapping[str, Setting], notices: list[ConfigNotice]
) -> None:
    """Note the options of plugins that no key chooses: most of them are typing mistakes."""
    chosen = _names(configuration.broker.message_store_plug_in)
    for attribute in _PLUG_IN_KEYS[1:]:
        chosen |= _names(getattr(configuration.ours, attribute))
    for key in configuration.plugin_options:
        plugin = key.split(".", 1)[0]
        if plugin != "tls" and plugin not in chosen:
            text = f"{settings[key].where}: unknown key {key}: no plugin {plugin!r} is chosen"
            notices.append(ConfigNotice(text, is_unknown=True))
