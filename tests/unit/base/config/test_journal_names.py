"""Which journal keeps a broker's messages: the one that is named, else as the mode wants it."""

import pytest

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.config.journal import journal_name
from rmq_ha.base.errors import ConfigurationError


def configuration(
    named: str = "", dledger: bool = False, controlled: bool = False
) -> BrokerConfiguration:
    made = BrokerConfiguration()
    made.ours.journal_plug_in = named
    made.store.enable_dleger_commit_log = dledger
    made.controlled.enable_controller_mode = controlled
    return made


@pytest.mark.parametrize(
    ("dledger", "controlled", "name"),
    [(False, False, "classic"), (True, False, "dledger"), (False, True, "controller")],
)
def test_the_mode_decides_unless_one_is_named(dledger: bool, controlled: bool, name: str) -> None:
    for text in ("", " "):
        assert journal_name(configuration(text, dledger, controlled)) == name
    for text in ("acme", " acme ,", "acme"):
        assert journal_name(configuration(text, dledger, controlled)) == "acme"


@pytest.mark.parametrize("text", ["acme,classic", ",", " , "])
def test_exactly_one_is_named(text: str) -> None:
    with pytest.raises(ConfigurationError, match="name one"):
        journal_name(configuration(text))
