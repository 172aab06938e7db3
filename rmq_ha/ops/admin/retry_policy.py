"""The policy that tells push consumers of gRPC when to retry a message, as a group stores it.

Spec: pop.md, section 7.
"""

from typing import TYPE_CHECKING, Any

import click

from rmq_ha.base.spans import span_ms

if TYPE_CHECKING:
    _ParamType = click.ParamType[dict[str, Any]]
else:
    _ParamType = click.ParamType

POLICY = "groupRetryPolicy"
"""The member of a group's configuration."""
_MOST_PAUSES = 64
_MOST_FACTOR = 1000


class RetryPauses(_ParamType):
    """Pauses before the retries, such as `1s 10s 1m`: the last one counts for all later retries."""

    name = "pauses"

    def convert(self, value: Any, param: Any, ctx: Any) -> dict[str, Any]:
        """Return the policy; fail if a part of the text is no time."""
        if isinstance(value, dict):
            return value
        pauses = [_pause(self, part, param, ctx) for part in str(value).split()]
        if not 0 < len(pauses) <= _MOST_PAUSES:
            self.fail(f"give 1 to {_MOST_PAUSES} times, such as '1s 10s 1m'", param, ctx)
        return {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": pauses}}


class RetryBackoff(_ParamType):
    """Pauses that grow, such as `5s 2h 2`: the first, the longest, and the factor."""

    name = "backoff"

    def convert(self, value: Any, param: Any, ctx: Any) -> dict[str, Any]:
        """Return the policy; fail if the text has another form."""
        if isinstance(value, dict):
            return value
        parts = str(value).split()
        if len(parts) != 3 or not parts[2].isdecimal() or not 0 < int(parts[2]) <= _MOST_FACTOR:
            self.fail(
                "give the first pause, the longest pause and a factor of at most "
                f"{_MOST_FACTOR}, such as '5s 2h 2'",
                param,
                ctx,
            )
        first, longest = (_pause(self, part, param, ctx) for part in parts[:2])
        if first > longest:
            self.fail("the first pause is longer than the longest", param, ctx)
        policy = {"initial": first, "max": longest, "multiplier": int(parts[2])}
        return {"type": "EXPONENTIAL", "exponentialRetryPolicy": policy}


def _pause(kind: _ParamType, text: str, param: Any, ctx: Any) -> int:
    """Return a time in ms."""
    pause = span_ms(text)
    if pause is None:
        kind.fail(f"{text} is no time such as 10s, 5m or 2h", param, ctx)
    return pause
