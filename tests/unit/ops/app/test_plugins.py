"""Finding plugins by name."""

from typing import Any

import pytest
from twisted.plugin import IPlugin
from zope.interface import implementer
from zope.interface.verify import verifyObject

from rmq_ha.base.config.broker_configuration import BrokerConfiguration
from rmq_ha.base.errors import PluginNotFound
from rmq_ha.base.interfaces import IDispatcherPlugin, IJournalPlugin
from rmq_ha.server.plugins import load_configured, load_plugins, split_names


@implementer(IDispatcherPlugin)
class Named:
    def __init__(self, name: str) -> None:
        self.name = name

    def make_dispatcher(self, broker: Any) -> Any:
        return self


INSTALLED = (Named("b"), Named("a"), Named("twin"), Named("twin"))


def load(*names: str) -> list[Any]:
    return load_plugins(IDispatcherPlugin, names, lambda interface: INSTALLED)


def test_plugins_come_in_the_order_of_the_names() -> None:
    assert load("a", "b") == [INSTALLED[1], INSTALLED[0]]
    assert load() == []


def test_a_missing_name_tells_the_interface_and_the_names_there_are() -> None:
    with pytest.raises(PluginNotFound) as caught:
        load("c")
    assert str(caught.value) == (
        "no IDispatcherPlugin called 'c' is installed; installed: a, b, twin"
    )


def test_two_of_one_name_stop_the_start_when_it_is_asked_for() -> None:
    assert load("a")
    with pytest.raises(PluginNotFound, match="2 of IDispatcherPlugin are called 'twin'"):
        load("twin")


def test_names_are_separated_by_commas() -> None:
    assert split_names(" a, b,,c ") == ["a", "b", "c"]
    assert split_names("") == []


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "classic"),
        ({"store.enable_dleger_commit_log": True}, "dledger"),
        ({"controlled.enable_controller_mode": True}, "controller"),
        ({"ours.journal_plug_in": "dledger"}, "dledger"),
        ({"ours.journal_plug_in": " classic, "}, "classic"),
    ],
)
def test_the_built_ins_are_plugins_like_others(settings: dict[str, Any], name: str) -> None:
    """And have honest names: one that is given by hand is the one that is taken."""
    configuration = BrokerConfiguration()
    for key, value in settings.items():
        part, _, attribute = key.partition(".")
        setattr(getattr(configuration, part), attribute, value)
    (journal,) = load_configured(configuration)[IJournalPlugin]
    assert journal.name == name
    assert verifyObject(IJournalPlugin, journal)
    assert IPlugin.providedBy(journal)
