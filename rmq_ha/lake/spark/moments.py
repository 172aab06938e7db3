"""Parses times and durations on the command line of a job."""

import re
from datetime import UTC, datetime

from rmq_ha.base.errors import WrongUsage
from rmq_ha.base.spans import span_ms

_MS = re.compile(r"\d{9,15}")


def needed_span(text: str, option: str, least: int = 1) -> int:
    """
    Return a duration in ms.

    :raises WrongUsage: the text is no duration, or it is shorter than `least` ms.
    """
    span = span_ms(text)
    if span is None or span < least:
        raise WrongUsage(f"{option} {text}: no span of time: write 500ms, 90s, 5m, 2h or 7d")
    return span


def moment_ms(text: str, now_ms: int) -> int:
    """
    Return a point in time in ms since the epoch: ISO 8601 (UTC unless it says otherwise), ms since
    the epoch, or an age (`7d`).

    :raises WrongUsage: the text has another form.
    """
    text = text.strip()
    age = span_ms(text)
    if age is not None:
        return now_ms - age
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
