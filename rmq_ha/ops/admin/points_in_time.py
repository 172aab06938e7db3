"""Points in time on the command line."""

from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rmq_ha.base.spans import span_ms
from rmq_ha.client.lookup.groups import EARLIEST, LATEST

if TYPE_CHECKING:  # this type is generic only from click 8.3 on
    _ParamType = click.ParamType["PointInTime"]
else:
    _ParamType = click.ParamType


class PointInTime(NamedTuple):
    """
    A time, or the earliest or latest message of a queue.

    :ivar ms: ms since the epoch, or EARLIEST or LATEST; ms before now if `is_ago`.
    """

    ms: int
    is_ago: bool = False

    def to_ms(self, now_ms: int) -> int:
        """Return ms since the epoch, or EARLIEST or LATEST."""
        return max(1, now_ms - self.ms) if self.is_ago else self.ms


class WhenType(_ParamType):
    """`earliest`, `latest`, `2026-01-31T23:59:59+01:00`, ms since the epoch, or `10m` ago."""

    name = "when"

    def get_metavar(self, *_: Any, **__: Any) -> str:
        return "earliest|latest|TIME|10m"

    def convert(self, value: Any, param: Any, ctx: Any) -> PointInTime:
        """Convert the text; for any other text the error shows the possible forms."""
        if isinstance(value, PointInTime):
            return value
        text = str(value)
        if text == "earliest":
            return PointInTime(EARLIEST)
        if text == "latest":
            return PointInTime(LATEST)
        ago = span_ms(text)
        if ago is not None:
            return PointInTime(ago, True)
        if text.isascii() and text.isdecimal() and len(text) <= 15:
            return PointInTime(int(text))
        try:
            return PointInTime(int(datetime.fromisoformat(text).timestamp() * 1000))
        except (ValueError, OverflowError, OSError):
            self.fail(
                f"{text!r} is no time: give earliest, latest, 2026-01-31T23:59:59 (local time, or"
                " with +01:00), ms since the epoch, or 10m, 2h, 3d before now",
                param,
                ctx,
            )
