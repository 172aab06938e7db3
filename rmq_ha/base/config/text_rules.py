"""Rules for the texts of keys: addresses, networks, secrets, hours, delay levels."""

import re

from rmq_ha.base.config.fields import TextRule
from rmq_ha.base.model.host_port import parse_host_port
from rmq_ha.base.model.networks import Networks

LEAST_SECRET = 16
"""Least number of characters of a secret that servers share."""
_DELAY_LEVEL = re.compile(r"[0-9]{1,9}[smhd]")


def _addresses(text: str) -> None:
    for address in text.split(";"):
        _address(address)


def _address(text: str) -> None:
    if "://" in text:
        raise ValueError(f"{text.strip()!r} is a URL: write host:port alone")
    if "," in text:
        raise ValueError(f"{text.strip()!r}: between two addresses is a semicolon, no comma")
    parse_host_port(text)


def _secret(text: str) -> None:
    if 0 < len(text) < LEAST_SECRET:
        raise ValueError(f"needs at least {LEAST_SECRET} characters")


def _hours(text: str) -> None:
    for hour in text.split(";"):
        if hour.strip() and not (hour.strip().isdecimal() and int(hour) < 24):
            raise ValueError("must be hours from 00 to 23, separated by ;")


def _levels(text: str) -> None:
    if not text:
        raise ValueError("needs at least one level, such as 1s")
    for level in text.split(" "):  # one blank each, as Java splits it
        if not _DELAY_LEVEL.fullmatch(level):
            raise ValueError(f"{level!r} is not a number with s, m, h or d")


def _one_directory(text: str) -> None:
    if "," in text:
        raise ValueError("several directories are not implemented: name one")


def one_of(*values: str) -> TextRule:
    """Make the rule of a key that takes only these texts, in this spelling."""

    def check(text: str) -> None:
        if text not in values:
            raise ValueError(f"must be one of {', '.join(values)}")

    return TextRule(", ".join(values), check)


ADDRESS = TextRule("host:port", _address)
ADDRESSES = TextRule("host:port, several separated by ;", _addresses)
NETWORKS = TextRule("addresses and networks, separated by commas", Networks)
HOSTS = TextRule(
    "names, addresses and networks, separated by commas",
    lambda text: Networks(text, with_names=True),
)
SECRET = TextRule(f"empty, or at least {LEAST_SECRET} characters", _secret)
HOURS = TextRule("hours from 00 to 23, separated by ;", _hours)
LEVELS = TextRule("numbers with s, m, h or d, one blank between two", _levels)
ONE_DIRECTORY = TextRule("one directory", _one_directory)
