"""`rmqha-scan`: keep facts of a store, beside its broker."""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable

import click

from rmq_ha.errors import CannotDecide, WrongUsage
from rmq_ha.host.blocking import now_ms, seconds, sleep
from rmq_ha.host.files import absolute
from rmq_ha.host.process import host_name, lower_priority
from rmq_ha.offsets.findings import Outcome

_SIZE = re.compile(r"(\d+)\s*([kmg]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_LEAST_WINDOW = 1 << 12


def size_of(text: str) -> int:
    """
    `16m`, `64k`, `1g` as bytes.

    :raises WrongUsage: it is none.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise WrongUsage(f"{text!r}: write a size as 16m, 64k or 1g")
    return int(found[1]) * _UNITS[found[2].lower()]


def throttle(rate: int) -> Callable[[int], None]:
    """
    Waits so that no more than so many bytes a second are read.

    :param rate: 0: as many as there are.
    """
    began, done = seconds(), 0

    def rest(size: int) -> None:
        nonlocal done
        done += size
        if rate:
            sleep(max(0.0, began + done / rate - seconds()))

    return rest


@click.command("rmqha-scan", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("store")
@click.option("--to", required=True, metavar="DIR", help="Where the facts of a fleet lie.")
@click.option("--broker", required=True, metavar="NAME", help="brokerName: a pair has one name.")
@click.option(
    "--id", "broker_id", type=click.IntRange(min=0), default=0, show_default=True,
    help="brokerId: 0 is the master.",
)  # fmt: skip
@click.option(
    "--rate", default="50m", show_default=True, metavar="SIZE",
    help="Bytes a second that are read at most; 0: no limit.",
)  # fmt: skip
@click.option(
    "--window", default="4m", show_default=True, metavar="SIZE",
    help="Bytes that one digest stands for; the same for all replicas of a broker.",
)  # fmt: skip
@click.option(
    "--check", "checks", type=click.Choice(["queues", "index"]), multiple=True,
    help="Hold these against the log as well, all of them each time.",
)  # fmt: skip
@click.option("--ids", is_flag=True, help="Keep a hash of each message's id: 16 bytes a message.")
@click.option(
    "--again", is_flag=True, help="From the beginning, not from where the last one ended."
)
@click.option("--commit-log", metavar="DIR", help="storePathCommitLog, if that is set.")
def main(
    store: str, to: str, broker: str, broker_id: int, rate: str, window: str,
    checks: tuple[str, ...], ids: bool, again: bool, commit_log: str | None,
) -> None:  # fmt: skip
    """
    Keep facts of STORE, a broker's storePathRootDir, for `rmqha-spark verify-fleet`.

    Digests of the log, sums by queue and hour, tables, and what is wrong. Goes on where the last
    scan ended; the broker may run. At the lowest priority. Nothing in the store is changed.
    """
    try:
        from rmq_ha.scan.fleet.scanning import Asked, scan
        from rmq_ha.scan.replica.settings import StoreAt
    except ModuleNotFoundError as missing:
        click.echo(f"Error: {missing.name} is not installed: pip install 'rmq-ha[scan]'", err=True)
        sys.exit(int(Outcome.FAILED))
    lower_priority()
    try:
        size, limit = size_of(window), size_of(rate)
        if size < _LEAST_WINDOW:
            raise WrongUsage(f"--window {window}: at least 4k")
        at = StoreAt(absolute(store), None if commit_log is None else absolute(commit_log))
        asked = Asked(
            at, to, broker, broker_id, host_name(), size, again, ids, frozenset(checks)
        )  # fmt: skip
        state = scan(asked, now_ms, throttle(limit))
    except (WrongUsage, CannotDecide, OSError) as error:
        is_usage = isinstance(error, WrongUsage)
        click.echo(f"Error: {error}", err=True)
        sys.exit(int(Outcome.USAGE if is_usage else Outcome.UNDECIDED))
    said = {"broker": broker, "id": broker_id, "from": state.low, "to": state.high}
    rows: Counter[str] = Counter()
    for file in state.files:
        rows[file.kind] += file.rows
    click.echo(json.dumps(said | rows))
