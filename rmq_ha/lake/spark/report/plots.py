"""Draws plots as SVG for a page, in the page's colours and without other files."""

import io
import re
from collections.abc import Sequence
from datetime import date
from html import escape
from typing import Any

import numpy as np

from rmq_ha.lake.spark.result import Plot

COLOURS = ("#3b82c4", "#e07b39", "#2a9d72", "#c2528b", "#8a6fd1", "#b59a1f", "#3aa5b8", "#cc4b4b")
"""
Colours that colour-blind people can tell apart, on white and on black; with more lines they repeat.
"""
_INK = "#123456"
"""Placeholder for the page's text colour."""
_FAINT = "#8a94a0"
"""Colour of lines that are visible on white and on black."""
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 9.5,
    "date.converter": "concise",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _FAINT,
    "axes.labelcolor": _INK,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": _FAINT,
    "grid.linewidth": 0.6,
    "grid.alpha": 0.4,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "text.color": _INK,
    "legend.frameon": False,
}
_NO_METADATA: Any = dict.fromkeys(("Date", "Creator", "Format", "Type"))
_ID = re.compile(r' id="([^"]*)"')
_REFERENCE = re.compile(r"(?:url\(#|href=\"#)([^)\"]+)")


def svg(plot: Plot, number: int = 1) -> str:
    """Return the plot as an `<svg>` element; the number makes its identifiers unique in a page."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({**_STYLE, "svg.hashsalt": f"rmq-ha-{number}"}):
        figure = Figure(figsize=(8.6, 3.2), layout="constrained")
        axes = figure.add_subplot()
        _draw(axes, plot)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata=_NO_METADATA)
    return _embeddable(out.getvalue(), plot)


def _draw(axes: Any, plot: Plot) -> None:
    series = list(plot.series.items())
    if plot.kind == "bar":
        _bars(axes, plot, series)
    else:
        x = [_clean(value) for value in plot.x]
        for colour, (name, values) in enumerate(series):
            heights = np.array(values, float)
            style: dict[str, Any] = {"color": COLOURS[colour % len(COLOURS)], "label": _clean(name)}
            if plot.kind == "scatter":
                axes.scatter(x, heights, s=10, **style)
            elif plot.kind == "step":
                axes.step(x, heights, where="post", linewidth=1.4, **style)
            else:
                axes.plot(x, heights, linewidth=1.4, marker="o" if len(x) < 3 else "", **style)
        if x and isinstance(x[0], str):
            axes.tick_params(axis="x", rotation=30)
    axes.set_xlabel(_clean(plot.x_label))
    axes.set_ylabel(_clean(plot.y_label))
    if not any(value < 0 for _, values in series for value in values if value is not None):
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}".replace(",", "\u202f"))
    if len(series) > 1:
        axes.legend(loc="best", fontsize="small", ncols=min(3, len(series)))


def _bars(axes: Any, plot: Plot, series: Sequence[tuple[str, Sequence[float | None]]]) -> None:
    """Draw the series as bars, side by side at each label."""
    labels = [str(_clean(value)) for value in plot.x]
    width = 0.8 / max(1, len(series))
    for colour, (name, values) in enumerate(series):
        heights = np.array(values, float)
        left = [at + (colour - (len(series) - 1) / 2) * width for at in range(len(labels))]
        shade = COLOURS[colour % len(COLOURS)]
        axes.bar(left, heights, width=width * 0.92, color=shade, label=_clean(name))
    crowded = len(labels) > 6 or max(map(len, labels), default=0) > 14
    axes.set_xticks(
        range(len(labels)),
        [text if len(text) <= 28 else f"{text[:27]}…" for text in labels],
        rotation=35 if crowded else 0,
        ha="right" if crowded else "center",
    )


def _clean(value: Any) -> Any:
    """Return a label without characters that XML cannot hold; numbers and times unchanged."""
    if isinstance(value, int | float | date) or not value:
        return value
    text = str(value)
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def _embeddable(text: str, plot: Plot) -> str:
    """Return the `<svg>` element alone, described for blind people, in the page's colours."""
    text = text[text.index("<svg") :]
    used = set(_REFERENCE.findall(text))
    text = _ID.sub(lambda match: match.group(0) if match.group(1) in used else "", text)
    text = text.replace(_INK, "currentColor")
    title = escape(str(_clean(plot.title)))
    about = escape(f"{plot.kind} plot of {', '.join(str(_clean(name)) for name in plot.series)}")
    head = f'<svg role="img" aria-label="{title}: {about}"'
    return text.replace("<svg", head, 1).strip()
