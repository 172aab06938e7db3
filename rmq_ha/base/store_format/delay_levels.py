"""Delay levels, as configurations and messages write them.

Spec: store.md, sections 3.1 and 10.1.
"""

from rmq_ha.base.errors import ConfigurationError
from rmq_ha.base.model.properties import DELAY, decode_properties

_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

DELAY_MARK = f"{DELAY}\x01"
"""A text that is in the properties of each message with a delay, and rarely in those of others."""


def parse_delay_levels(text: str) -> list[int]:
    """
    Return the delays in `messageDelayLevel`, in ms: `1s 5s 2h` becomes 1000, 5000 and 7200000.

    :raises ConfigurationError: a piece is not `<number><s|m|h|d>`.

    Spec: store.md, section 10.1.
    """
    levels: list[int] = []
    for piece in text.split(" "):
        amount, unit = piece[:-1], _UNITS_MS.get(piece[-1:])
        if unit is None or not (amount.isascii() and amount.isdigit() and len(amount) < 16):
            raise ConfigurationError(
                f"messageDelayLevel: {piece[:40]!r} is not a number with s, m, h or d behind it"
            )
        levels.append(int(amount) * unit)
    return levels


def parse_delay_level(text: str) -> int | None:
    """Return a DELAY property as a number; None if it is no number of 32 bits."""
    try:
        level = int(text)
    except ValueError:
        return None
    return level if -0x80000000 <= level <= 0x7FFFFFFF else None


def delay_level_in(properties_string: str) -> int | None:
    """Return the delay level in stored properties; 0 if there is none, None if it is no number."""
    if DELAY_MARK not in properties_string:
        return 0
    text = decode_properties(properties_string).get(DELAY)
    return parse_delay_level(text) if text else 0
