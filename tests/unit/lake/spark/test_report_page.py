"""The report: whole by itself, the same for the same input, and safe from what others named."""

import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'rmq-ha[spark]'")

from rmq_ha.lake.spark.report.page import (
    MAX_CELL,
    _flat,
    _name,
    _place_labels,
    _section,
    cell,
    render,
    value_text,
)
from rmq_ha.lake.spark.report.plots import svg
from rmq_ha.lake.spark.result import Plot, Table
from rmq_ha.ops.offsets.digest import Digest, digest, digest_of_rows
from rmq_ha.ops.offsets.findings import COLUMNS, Finding, Outcome
from rmq_ha.ops.offsets.summary import Timings, summary_of

HOSTILE = "<script>alert('x')</script>\x01\u202e\"&$a_b$"


def row(severity: str = "ERROR", code: str = "LOST", **values: Any) -> dict[str, Any]:
    finding = Finding(severity, code, values.pop("detail", "It is lost; restore it."), **values)
    return dict(zip(COLUMNS, finding, strict=True))


def page(
    rows: list[dict[str, Any]], *sections: Table | Plot, limit: int = 300, **summary: Any
) -> str:
    counted = digest_of_rows(rows, 1000)
    return render(summary_for(counted, **summary), counted, sections, ["offsets"], limit)


def summary_for(counted: Digest, **values: Any) -> dict[str, Any]:
    made = summary_of(
        "verify-offsets",
        "0.1.0",
        values.pop("inputs", {"master": "/store/a", "slave": "/store/b"}),
        values.pop("outcome", Outcome.VIOLATED),
        values.pop("verdict", "Safe to fail over: no"),
        counted,
        values.pop("numbers", {"messagesRepeated": 1234567, "by topic": {"orders": 3}}),
        Timings(1_700_000_000_000, 3.2, 1.5, 0.1),
    )
    assert not values
    return made


class Checker(HTMLParser):
    """Elements must be closed in order; what is loaded from elsewhere is noted."""

    VOID = ("meta", "br", "link", "img", "hr")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.loaded: list[str] = []
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("src", "href", "xlink:href") and not (value or "").startswith("#"):
                self.loaded.append(value or "")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


PLOTS = (
    Plot("Lag", range(3000), {"orders": [float(n % 97) for n in range(3000)]}, kind="line"),
    Plot("By topic", ["a", HOSTILE], {HOSTILE: [1, None], "b": [2, 3]}, kind="bar"),
    Plot("Steps", [1, 2], {"x": [1, 2]}, HOSTILE, "y", kind="step"),
    Plot(
        "Points",
        [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)],
        {"x": [1, 2]},
        kind="scatter",
    ),
    Plot("Nothing", [], {}),
)


def test_the_page_is_whole_and_loads_nothing() -> None:
    """One file that is mailed: no image, script, font or style sheet from elsewhere."""
    found = Checker(page([row()], Table("Queues", ("queue", "lag"), [(1, 2)]), *PLOTS))
    assert found.loaded == []
    assert not found.tags & {"script", "link", "img", "iframe", "object"}
    assert len(found.ids) == len(set(found.ids))
    assert "svg" in found.tags


def test_the_same_input_gives_the_same_bytes() -> None:
    """No date, no random identifier: two reports can be compared."""
    assert page([row()], *PLOTS) == page([row()], *PLOTS)


def test_verdict_inputs_numbers_and_counts_are_there() -> None:
    text = page([row(), row("WARN", "STALE"), row("WARN", "STALE")])
    seen = " ".join(Checker(text).texts)
    for wanted in ("Violated", "Safe to fail over: no", "/store/a", "LOST", "STALE", "offsets/"):
        assert wanted in seen
    assert "Messages repeated" in seen
    assert "By topic: orders" in seen
    assert text.index("LOST") < text.index("STALE")


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_has_its_words(outcome: Outcome) -> None:
    assert f'class="{outcome.name.lower()}"' in page([], outcome=outcome)


