"""Options of `verify-offsets`, for both `rmqha-admin` and `rmqha-spark`."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from rmq_ha.base.spans import span_ms
from rmq_ha.ops.offsets.sampling import Patience
from rmq_ha.ops.offsets.verdict import Limits

F = TypeVar("F", bound=Callable[..., Any])


if TYPE_CHECKING:
    _ParamType = click.ParamType[int]
else:  # older versions of click cannot subscript it
    _ParamType = click.ParamType


class DurationParam(_ParamType):
    """Converts a duration (`20s`, `500ms`, `2m`; a bare number is seconds) to ms."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """:raises click.BadParameter: the text is no duration."""
        if isinstance(value, int):
            return value
        span = span_ms(str(value), bare="s")
        if span is None:
            self.fail(f"{value!r}: write a time as 20s, 500ms or 2m", param, ctx)
        return span


_LIMITS = (
    click.option(
        "--max-skew",
        type=DurationParam(),
        default="20s",
        show_default=True,
        help="How old the tables of a slave may be. A slave copies them every 10 s, and its "
        "master writes them every 5 s. Two stores at rest may differ by nothing.",
    ),
    click.option(
        "--wait",
        type=DurationParam(),
        default=None,
        help="How long to keep looking at a slave that lacks something. Default: --max-skew and "
        "3 s. A shorter time may leave the question open (exit code 3).",
    ),
    click.option(
        "--max-lag",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="How many messages each queue of a slave may lack.",
    ),
    click.option(
        "--max-repeats",
        type=click.IntRange(min=0),
        help="How many repeated messages count as safe. Default: any number.",
    ),
    click.option(
        "--repair",
        metavar="DIR",
        help="Write a repair plan and merged tables into this directory. Nothing is changed "
        "elsewhere.",
    ),
)


class OffsetOptions(NamedTuple):
    """The values of the options; `repair` is a directory for the plan and tables."""

    patience: Patience
    limits: Limits
    repair: str | None


def options_of(given: Mapping[str, Any]) -> OffsetOptions:
    """Return the values of a command that has `limit_options`."""
    skew, wait = given["max_skew"], given["wait"]
    return OffsetOptions(
        Patience(skew, skew + 3_000 if wait is None else wait),
        Limits(given["max_lag"], given["max_repeats"]),
        given["repair"],
    )


def pair_options(*, required: bool) -> Callable[[F], F]:
    """Return a decorator that gives a command the options for the places of a pair."""
    master = click.option(
        "--master",
        "of_master",
        required=required,
        metavar="PLACE",
        help="The master: /store/root, broker://host:port, namesrv://host:port/brokerName or"
        " snapshot:DIR.",
    )
    slave = click.option(
        "--slave",
        "of_slaves",
        required=required,
        multiple=True,
        metavar="PLACE",
        help="A slave; repeatable. The pair is safe if one of its slaves is.",
    )
    return lambda function: master(slave(function))


def limit_options(function: F) -> F:
    """Give a command the options for waiting, for what is safe, and for the repair plan."""
    for option in reversed(_LIMITS):
        function = option(function)
    return function
