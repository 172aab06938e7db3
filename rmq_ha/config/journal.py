"""Which journal keeps a broker's messages."""

from rmq_ha.config.broker_configuration import BrokerConfiguration
from rmq_ha.config.controller_mode import is_controlled
from rmq_ha.config.dledger import is_dledger

CLASSIC = "classic"
DLEDGER = "dledger"
CONTROLLER = "controller"


def journal_name(configuration: BrokerConfiguration) -> str:
    """The plugin that makes it: the one that is named, else as the mode wants it."""
    named = configuration.ours.journal_plug_in.strip()
    if named:
        return named
    if is_dledger(configuration):
        return DLEDGER
    return CONTROLLER if is_controlled(configuration) else CLASSIC
