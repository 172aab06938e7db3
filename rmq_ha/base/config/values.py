"""One setting's text to its value and back."""

import re
from dataclasses import Field
from enum import Enum
from types import UnionType
from typing import Any, get_args

from rmq_ha.base.config.limits import (
    INT_MAX,
    LONG_KEYS,
    LONG_MAX,
    RANGES,
    TLS_BOOLEANS,
    TLS_CHOICES,
    Range,
)
from rmq_ha.base.model.networks import Networks
from rmq_ha.base.model.printable import is_one_line

LEAST_SECRET = 16
"""Characters of a secret that brokers share."""

_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_BOOLEANS = {"true": True, "false": False}
_DELAY_LEVEL = re.compile(r"[0-9]{1,9}[smhd]")
_ADDRESS_LISTS = {"namesrvAddr"}
_ADDRESSES = {"haMasterAddress"}
_NETWORKS = {
    "controllerAllowedBrokers",
    "controllerOperatorHosts",
    "dLegerOperatorHosts",
    "dLegerPeerHosts",
    "haAllowedSlaves",
    "namesrvAllowedBrokers",
}
_ONE_DIRECTORY = {"storePathRootDir", "storePathCommitLog"}


def parse_value(item: Field[Any], text: str) -> Any:
    """
    The typed value of a setting; blanks around it do not count.

    :param item: a field made with `rmq_ha.base.config.fields.key`.
    :raises ValueError: with the reason, for a person.
    """
    name: str = item.metadata["key"]
    kind, is_optional = _kind(item)
    text = text.strip()
    if is_optional and not text:
        return None
    if kind is bool:
        return _parse_bool(text)
    if kind is int:
        return _parse_int(name, text)
    if issubclass(kind, Enum):
        if text not in kind.__members__:
            raise ValueError(f"must be one of {', '.join(kind.__members__)}")
        return kind[text]
    if not is_one_line(text):
        raise ValueError("must not contain line breaks or other control characters")
    _check_text(name, text)
    return text


def format_value(value: Any) -> str:
    """As a properties file says it; empty for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.name if isinstance(value, Enum) else str(value)


def check_tls(name: str, text: str) -> None:
    """:raises ValueError: a `tls.` setting has a value that is none."""
    if name in TLS_BOOLEANS:
        _parse_bool(text)
    choices = TLS_CHOICES.get(name)
    if choices and text not in choices:
        raise ValueError(f"must be one of {', '.join(choices)}")


def _kind(item: Field[Any]) -> tuple[type, bool]:
    """The type without None, and whether None is allowed."""
    if isinstance(item.type, UnionType):
        return next(kind for kind in get_args(item.type) if kind is not type(None)), True
    assert isinstance(item.type, type)
    return item.type, False


def _parse_bool(text: str) -> bool:
    value = _BOOLEANS.get(text.lower())
    if value is None:
        raise ValueError("must be true or false")
    return value


def _parse_int(name: str, text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError("must be a whole number")
    high = LONG_MAX if name in LONG_KEYS else INT_MAX
    allowed = RANGES.get(name, Range(0, high))
    if name in LONG_KEYS:
        allowed = Range(allowed.low, high)
    value = int(text)
    if not allowed.low <= value <= allowed.high:
        raise ValueError(f"must be from {allowed.low} to {allowed.high}")
    return value


def _check_text(name: str, text: str) -> None:
    if name in _ADDRESS_LISTS:
        for address in text.split(";"):
            _check_address(address)
    elif name in _ADDRESSES:
        _check_address(text)
    elif name in _NETWORKS:
        Networks(text)
    elif name in ("haSecret", "pageToken"):
        if 0 < len(text) < LEAST_SECRET:
            raise ValueError(f"needs at least {LEAST_SECRET} characters")
    elif name == "haTrustedMasters":
        Networks(text, with_names=True)
    elif name == "deleteWhen":
        for hour in text.split(";"):
            if hour.strip() and not (hour.strip().isdecimal() and int(hour) < 24):
                raise ValueError("must be hours from 00 to 23, separated by ;")
    elif name == "messageDelayLevel":
        if not text:
            raise ValueError("needs at least one level, such as 1s")
        for level in text.split(" "):  # one blank each, as Java splits it
            if not _DELAY_LEVEL.fullmatch(level):
                raise ValueError(f"{level!r} is not a number with s, m, h or d")
    elif name in _ONE_DIRECTORY and "," in text:
        raise ValueError("several directories are not implemented: name one")


def _check_address(text: str) -> None:
    if "://" in text:
        raise ValueError(f"{text.strip()!r} is a URL: write host:port alone")
    if "," in text:
        raise ValueError(f"{text.strip()!r}: between two addresses is a semicolon, no comma")
    host, colon, port = text.strip().rpartition(":")
    if not (host and colon and port.isdecimal() and 0 < int(port) < 65536):
        raise ValueError(f"{text.strip()!r} is not host:port")
