"""Texts for people show no Python values: the rule, the agreed sheets, and all help texts."""

import json
from collections.abc import Iterator
from typing import Any

import click
import pytest

from rmq_ha.ops.admin.main import main
from tests.kits.agreed import DATA
from tests.kits.shown_texts import python_value


@pytest.mark.parametrize(
    "text",
    [
        "topic orders: {'readQueueNums': '4'}",
        "problems: ['no answer']",
        "broker ('broker-a', 2) is dead",
        "agreed: MasterElected(broker_name='broker-a', master_id=1)",
        "<rmq_ha.server.broker.Broker object at 0x7f11>",
        "rows [<Row 1>]",
        "members set()",
        "changed: {}",
        "the first is None",
        "master=None",
    ],
)
def test_a_python_value_in_a_text_is_found(text: str) -> None:
    assert python_value(text)


@pytest.mark.parametrize(
    "text",
    [
        "queue 3 of orders at broker-a",
        "putMessageDistributeTime [<=0ms]:7 [0~10ms]:0",
        "None of the brokers answers",
        "brokers [broker-a, broker-b] (2)",
        '{"topics": ["a"], "master": null}',
        "connect to [fd00::1]:9876 ('tls' is off)",
    ],
)
def test_words_are_no_python_value(text: str) -> None:
    assert python_value(text) is None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


@pytest.mark.parametrize("sheet", sorted(DATA.glob("*.json")), ids=lambda path: path.stem)
def test_no_agreed_sheet_has_a_python_value(sheet: Any) -> None:
    shown = _texts(json.loads(sheet.read_text()))
    assert [text for text in shown if python_value(text)] == []


def _helps(command: click.Command) -> Iterator[str]:
    yield command.help or ""
    yield from (getattr(option, "help", None) or "" for option in command.params)
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            inner = command.get_command(click.Context(command), name)
            if inner is not None:
                yield from _helps(inner)


def test_no_help_text_has_a_python_value() -> None:
    helps = list(_helps(main))
    assert len(helps) > 500
    assert [text for text in helps if python_value(text)] == []
