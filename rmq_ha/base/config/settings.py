"""
Puts settings into configuration objects; each setting knows the file and line that it comes from.

A wrong value stops the start. An odd one becomes a `ConfigNotice`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from rmq_ha.base.config.fields import Key, keys_of
from rmq_ha.base.config.properties import parse
from rmq_ha.base.config.tls_keys import TLS_KEYS
from rmq_ha.base.config.unserved_keys import UNSERVED, UnservedKey
from rmq_ha.base.config.values import check_tls, format_value, parse_value
from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.printable import one_line

_VARIABLE = re.compile(r"\$(\{|[A-Za-z_])")
_COMMENT = re.compile(r"\s(#|//)")


class ConfigNotice(NamedTuple):
    """
    A text for the operator.

    :ivar is_unknown: whether the text is about a key that no program reads; `--check` fails on it.
    """

    text: str
    is_unknown: bool = False


class DoubtfulValue(ConfigNotice):
    """A value that is surely a mistake. A server starts with it, and `--check` fails."""

    __slots__ = ()


class Setting(NamedTuple):
    """
    One key with its value.

    :ivar where: `file:line`, or the option with which it was given.
    """

    key: str
    value: str
    where: str

    def error(self, reason: str) -> ConfigurationError:
        """Return the error for this setting; it names place, key, value and reason."""
        return ConfigurationError(f"{self.where}: {self.key}={one_line(self.value)}: {reason}")


def reason_to_doubt(value: str) -> str | None:
    """Return why a text is surely no intended value; None: nothing is odd about it."""
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        return "the quotes are part of the value: remove them"
    if _COMMENT.search(value):
        return "the comment is part of the value: give it a line of its own that begins with #"
    if value == "~" or value.startswith("~/"):
        return "nobody replaces ~ by a home directory here: write the whole path"
    if _VARIABLE.search(value):
        return "nobody replaces variables here: write the value itself"
    return None


def collect(
    text: str, name: str, overrides: Iterable[tuple[str, str]], notices: list[ConfigNotice]
) -> dict[str, Setting]:
    """
    Return the settings of a file and the overrides, which win; values are stripped.

    :raises ConfigurationError: the file is no properties file.
    """
    settings: dict[str, Setting] = {}
    for item in parse(text, name):
        setting = Setting(item.key, item.value.strip(), f"{name or 'properties'}:{item.line}")
        if item.key in settings:
            notices.append(
                ConfigNotice(
                    f"{setting.where}: {item.key} replaces the one of {settings[item.key].where}"
                )
            )
        settings[item.key] = setting
    for key, value in overrides:
        settings[key] = Setting(key, value.strip(), "command line")
    return settings


def fill(
    settings: Mapping[str, Setting],
    targets: Iterable[Any],
    options: dict[str, str],
    notices: list[ConfigNotice],
) -> None:
    """
    Set every setting at the objects that declare its key.

    :param targets: configuration dataclasses; a key that two of them declare is set at both.
    :param options: gets the settings with a dot: those of `tls.` and those of plugins.
    :raises ConfigurationError: a key does not take its value, or a server must refuse the key.
    """
    targets = list(targets)
    tables = [keys_of(target) for target in targets]
    known = {key for table in tables for key in table}
    for setting in settings.values():
        key = setting.key
        if key in known:
            for target, table in zip(targets, tables, strict=True):
                if key in table:
                    value = _value(setting, table[key])
                    setattr(target, table[key].attribute, value)
                    if value != table[key].default:
                        _check_effect(setting, table[key], notices)
        elif key in TLS_KEYS:
            try:
                check_tls(key, setting.value)
            except ValueError as error:
                raise setting.error(str(error)) from None
            options[key] = setting.value
        elif "." in key.strip(".") and not key.startswith("tls."):
            options[key] = setting.value
        else:
            notices.append(_unknown(setting, known | TLS_KEYS.keys()))


def change(targets: Iterable[Any], texts: Mapping[str, str]) -> dict[str, str]:
    """
    Change the settings of a running server: all known ones, or none.

    :param targets: configuration objects, as for `fill`.
    :returns: the stripped texts of the known keys; other keys are ignored, as in RocketMQ.
    :raises ConfigurationError: a key does not take its value; nothing is changed.
    """
    targets = list(targets)
    assignments: list[tuple[Any, str, Any]] = []
    known: dict[str, str] = {}
    for key, text in texts.items():
        setting = Setting(key, text.strip(), "update")
        for target in targets:
            if row := keys_of(target).get(key):
                assignments.append((target, row.attribute, _value(setting, row)))
                known[key] = setting.value
    for target, name, value in assignments:
        setattr(target, name, value)
    return known


def unknown_keys(options: Iterable[str], settings: Mapping[str, Setting]) -> list[ConfigNotice]:
    """
    Note the keys with a dot at a server without plugins, which reads only those of `tls.`.

    :param options: the keys with a dot that `fill` collected.
    """
    return [
        ConfigNotice(f"{settings[key].where}: unknown key {key}", is_unknown=True)
        for key in options
        if not key.startswith("tls.")
    ]


def render_objects(targets: Iterable[Any], *, only_changed: bool = False) -> list[str]:
    """Return a line `key=value` for each key, in declaration order; a secret's value is `***`."""
    lines: dict[str, str] = {}
    for target in targets:
        for row in keys_of(target).values():
            value = getattr(target, row.attribute)
            if not only_changed or value != row.default:
                text = "***" if row.is_secret and value else format_value(value)
                lines.setdefault(row.name, text)
    return [f"{key}={one_line(value)}" for key, value in lines.items()]


