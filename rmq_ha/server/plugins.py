"""Finds the plugins that a configuration names.

An installed plugin that no configuration names is not used. Twisted logs a plugin file that cannot
be imported and goes on without it; here a missing name stops the start.
"""

from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

from twisted.plugin import getPlugins

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.journal import journal_name
from rmq_ha.base.errors import ConfigurationError, PluginNotFound
from rmq_ha.base.interfaces import (
    IAccessPlugin,
    IDispatcherPlugin,
    IHookPlugin,
    IJournalPlugin,
    IMessageStorePlugin,
)
from rmq_ha.server.store.journal import Journal

Find = Callable[[Any], Iterable[Any]]


def split_names(text: str) -> list[str]:
    """Return the names in a comma-separated setting, in order."""
    return [name.strip() for name in text.split(",") if name.strip()]


def load_plugins(interface: Any, names: Iterable[str], find: Find = getPlugins) -> list[Any]:
    """
    Return the plugins called `names`, in that order.

    :param interface: one of the `I...Plugin` interfaces.
    :param find: returns all installed plugins of an interface; a caller that starts many brokers
        may pass a cached one.
    :raises PluginNotFound: a name is not installed (the message lists the installed names), or two
        installed plugins have it.
    """
    names = list(names)
    if not names:
        return []
    installed: dict[str, list[Any]] = {}
    for plugin in find(interface):
        installed.setdefault(plugin.name, []).append(plugin)
    for name in names:
        plugins = installed.get(name, [])
        if not plugins:
            known = ", ".join(sorted(installed)) or "none"
            raise PluginNotFound(
                f"no {interface.__name__} called {name!r} is installed; installed: {known}"
            )
        if len(plugins) > 1:
            places = " and ".join(sorted(type(plugin).__module__ for plugin in plugins))
            raise PluginNotFound(
                f"{len(plugins)} of {interface.__name__} are called {name!r}: in {places}; "
                f"uninstall all but one"
            )
    return [installed[name][0] for name in names]


def checked(plugin: Any, made: Any, *interfaces: Any) -> Any:
    """
    Return the object that a plugin made, if the broker can use it.

    :param interfaces: it must provide one of them.
    :raises ConfigurationError: it provides none, so it would be ignored or fail later.
    """
    if any(interface.providedBy(made) for interface in interfaces):
        return made
    names = " nor ".join(interface.__name__ for interface in interfaces)
    raise ConfigurationError(
        f"plugin {plugin.name!r} of {type(plugin).__module__} made {made!r}, which does not "
        f"provide {names}: its class needs zope's @implementer"
    )


def checked_journal(plugin: Any, made: Any) -> Journal:
    """
    Return the journal that a plugin made, if it has all methods of a `Journal`.

    :raises ConfigurationError: it lacks methods, or has one that is never called; the message names
        them.
    """
    where = f"plugin {plugin.name!r} of {type(plugin).__module__}"
    if hasattr(made, "kept"):
        raise ConfigurationError(
            f"{where} made {made!r} with a method `kept`, which is called `when_kept` since "
            "0.2.0: rename it, since the broker would acknowledge messages without asking it"
        )
    methods = [name for name, item in vars(Journal).items() if isinstance(item, FunctionType)]
    missing = sorted(n for n in methods if not n.startswith("_") and not hasattr(made, n))
    if not missing:
        journal: Journal = made
        return journal
    raise ConfigurationError(
        f"{where} made {made!r}, which is no Journal: it has no {', '.join(missing)}; "
        "subclass rmq_ha.server.replication.classic.journal.ClassicJournal"
    )


def load_configured(
    configuration: BrokerConfiguration, find: Find = getPlugins
) -> dict[Any, list[Any]]:
    """
    Load every plugin that a broker's configuration names.

    :param find: see `load_plugins`.
    :raises PluginNotFound: a plugin is missing, or is installed twice.
    """
    own = configuration.ours
    named = {
        IJournalPlugin: journal_name(configuration),
        IMessageStorePlugin: configuration.broker.message_store_plug_in,
        IDispatcherPlugin: own.dispatcher_plug_in,
        IHookPlugin: own.hook_plug_in,
        IAccessPlugin: own.acl_plug_in,
    }
    return {
        interface: load_plugins(interface, split_names(text), find)
        for interface, text in named.items()
    }