def test_hostile_names_stay_text() -> None:
    """Topics, groups and keys are chosen by others: no markup, no invisible character."""
    text = page(
        [row(topic=HOSTILE, group=HOSTILE, detail=HOSTILE, expected=HOSTILE, broker=HOSTILE)],
        Table(HOSTILE, (HOSTILE,), [(HOSTILE,)], HOSTILE),
        Plot(HOSTILE, [HOSTILE], {HOSTILE: [1]}, HOSTILE, HOSTILE, "bar", HOSTILE),
        Plot(HOSTILE, [1, 2], {HOSTILE: [1, 2], "b": [1, 2]}, HOSTILE, HOSTILE),
        verdict=HOSTILE,
        inputs={HOSTILE: HOSTILE},
        numbers={HOSTILE: HOSTILE, "list": [HOSTILE]},
    )
    assert "script" not in Checker(text).tags
    assert not re.search("[\x01\u202e]", text)
    assert "$a_b$" in text


def test_a_long_list_says_how_many_more_there_are() -> None:
    rows = [row(queue_offset=number) for number in range(500)]
    text = page(rows, limit=20)
    assert "The first 20 of 500" in text
    assert text.count('<td class="detail">') == 20


def test_numbers_are_grouped_but_copied_without_gaps() -> None:
    """What is copied out of the page into a command is the number itself."""
    assert re.sub("<[^>]*>", "", cell(1234567)) == "1234567"
    assert cell(1234567).count("<i") == 2
    assert cell(-5) == "-5"
    assert cell("12345678") == "12345678"
    assert (value_text(None), value_text(True), value_text(0.123456)) == ("", "yes", "0.1235")
    assert value_text(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)) == "2026-01-02 03:04:05 UTC"
    assert value_text("x" * 1000).endswith("(1000 characters)")


def test_numbers_say_what_they_are() -> None:
    text = page([], numbers={"oldestMs": 1_700_000_000_000, "windowMs": 60_000, "badCrc": 0})
    seen = " ".join(" ".join(Checker(text).texts).split())
    assert "Oldest 2023-11-14 22:13:20 UTC" in seen
    assert "Window ms 60 000" in seen
    assert "Bad CRC 0" in seen


def test_a_column_of_numbers_may_have_holes() -> None:
    text = page([], Table("T", ("name", "lag", "note"), [("a", 5, "-"), ("b", 2, "x"), ("c",)]))
    assert text.count('<th scope="col" class="number">') == 1
    assert text.count('<td class="number">') == 3


def test_findings_are_in_order_of_severity() -> None:
    rows = [row("INFO", "A"), row("WARN", "B"), row("ERROR", "C", queue_id=2), row("ERROR", "C")]
    found = digest_of_rows(rows, 3)
    assert found.total == 4
    assert list(found.counts.items()) == [("C", 2), ("B", 1), ("A", 1)]
    assert list(found.severities) == ["ERROR", "WARN", "INFO"]
    assert [item["severity"] for item in found.top] == ["ERROR", "ERROR", "WARN"]
    assert found.top[0]["queueId"] is None


def test_a_code_with_two_severities_counts_as_the_worse() -> None:
    found = digest([("INFO", "X", 5), ("ERROR", "X", 1)], [], 10)
    assert found.counts == {"X": 6}
    assert found.worst_of == {"X": "ERROR"}


def test_long_lines_keep_their_peaks() -> None:
    """A million points make no page of a hundred megabytes."""
    values = [0.0] * 100_000
    values[54_321] = 7.0
    text = svg(Plot("Peak", range(100_000), {"x": values}))
    assert len(text) < 100_000
    assert text == svg(Plot("Peak", range(100_000), {"x": values}))
    flat = svg(Plot("Peak", range(100_000), {"x": [0.0] * 100_000}))
    assert text != flat


def test_a_code_leads_to_what_it_means_and_what_to_do() -> None:
    rows = [row(), row("ERROR", "GAP"), row("ERROR", "GAP"), row("WARN", "GAP"), row("INFO", "Z")]
    text = page(rows, limit=4)
    found = Checker(text)
    assert set(re.findall('href="#([^"]*)"', text)) == {"ERROR-LOST", "ERROR-GAP"}
    assert {"ERROR-LOST", "ERROR-GAP"} <= set(found.ids)
    assert len(found.ids) == len(set(found.ids))


def test_a_plot_that_cannot_be_drawn_costs_no_report() -> None:
    """The verdict took an hour: it is not lost over a plot."""
    text = page([], Plot("Bad", [1, 2, 3], {"x": [1.0]}), Table("Good", ("n",), [(1,)]))
    seen = " ".join(Checker(text).texts)
    assert "It cannot be drawn" in seen
    assert "Good" in seen


