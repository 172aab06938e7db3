"""The report: one HTML file that needs nothing else, to be mailed and printed."""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from math import isfinite
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from rmq_ha.lake.spark.report.plots import svg
from rmq_ha.lake.spark.result import Plot, Table
from rmq_ha.ops.offsets.digest import Digest
from rmq_ha.ops.offsets.findings import Outcome

MAX_CELL = 400
"""Most characters of one cell; the Parquet files have the whole values."""
MEANINGS = {
    Outcome.HOLDS: ("Holds", "Everything that was checked is as it should be."),
    Outcome.VIOLATED: ("Violated", "Something is wrong; the findings say what, and what to do."),
    Outcome.UNDECIDED: (
        "Could not decide",
        "An input was missing, unreadable or moving. This says nothing about it.",
    ),
    Outcome.FAILED: ("Failed", "This says nothing about what the job looked at."),
    Outcome.USAGE: ("Wrong usage", "The job was asked in a way that makes no sense."),
}
"""A headline for each outcome, and its meaning."""
_PLACES = (
    ("broker", ""),
    ("topic", ""),
    ("queueId", "queue "),
    ("group", "group "),
    ("queueOffset", "offset "),
    ("physicalOffset", "log offset "),
    ("msgId", "message "),
)
_A_TIME_MS = 100_000_000_000
"""A number of milliseconds from here on is a point in time, below it a duration."""
_LONG = re.compile(r"\d{5,}")
_THOUSAND = re.compile(r"\B(?=(?:\d{3})+$)")
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def render(
    summary: Mapping[str, Any],
    counted: Digest,
    sections: Sequence[Table | Plot],
    frames: Sequence[str],
    limit: int,
) -> str:
    """
    Return the page's text.

    :param frames: names of the other Parquet directories beside the report.
    :param limit: most findings in the table.
    """
    outcome = Outcome(summary["exitCode"])
    headline, meaning = MEANINGS[outcome]
    return _template().render(
        summary=summary,
        tone=outcome.name.lower(),
        headline=headline,
        meaning=meaning,
        counts=[(code, counted.worst_of[code], number) for code, number in counted.counts.items()],
        named={(row["severity"], row["code"]) for row in counted.top[:limit]},
        severities=counted.severities,
        total=counted.total,
        findings=[(row, _place_labels(row)) for row in counted.top[:limit]],
        numbers=list(_flat(summary["numbers"])),
        sections=[_section(number, section) for number, section in enumerate(sections, 1)],
        frames=frames,
    )


def value_text(value: Any) -> str:
    """
    Return a value as text for people; invisible characters, and those that change the text's
    direction, are escaped.

    Topics, groups and keys are chosen by other people.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 or not isfinite(value) else str(round(value))
    if isinstance(value, datetime):
        moment = value.astimezone(UTC) if value.tzinfo else value
        return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
    text = str(value)
    if len(text) > MAX_CELL:
        text = f"{text[:MAX_CELL]}… ({len(text)} characters)"
    if text.isprintable():
        return text
    return "".join(map(_visible, text))


def cell(value: Any) -> str:
    """Return a value's text for a table; the gaps in long numbers are not copied with it."""
    text = value_text(value)
    if not isinstance(value, int | float) or not _LONG.fullmatch(text):
        return text
    return Markup(_THOUSAND.sub('<i class="g"></i>', text))


def _visible(character: str) -> str:
    """Return a character, or its escape if it is invisible or changes the text's direction."""
    if character in "\n\u00a0\u202f" or not unicodedata.category(character).startswith("C"):
        return character
    return f"\\u{ord(character):04x}"


def _name(name: str) -> str:
    """Return a name like `repeatedMessages` or `repeated_messages` as words."""
    words = _WORD.sub(" ", name).replace("_", " ")
    if not (words.islower() or " " in words):
        return words
    return (words[:1].upper() + words[1:].lower()).replace("crc", "CRC")


def _flat(numbers: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield numbers as label and value; a label of nested numbers names all levels."""
    for name, value in numbers.items():
        label = f"{prefix}{_name(str(name)) if not prefix else name}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{label}: ")
        elif isinstance(value, list):
            yield label, ", ".join(value_text(item) for item in value)
        elif label.endswith((" ms", "Ms")) and isinstance(value, int) and value >= _A_TIME_MS:
            yield label[:-2].strip(), datetime.fromtimestamp(value / 1000, UTC)
        else:
            yield label, value


def _is_number(value: Any) -> bool:
    return value is None or value in ("", "-") or isinstance(value, int | float)


def _place_labels(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return broker, topic, queue and so on as label and value; numbers can be copied."""
    return [
        (label, str(row[name]) if isinstance(row[name], int) else row[name])
        for name, label in _PLACES
        if row.get(name) is not None
    ]


def _section(number: int, section: Table | Plot) -> dict[str, Any]:
    """Return a section as the template takes it: a plot as SVG, or the rows of a table."""
    shown: dict[str, Any] = {"title": section.title, "note": section.note}
    if isinstance(section, Plot):
        try:
            return shown | {"svg": Markup(svg(section, number))}
        except Exception as error:  # a failed plot must not cost the verdict
            return shown | {"note": f"{section.note} It cannot be drawn: {error}".strip()}
    width = len(section.columns)
    rows = [[*row, *[None] * width][:width] for row in section.rows]
    numeric = [bool(rows) and all(_is_number(row[at]) for row in rows) for at in range(width)]
    return shown | {"columns": section.columns, "rows": rows, "numeric": numeric}


@cache
def _template() -> Template:
    """Return the page's template, which is read once."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(shown=value_text, cell=cell)
    source = resources.files("rmq_ha.lake.spark.report").joinpath("report.html.jinja")
    return environment.from_string(source.read_text("utf-8"))
