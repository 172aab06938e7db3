"""Times and spans as people write them."""

import re
from datetime import UTC, datetime

from rmq_ha.errors import WrongUsage

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SPAN = re.compile(r"(\d{1,12})(ms|s|m|h|d)")
_MS = re.compile(r"\d{9,15}")


def span_ms(text: str) -> int:
    """
    `90s`, `5m`, `2h`, `7d`, as ms.

    :raises WrongUsage: it is something else.
    """
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise WrongUsage(f"{text!r} is no span of time: write 500ms, 90s, 5m, 2h or 7d")
    return int(found[1]) * _UNITS[found[2]]


def moment_ms(text: str, now_ms: int) -> int:
    """
    A point in time: ISO 8601 (UTC unless it says otherwise), ms since the epoch, or an age (`7d`).

    :param now_ms: the time, ms since the epoch.
    :raises WrongUsage: it is something else.
    """
    text = text.strip()
    if _SPAN.fullmatch(text):
        return now_ms - span_ms(text)
    if _MS.fullmatch(text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise WrongUsage(
            f"{text!r} is no time: write 2026-01-31, 2026-01-31T12:00:00, ms since the epoch, or an"
            " age like 7d"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