def test_a_plot_has_a_name_for_those_who_do_not_see_it() -> None:
    text = svg(Plot("Lag & more", [1, 2], {"orders": [1, 2]}))
    assert text.startswith('<svg role="img" aria-label="Lag &amp; more: line plot of orders"')
    assert "currentColor" in text
    assert "#123456" not in text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("repeatedMessages", "Repeated messages"),
        ("repeated_messages", "Repeated messages"),
        ("safe", "Safe"),
        ("badCrc", "Bad CRC"),
        ("bad_crc", "Bad CRC"),
        ("by topic", "By topic"),
        ("last24Hours", "Last24 hours"),
        ("LMQ", "LMQ"),  # an abbreviation, or a name that others chose
        ("Orders", "Orders"),
        ("/store/a", "/store/a"),
        ("", ""),
    ],
)
def test_names_of_numbers_are_words(name: str, words: str) -> None:
    assert _name(name) == words


def test_numbers_within_numbers_have_the_names_of_both() -> None:
    """Names that others chose stay as they are; a moment is a time, and a span is none."""
    moment = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    ms = 1_700_000_000_000
    flat = dict(
        _flat(
            {
                "bySlave": {"repeatedMessages": 5, "more": {"x_y": None}},
                "list": [1, "b", None],
                "fromMs": ms, "stored_ms": ms, "leastMs": 100_000_000_000, "spanMs": 99_999_999_999,
                "roundMs": float(ms), "fromMsg": ms, "alarms": ms,
            }
        )
    )  # fmt: skip
    assert flat == {
        "By slave: repeatedMessages": 5,
        "By slave: more: x_y": None,
        "List": "1, b, ",
        "From": moment,
        "Stored": moment,
        "Least": datetime(1973, 3, 3, 9, 46, 40, tzinfo=UTC),
        "Span ms": 99_999_999_999,
        "Round ms": float(ms),
        "From msg": ms,
        "Alarms": ms,
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""), (False, "no"), (0, "0"), (1e4, "10000"), (9999.4, "9999"), (-12345.6, "-12346"),
        (0.00012345, "0.0001234"), (float("inf"), "inf"), (float("nan"), "nan"),
        (datetime(2026, 1, 2, 3, 4, 5), "2026-01-02 03:04:05 UTC"),
        ("a\tb", "a\\u0009b"), ("a\nb\u00a0\u202fc", "a\nb\u00a0\u202fc"), ("\u200b", "\\u200b"),
        ("x" * MAX_CELL, "x" * MAX_CELL),
        ("x" * (MAX_CELL + 1), "x" * MAX_CELL + "… (401 characters)"),
    ],
)  # fmt: skip
def test_values_are_shown_as_people_read_them(value: Any, text: str) -> None:
    assert value_text(value) == text


@pytest.mark.parametrize(
    ("value", "gaps"), [(9999, 0), (10_000, 1), (-10_000, 0), (1_000_000, 2), (12345.0, 1)]
)
def test_numbers_of_five_digits_and_more_have_gaps(value: float, gaps: int) -> None:
    assert cell(value).count("<i") == gaps


def test_where_a_finding_lies_says_only_what_is_known() -> None:
    place = row(topic="t", queue_id=0, queue_offset=12345, msg_id="ID")
    assert _place_labels(place) == [
        ("", "t"), ("queue ", "0"), ("offset ", "12345"), ("message ", "ID"),
    ]  # fmt: skip
    assert _place_labels({"group": "g", "physicalOffset": 7}) == [
        ("group ", "g"),
        ("log offset ", "7"),
    ]


def test_a_column_is_one_of_numbers_if_all_of_it_is() -> None:
    """Short rows have holes at their ends, and what is too long is cut."""
    table = Table("T", ("a", "b", "c"), [(1, "", "x"), (2.5, "-", 3), (None,), (1, 2, 3, 4)])
    section = _section(1, table)
    assert section["numeric"] == [True, True, False]
    assert section["rows"] == [[1, "", "x"], [2.5, "-", 3], [None, None, None], [1, 2, 3]]
    assert _section(1, Table("T", ("a", "b"), []))["numeric"] == [False, False]
