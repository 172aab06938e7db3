"""Spans of time, and sizes, as people write them."""

import re

_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SPAN = re.compile(rf"([0-9]{{1,12}}(?:\.[0-9]{{1,9}})?)\s*({'|'.join(_MS)})?")

_SIZE = re.compile(r"([0-9]{1,15})\s*([kmg]?)(?:i?b)?")
_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30}


def span_ms(text: str, bare: str = "") -> int | None:
    """
    Parse `500ms`, `90s`, `1.5m` (or `1.5min`), `2h`, `7d` to ms; None if the text has another form.

    :param bare: the unit of a number without unit; empty if a unit is required.
    """
    match = _SPAN.fullmatch(text.strip().lower())
    unit = "" if match is None else match[2] or bare
    return round(float(match[1]) * _MS[unit]) if match is not None and unit else None


def size_of(text: str) -> int | None:
    """Parse `65536`, `64k`, `16mb` or `1gib` to bytes; None if the text has another form."""
    match = _SIZE.fullmatch(text.strip().lower())
    return int(match[1]) << _SHIFTS[match[2]] if match is not None else None
