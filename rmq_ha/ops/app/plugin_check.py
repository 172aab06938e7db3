"""Checks whether the plugins that a configuration names can be made, as a start would make them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.journal import journal_name
from rmq_ha.base.errors import ConfigurationError, PluginNotFound
from rmq_ha.base.interfaces import (
    IAccessPlugin,
    IAccessValidator,
    ICommitLogDispatcher,
    IConsumeMessageHook,
    IDispatcherPlugin,
    IHookPlugin,
    IJournalPlugin,
    IMessageStore,
    IMessageStorePlugin,
    ISendMessageHook,
)
from rmq_ha.base.seams import Host
from rmq_ha.server.broker.context import BrokerContext
from rmq_ha.server.plugins import checked, checked_journal, load_plugins, split_names
from rmq_ha.server.store.message_store import DefaultMessageStore


def check_plugins(host: Host, configuration: BrokerConfiguration) -> list[str]:
    """
    Make every plugin once, in the order of a start; nothing is started, loaded or listened on.

    :returns: remarks for the operator: options that no plugin has asked for.
    :raises ConfigurationError: some plugins cannot be made; the text names each, and why.
    """
    trial = _Trial(_Context(host, configuration, lambda _: None))
    trial.run()
    if trial.faults:
        raise ConfigurationError("\n".join(trial.faults))
    return trial.unasked()


@dataclass(frozen=True)
class _Context(BrokerContext):
    """Remembers which options the plugins have asked for."""

    asked: set[str] = field(default_factory=set)

    def option(self, name: str, default: str | None = None) -> str | None:
        self.asked.add(name)
        return super().option(name, default)


class _Trial:
    def __init__(self, context: _Context) -> None:
        self._context = context
        self.faults: list[str] = []
        self._names: set[str] = set()

    def run(self) -> None:
        context, own = self._context, self._context.configuration.ours
        wrappers = self._context.configuration.broker.message_store_plug_in
        journal = self._make(
            "journalPlugIn",
            journal_name(context.configuration),
            IJournalPlugin,
            lambda plugin, _: checked_journal(plugin, plugin.make_journal(context)),
        )
        if journal is not None:
            host = context.host
            self._make(
                "messageStorePlugIn",
                wrappers,
                IMessageStorePlugin,
                lambda plugin, below: plugin.wrap_store(context, below),
                IMessageStore,
                below=DefaultMessageStore(host, context.configuration, journal, host.memory_bytes),
            )
        self._make(
            "dispatcherPlugIn",
            own.dispatcher_plug_in,
            IDispatcherPlugin,
            lambda plugin, _: plugin.make_dispatcher(context),
            ICommitLogDispatcher,
        )
        self._make(
            "hookPlugIn",
            own.hook_plug_in,
            IHookPlugin,
            lambda plugin, _: plugin.make_hook(context),
            ISendMessageHook,
            IConsumeMessageHook,
        )
        self._make(
            "aclPlugIn",
            own.acl_plug_in,
            IAccessPlugin,
            lambda plugin, _: plugin.make_validator(context),
            IAccessValidator,
        )

    def _make(
        self,
        key: str,
        names: str,
        kind: Any,
        make: Callable[[Any, Any], Any],
        *interfaces: Any,
        below: Any = None,
    ) -> Any:
        """
        Make every plugin of one kind.

        :param make: called with the plugin, and with the object that the plugin before it made.
        :returns: the object that the last plugin made.
        """
        for name in split_names(names):
            self._names.add(name)
            try:
                (plugin,) = load_plugins(kind, [name])
                below = make(plugin, below)
                if interfaces:
                    checked(plugin, below, *interfaces)
            except PluginNotFound as error:
                self.faults.append(str(error))
            except ConfigurationError as error:
                self.faults.append(f"{key}={name}: {error}")
            except Exception as error:  # a plugin's code may raise anything
                reason = f"{type(error).__name__}: {error}"
                module = type(plugin).__module__
                self.faults.append(f"{key}={name}: the plugin of {module} failed: {reason}")
        return below

    def unasked(self) -> list[str]:
        """Return a line for each option of a chosen plugin that the plugin did not ask for."""
        lines = []
        asked = self._context.asked
        for option in self._context.configuration.plugin_options:
            plugin = option.partition(".")[0]
            if plugin in self._names and option not in asked:
                nearest = get_close_matches(option, asked, 1, 0.6)
                hint = f"; did you mean {nearest[0]}?" if nearest else ""
                lines.append(f"{option}: plugin {plugin} did not ask for this option{hint}")
        return lines