def without_effect(
    target: Any, settings: Mapping[str, Setting], need: str, reason: str = ""
) -> Iterator[ConfigNotice]:
    """
    Yield a notice for each key that is set but does nothing without the key that it needs.

    :param need: the `Key.needs` of these keys: another key, which is false, or `EMBEDDED_NAMESRV`.
    :param reason: the end of the notice; empty: the notice names the other key.
    """
    reason = reason or f" without {need}=true"
    for row in keys_of(target).values():
        is_set = getattr(target, row.attribute) != row.default
        if row.needs == need and row.name in settings and is_set:
            where = settings[row.name].where
            yield ConfigNotice(f"{where}: {row.name} has no effect{reason}")


def _value(setting: Setting, row: Key) -> Any:
    try:
        return parse_value(row, setting.value)
    except ValueError as error:
        shown = setting._replace(value="***") if row.is_secret else setting
        doubt = reason_to_doubt(setting.value)
        raise shown.error(f"{error}; {doubt}" if doubt else str(error)) from None


def _check_effect(setting: Setting, row: Key, notices: list[ConfigNotice]) -> None:
    """Refuse or note a key that has an effect in RocketMQ 4.9 and none in rmq-ha."""
    if not isinstance(row, UnservedKey):
        return
    if row.is_refused:
        raise setting.error(row.reason)
    if not row.is_silent:
        notices.append(ConfigNotice(f"{setting.where}: {row.name} has no effect: {row.reason}"))


def _unknown(setting: Setting, known: Iterable[str]) -> ConfigNotice:
    row = UNSERVED.get(setting.key)
    if row is not None and row.section is None and row.is_refused:
        raise setting.error(row.reason)
    if row is not None and row.sentence:
        is_fault = row.is_guard and setting.value.lower() == "true"
        return ConfigNotice(f"{setting.where}: {row.sentence}", is_unknown=is_fault)
    by_lower = {key.lower(): key for key in sorted(known)}
    nearest = get_close_matches(setting.key.lower(), by_lower, 1, 0.75)
    hint = f"; did you mean {by_lower[nearest[0]]}?" if nearest else ""
    if setting.value.partition("=")[0].strip().lower() in by_lower:
        hint = f": a key ends at the first space; write {one_line(setting.value)}"
    return ConfigNotice(f"{setting.where}: unknown key {setting.key}{hint}", is_unknown=True)
