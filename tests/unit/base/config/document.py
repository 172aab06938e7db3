"""
The tables of `docs/reference/settings.md`, which are made from the rows of the keys.

`python -m tests.unit.base.config.document` writes them; the text around them is written by hand.
"""

import re
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path

from rmq_ha.base.config.broker import BrokerConfig
from rmq_ha.base.config.controller import ControllerConfig
from rmq_ha.base.config.controller_mode_keys import ControllerModeConfig
from rmq_ha.base.config.every_server import EveryServerConfig
from rmq_ha.base.config.fields import INT_MAX, LONG_MAX, FirstReader, Key, keys_of
from rmq_ha.base.config.namesrv import NamesrvConfig
from rmq_ha.base.config.netty import NettyClientConfig, NettyServerConfig
from rmq_ha.base.config.own_keys import RmqHaConfig
from rmq_ha.base.config.store import MessageStoreConfig
from rmq_ha.base.config.tls_keys import TLS_KEYS
from rmq_ha.base.config.unserved_keys import UNSERVED, UnservedKey
from rmq_ha.base.config.values import format_value

DOCUMENT = Path(__file__).parents[4] / "docs" / "reference" / "settings.md"
_TABLE = re.compile(r"(<!-- table: ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def _own_keys(config_class: type) -> list[Key]:
    """The keys of a class without those that every server has."""
    shared = keys_of(EveryServerConfig) if config_class is not EveryServerConfig else {}
    return [row for name, row in keys_of(config_class).items() if name not in shared]


def _values(row: Key) -> str:
    if row.kind is bool:
        return "true, false"
    if issubclass(row.kind, Enum):
        return ", ".join(row.kind.__members__)
    if row.kind is int:
        is_open = row.most in (INT_MAX, LONG_MAX)
        return f"{row.least} at least" if is_open else f"{row.least} to {row.most}"
    return row.rule.values if row.rule is not None else "text"


def _default(row: Key) -> str:
    if row.is_optional and row.default is None:
        return "computed"
    text = format_value(row.default)
    return f"`{text}`" if text else "empty"


def _change(row: Key) -> str:
    if row.is_mutable:
        return "at once"
    return f"file only: {row.local.value}" if row.local is not None else "restart"


def keys_table(rows: Iterable[Key]) -> list[str]:
    head = ["| key | default | values | a change counts | since | meaning |", "|---|" + "---|" * 5]
    return head + [
        f"| `{row.name}` | {_default(row)} | {_values(row)} | {_change(row)} "
        f"| {row.since.value} | {row.meaning} |"
        for row in rows
    ]


def tls_table() -> list[str]:
    head = ["| key | values | since | meaning |", "|---|---|---|---|"]
    return head + [
        f"| `{row.name}` | {_values(row)} | {row.since.value} | {row.meaning} |"
        for row in TLS_KEYS.values()
    ]


def unserved_table(is_wanted: Callable[[UnservedKey], bool]) -> list[str]:
    head = ["| key | since | why it does nothing here | what to do |", "|---|---|---|---|"]
    return head + [
        f"| `{row.name}` | {row.since.value} | {row.why} | {row.advice or 'remove the line'} |"
        for row in UNSERVED.values()
        if row.why and is_wanted(row)
    ]


TABLES: dict[str, Callable[[], list[str]]] = {
    "every server": lambda: keys_table(_own_keys(EveryServerConfig)),
    "broker": lambda: keys_table(_own_keys(BrokerConfig)),
    "store": lambda: keys_table(_own_keys(MessageStoreConfig)),
    "network": lambda: keys_table([*_own_keys(NettyServerConfig), *_own_keys(NettyClientConfig)]),
    "ours": lambda: keys_table(_own_keys(RmqHaConfig)),
    "controller mode": lambda: keys_table(_own_keys(ControllerModeConfig)),
    "name server": lambda: keys_table(_own_keys(NamesrvConfig)),
    "controller": lambda: keys_table(_own_keys(ControllerConfig)),
    "tls": tls_table,
    "refused": lambda: unserved_table(lambda row: row.is_refused),
    "without effect": lambda: unserved_table(
        lambda row: row.since is FirstReader.RMQ_4 and not row.is_refused
    ),
    "other versions": lambda: unserved_table(
        lambda row: row.since is not FirstReader.RMQ_4 and not row.is_refused
    ),
}


def as_it_has_to_be(text: str) -> str:
    """The document with its tables made anew."""

    def table(match: re.Match[str]) -> str:
        return "\n".join([match[1].rstrip("\n"), "", *TABLES[match[2]](), "", match[3]])

    return _TABLE.sub(table, text)


if __name__ == "__main__":
    DOCUMENT.write_text(as_it_has_to_be(DOCUMENT.read_text()))
