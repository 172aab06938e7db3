"""`rmqha-scan`: keeps facts of a store; it runs beside the store's broker."""

import json
import sys
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from rmq_ha.base.errors import CannotDecide, WrongUsage
from rmq_ha.base.host.blocking import now_ms, seconds, sleep
from rmq_ha.base.host.files import absolute
from rmq_ha.base.host.process import host_name, lower_priority
from rmq_ha.base.spans import size_of
from rmq_ha.ops.offsets.findings import Outcome, Severity

LEAST_WINDOW = 1 << 12
DAY_MS = 86_400_000


if TYPE_CHECKING:
    _Sizes = click.ParamType[int]
else:  # older versions of click cannot subscript it
    _Sizes = click.ParamType


class Size(_Sizes):
    """A number of bytes like `16m`, `64k` or `1g`, not below `least`."""

    name = "size"

    def __init__(self, least: int = 0) -> None:
        self._least = least

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """:raises click.BadParameter: the text is not a size, or the size is too small."""
        size = value if isinstance(value, int) else size_of(str(value))
        if size is None:
            self.fail(f"{value!r}: write a size as 16m, 64k or 1g", param, ctx)
        if size < self._least:
            self.fail(f"{value}: at least {self._least >> 10}k", param, ctx)
        return size


def throttle(rate: int) -> Callable[[int], None]:
    """
    Return a function that waits until bytes are read at no more than `rate` a second (0: any).
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
@click.option(
    "--to", required=True, metavar="DIR", help="The directory of the facts of all brokers."
)
@click.option(
    "--broker",
    required=True,
    metavar="NAME",
    help="The brokerName. The brokers of a pair share one.",
)
@click.option(
    "--id", "broker_id", type=click.IntRange(min=0), default=0, show_default=True,
    help="The brokerId. 0 is the master.",
)  # fmt: skip
@click.option(
    "--rate", "limit", type=Size(), default="50m", show_default=True,
    help="Bytes to read in a second at most. 0: no limit.",
)  # fmt: skip
@click.option(
    "--window", type=Size(LEAST_WINDOW), default="4m", show_default=True,
    help="Bytes that one digest covers. It must be the same for all replicas of a broker.",
)  # fmt: skip
@click.option(
    "--check", "checks", type=click.Choice(["queues", "index"]), multiple=True,
    help="Also compare these with the log; every run compares all of them.",
)  # fmt: skip
@click.option(
    "--ids",
    is_flag=True,
    help="Keep a hash of the id of each message, which takes 16 bytes a message.",
)
@click.option(
    "--again", is_flag=True, help="Begin at the start of the log, not where the last scan ended."
)
@click.option(
    "--reread", "share", type=click.IntRange(min=0), default=30, show_default=True, metavar="N",
    help="Also read one in N windows of earlier scans again, those first that were not read for"
    " longest. 0: none.",
)  # fmt: skip
@click.option(
    "--commit-log", metavar="DIR", help="The storePathCommitLog of the broker, if it is set."
)
def main(
    store: str, to: str, broker: str, broker_id: int, limit: int, window: int,
    checks: tuple[str, ...], ids: bool, again: bool, share: int, commit_log: str | None,
) -> None:  # fmt: skip
    """
    Keep facts of STORE, a broker's storePathRootDir, for `rmqha-spark verify-fleet`.

    The facts are digests of the log, sums by queue and hour, the broker's tables, and faults. A
    scan continues where the last one ended, and reads a share of the older log again. The output
    says how many days ago the part of the log was read that has not been read for longest, and
    counts the findings of severity ERROR by their codes. The broker may run. The scan has the
    lowest priority, and changes nothing in the store.

    Exit code 0: no such finding; 1: the facts have such findings, of this scan or of an earlier
    one; 3: the store could not be read.
    """
    try:
        from rmq_ha.lake.scan.fleet.facts import ReplicaFacts, directory_of
        from rmq_ha.lake.scan.fleet.scanning import ScanRequest, scan
        from rmq_ha.lake.scan.replica.settings import StoreAt
    except ModuleNotFoundError as missing:
        click.echo(f"Error: {missing.name} is not installed: pip install 'rmq-ha[scan]'", err=True)
        sys.exit(int(Outcome.FAILED))
    lower_priority()
    try:
        at = StoreAt(absolute(store), None if commit_log is None else absolute(commit_log))
        asked = ScanRequest(
            at, to, broker, broker_id, host_name(), window, again, ids, frozenset(checks), share
        )  # fmt: skip
        state = scan(asked, now_ms, throttle(limit))
        facts = ReplicaFacts(directory_of(to, broker, broker_id), state)
        errors = Counter(
            fault.code for fault in facts.findings() if fault.severity == Severity.ERROR
        )
    except (WrongUsage, CannotDecide, OSError) as error:
        is_usage = isinstance(error, WrongUsage)
        click.echo(f"Error: {error}", err=True)
        sys.exit(int(Outcome.USAGE if is_usage else Outcome.UNDECIDED))
    said: dict[str, str | int] = {"broker": broker, "id": broker_id}
    said |= {"from": state.low, "to": state.high}
    rows: Counter[str] = Counter()
    for file in state.files:
        rows[file.kind] += file.rows
    said |= rows | {"readAgain": state.read_again}
    if state.oldest_look:  # 0: version 0.1 read some windows, and did not say when
        said["oldestLookDays"] = max(0, state.scanned_at - state.oldest_look) // DAY_MS
    click.echo(json.dumps({**said, "errors": errors}))
    sys.exit(int(Outcome.VIOLATED if errors else Outcome.HOLDS))
