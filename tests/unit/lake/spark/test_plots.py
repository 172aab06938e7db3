"""What is drawn of a plot, as the library that draws is told."""

from __future__ import annotations

from typing import Any

import pytest

from rmq_ha.lake.spark.report.plots import COLOURS, _draw
from rmq_ha.lake.spark.result import Plot


class Axes:
    """Writes down what is drawn."""

    def __init__(self, plot: Plot) -> None:
        self.told: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.yaxis = self
        _draw(self, plot)

    def __getattr__(self, name: str) -> Any:
        def taken(*given: Any, **named: Any) -> None:
            given = tuple(each.tolist() if hasattr(each, "tolist") else each for each in given)
            self.told.append((name, given, named))

        return taken

    def of(self, name: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        return [(given, named) for told, given, named in self.told if told == name]

    def names(self) -> set[str]:
        return {name for name, _, _ in self.told}


@pytest.mark.parametrize(
    ("kind", "call", "style"),
    [
        ("scatter", "scatter", {"s": 10}),
        ("step", "step", {"where": "post", "linewidth": 1.4}),
        ("line", "plot", {"linewidth": 1.4, "marker": ""}),
    ],
)
def test_each_series_has_its_colour_and_is_drawn_as_its_kind_says(
    kind: str, call: str, style: dict[str, Any]
) -> None:
    axes = Axes(Plot("P", [1, 2, 3], {"a": [1, 2, 3], "b": [4, 5, 6]}, kind=kind))
    assert axes.of(call) == [
        (([1, 2, 3], [1.0, 2.0, 3.0]), {"color": COLOURS[0], "label": "a", **style}),
        (([1, 2, 3], [4.0, 5.0, 6.0]), {"color": COLOURS[1], "label": "b", **style}),
    ]
    assert not axes.names() & {"scatter", "step", "plot", "bar"} - {call}


def test_a_line_of_two_points_shows_them() -> None:
    for count, marker in ((2, "o"), (3, "")):
        axes = Axes(Plot("P", range(count), {"a": [1] * count}))
        assert axes.of("plot")[0][1]["marker"] == marker


@pytest.mark.parametrize(
    ("x", "is_turned"), [(["a", 1], True), ([1, "a"], False), ([], False), ([1, 2], False)]
)
def test_words_below_an_axis_are_turned(x: list[Any], is_turned: bool) -> None:
    axes = Axes(Plot("P", x, {"a": [1] * len(x)}))
    assert axes.of("tick_params") == ([((), {"axis": "x", "rotation": 30})] if is_turned else [])


@pytest.mark.parametrize(
    ("values", "begins_at_zero"),
    [([1, None, 2], True), ([0, 1, 2], True), ([1, -1, 2], False), ([0.5, 0.5, 0.5], True)],
)
def test_an_axis_begins_at_zero_unless_something_is_below(
    values: list[float | None], begins_at_zero: bool
) -> None:
    axes = Axes(Plot("P", [1, 2, 3], {"a": values}, "x axis", "y axis"))
    assert axes.of("set_ylim") == ([((), {"bottom": 0})] if begins_at_zero else [])
    assert axes.of("set_xlabel") == [(("x axis",), {})]
    assert axes.of("set_ylabel") == [(("y axis",), {})]
    (((shown,), _),) = axes.of("set_major_formatter")
    assert shown(1_234_567, 0) == "1\u202f234\u202f567"


@pytest.mark.parametrize(("count", "columns"), [(1, None), (2, 2), (3, 3), (4, 3)])
def test_several_series_have_a_legend_of_three_columns_at_most(
    count: int, columns: int | None
) -> None:
    axes = Axes(Plot("P", [1], {f"s{number}": [1] for number in range(count)}))
    assert [named["ncols"] for _, named in axes.of("legend")] == ([columns] if columns else [])


def test_bars_of_a_group_stand_side_by_side_around_its_name() -> None:
    axes = Axes(Plot("P", ["a", "b"], {"x": [1, 2], "y": [3, None]}, kind="bar"))
    (first, second) = axes.of("bar")
    assert first[0][0] == pytest.approx([-0.2, 0.8])
    assert second[0][0] == pytest.approx([0.2, 1.2])
    assert first[0][1] == [1.0, 2.0]
    assert first[1] == {"width": pytest.approx(0.368), "color": COLOURS[0], "label": "x"}
    assert (second[1]["color"], second[1]["label"]) == (COLOURS[1], "y")
    ((ticks, style),) = axes.of("set_xticks")
    assert [list(each) for each in ticks] == [[0, 1], ["a", "b"]]
    assert style == {"rotation": 0, "ha": "center"}
    assert Axes(Plot("P", [], {}, kind="bar")).of("bar") == []


@pytest.mark.parametrize(
    ("names", "is_crowded"),
    [
        (["a"] * 6, False),
        (["a"] * 7, True),
        (["x" * 14, "y"], False),
        (["x" * 15, "y"], True),
    ],
)
def test_crowded_names_below_bars_are_turned(names: list[str], is_crowded: bool) -> None:
    axes = Axes(Plot("P", names, {"x": [1] * len(names)}, kind="bar"))
    ((_, style),) = axes.of("set_xticks")
    turned = {"rotation": 35, "ha": "right"}
    assert style == (turned if is_crowded else {"rotation": 0, "ha": "center"})


def test_a_long_name_below_a_bar_is_cut() -> None:
    axes = Axes(Plot("P", ["x" * 28, "y" * 29], {"x": [1, 2]}, kind="bar"))
    (((_, shown), _),) = axes.of("set_xticks")
    assert shown == ["x" * 28, "y" * 27 + "…"]
