"""Decides which journal keeps a broker's messages."""

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.controller_mode import is_controlled
from rmq_ha.base.config.dledger import is_dledger
from rmq_ha.base.errors import ConfigurationError

CLASSIC = "classic"
DLEDGER = "dledger"
CONTROLLER = "controller"


def journal_name(configuration: BrokerConfiguration) -> str:
    """
    Return the name of the journal's plugin: the one in journalPlugIn, else the one of the mode.

    :raises ConfigurationError: journalPlugIn names several.
    """
    text = configuration.ours.journal_plug_in
    if text.strip():
        named = [name.strip() for name in text.split(",") if name.strip()]
        if len(named) != 1:
            raise ConfigurationError(
                f"journalPlugIn={text}: one journal keeps the messages of a broker: name one, or "
                "leave the key out, and the mode decides"
            )
        return named[0]
    if is_dledger(configuration):
        return DLEDGER
    return CONTROLLER if is_controlled(configuration) else CLASSIC
