"""The parts of a broker that its plugins may use."""

from collections.abc import Callable
from dataclasses import dataclass

from zope.interface import implementer

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.interfaces import IBrokerContext
from rmq_ha.base.seams import Host


@implementer(IBrokerContext)
@dataclass(frozen=True)
class BrokerContext:
    """
    A broker's host and configuration, and the plugins' own settings.

    :ivar find_record: see `rmq_ha.server.store.reading.starts`.
    """

    host: Host
    configuration: BrokerConfiguration
    find_record: Callable[[int], bytes | None]

    def option(self, name: str, default: str | None = None) -> str | None:
        """
        Return the plugin's own setting `<plugin name>.<key>` of the properties file.

        :param name: `<plugin name>.<key>`.
        """
        return self.configuration.plugin_options.get(name, default)

    def record_starting_at(self, physical_offset: int) -> bytes | None:
        """Return the record that starts at a physical offset; None if none starts there."""
        return self.find_record(physical_offset)
