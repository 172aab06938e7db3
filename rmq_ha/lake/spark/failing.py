"""Turns an error into a message for the user: exit code, reason, next step."""

import re

import click

from rmq_ha.base.errors import CannotDecide, WrongUsage
from rmq_ha.ops.offsets.findings import Outcome

_FROM_AFAR = re.compile(r"\brmq_ha\.[\w.]+\.(\w+): (.+)")
_MEANT = {
    "CannotDecide": Outcome.UNDECIDED,
    "BrokerAway": Outcome.UNDECIDED,
    "WrongUsage": Outcome.USAGE,
}


def meaning_of(error: BaseException) -> tuple[Outcome, str]:
    """
    Return the outcome and the reason that an exception means.

    An exception that the data source raises in a worker comes through Java as text.
    """
    if was_interrupted(error):
        return Outcome.FAILED, "interrupted, so there is no verdict; run it again"
    if isinstance(error, WrongUsage):
        return Outcome.USAGE, str(error)
    if isinstance(error, click.ClickException):
        return Outcome.USAGE, error.format_message()
    if isinstance(error, CannotDecide):
        return Outcome.UNDECIDED, str(error)
    if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("rmq_ha"):
        package = (error.name or "").partition(".")[0]
        return Outcome.FAILED, (
            f"{package} is not installed: pip install 'rmq-ha[scan]', or 'rmq-ha[spark]' for"
            " rmqha-spark"
        )
    text = str(error)
    afar = _FROM_AFAR.search(text)
    if afar is not None:
        return _MEANT.get(afar[1], Outcome.FAILED), afar[2].strip()
    step = next_step(error)
    reason = _reason_of_java(text) or f"{type(error).__name__}: {_reason_in(text)[:1000]}"
    return Outcome.FAILED, reason + (f" {step}" if step else "")


def _reason_in(text: str) -> str:
    """Return the first line of an error, and the last one of a worker's traceback in it."""
    lines = [line for line in text.splitlines() if line.strip()]
    first = lines[0].strip() if lines else ""
    head, traceback_, _ = first.partition("Traceback (most recent call last)")
    at = next((n for n, line in enumerate(lines) if "Traceback (most recent" in line), None)
    if at is None:
        return first
    said = next((line for line in lines[at + 1 :] if not line[0].isspace()), "")
    return f"{(head if traceback_ else first).strip()} {said}".strip()


_JAVA_SAYS = re.compile(r"^(?:Caused by: |: )((?:[\w$]+\.)+)([\w$]+(?:: .*)?)$", re.MULTILINE)


def _reason_of_java(text: str) -> str:
    """Return the last cause of a Java error; empty: it is none, or comes from a worker."""
    if not text.startswith("An error occurred while calling") or "Traceback (most" in text:
        return ""
    said = _JAVA_SAYS.findall(text)
    return said[-1][1].strip()[:1000] if said else ""


def was_interrupted(error: BaseException | None) -> bool:
    """Return whether the user interrupted the job, perhaps during a call to Java."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def next_step(error: BaseException) -> str:
    """Return what to do about a failure; empty if the error's own text says it."""
    text = str(error)
    if type(error).__name__ in ("NoJava", "NoSparkMaster"):
        return ""
    if "JAVA_GATEWAY_EXITED" in text:
        return "(`rmqha-spark java-home --verbose` says which Java is taken)"
    if "OutOfMemoryError" in text:
        return "(give it more: --driver-memory 2g, on a cluster --conf spark.executor.memory=2g)"
    if "No space left" in text:
        return "(--conf spark.local.dir=DIR puts Spark's temporary files elsewhere)"
    return "(--verbose shows where)"
