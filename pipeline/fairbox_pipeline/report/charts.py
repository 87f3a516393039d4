"""Charts as inline SVG: colours by CSS variables, so that one drawing fits light and dark."""

from __future__ import annotations

import hashlib
import re
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pygal
from pygal.style import Style

from fairbox_pipeline.times import UNDER_A_SECOND, is_unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

# pygal adds a finder of a form that Python no longer has, for maps that are not used here: every
# later import of the process would warn of it
sys.meta_path[:] = [f for f in sys.meta_path if type(f).__module__.partition(".")[0] != "pygal"]

COLOURS: Final = 8
"""Variables `--c1` to `--c8`, which the page defines for both schemes."""
DASHES: Final = ("", "7 3", "2 3", "9 3 2 3", "4 2", "12 3", "1 3", "6 2 1 2")
"""Lines differ by more than colour."""
_LABELS: Final = 6
_NAMED: Final = 60
_LAST_MS: Final = 253_402_300_799_999  # of the year 9999
_WIDTH: Final = 760
_HEIGHT: Final = 320
_MARKS: Final = (
    *(1, 10, 100, 1000, 10_000, 60_000, 600_000),
    *(3_600_000, 6 * 3_600_000, 86_400_000, 7 * 86_400_000, 30 * 86_400_000, 365 * 86_400_000),
)
_UNITS: Final = (("G", 1e9), ("M", 1e6), ("k", 1e3))


def _style() -> Style:
    return Style(
        background="transparent",
        plot_background="transparent",
        foreground="var(--ink)",
        foreground_strong="var(--ink)",
        foreground_subtle="var(--grid)",
        guide_stroke_color="var(--grid)",
        major_guide_stroke_color="var(--grid)",
        opacity="0.85",
        font_family="system-ui, sans-serif",
        label_font_size=12,
        major_label_font_size=12,
        legend_font_size=13,
        colors=tuple(f"var(--c{n})" for n in range(1, COLOURS + 1)),
    )


def _options(**more: Any) -> dict[str, Any]:
    return {
        "style": _style(),
        "js": (),  # the page runs no script, and asks no network for one
        "width": _WIDTH,
        "height": _HEIGHT,
        "disable_xml_declaration": True,
        "show_dots": False,
        "show_minor_x_labels": False,
        "legend_at_bottom": True,
        "legend_at_bottom_columns": 4,
        "truncate_legend": 28,
        "truncate_label": 40,
        "margin": 12,
        "margin_bottom": 34,  # pygal reserves too little for one row of a legend
        "no_data_text": "nothing to show",
        "value_formatter": short,
        **more,
    }


def short(value: float | None) -> str:
    """Return a number in few characters."""
    if value is None:
        return ""
    for unit, size in _UNITS:
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def duration(ms: float | None) -> str:
    """Return milliseconds as a readable duration."""
    if ms is None:
        return ""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if abs(ms) >= size:
            return f"{ms / size:.3g} {unit}"
    return f"{ms:.3g} ms"


def latency(ms: float | None, precision: str | None) -> str:
    """Return a latency as a readable duration, as far as it is known."""
    return UNDER_A_SECOND if is_unknown(ms, precision) else duration(ms)


def calendar_time(ms: int) -> datetime:
    """Return a time in UTC; the nearest that a calendar has, for one of a clock gone wrong."""
    return datetime.fromtimestamp(min(max(ms, 0), _LAST_MS) / 1000, UTC)


def clock_labels(starts: Sequence[int]) -> list[str]:
    """Return times (ms) as text, as fine as they differ."""
    times = [calendar_time(start) for start in starts]
    if not times:
        return []
    days = times[0].date() != times[-1].date()
    fine = len(times) > 1 and (times[1] - times[0]).total_seconds() < 60
    pattern = ("%m-%d " if days else "") + ("%H:%M:%S" if fine else "%H:%M")
    return [time.strftime(pattern) for time in times]


def lines(
    labels: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    *,
    title: str,
    formatter: Callable[[float | None], str] = short,
    logarithmic: bool = False,
    top: float | None = None,
    stacked: bool = False,
) -> str:
    """Draw values over time, a line each; stacked ones are filled."""
    kind = pygal.StackedLine if stacked else pygal.Line
    positive = [v for values in series.values() for v in values if v is not None and v > 0]
    # the height of a stack is read from zero
    options = _options(fill=stacked, include_x_axis=stacked, value_formatter=formatter)
    if len(series) == 1:
        options["show_legend"] = False
    if logarithmic and positive:
        marks = _marks(min(positive), max(positive))
        above = marks[-1] * 1.1  # pygal writes nothing at the very top
        options |= {"logarithmic": True, "y_labels": marks, "range": (marks[0], above)}
    if top is not None:
        options["range"] = (0, top)
    chart = kind(**options)
    chart.x_labels = list(labels)
    step = max(1, -(-len(labels) // _LABELS))
    chart.x_labels_major = list(labels)[::step]
    for number, (name, values) in enumerate(series.items()):
        # a logarithm has no zero: what is less is drawn on the axis
        shown = [max(v, _MARKS[0]) if logarithmic and v is not None else v for v in values]
        dashes = DASHES[number % len(DASHES)]
        style = {"width": 2} | ({"dasharray": dashes} if dashes and not stacked else {})
        chart.add(name, shown, stroke_style=style, allow_interruptions=True)
    return _svg(chart, title)


def _marks(least: float, most: float) -> list[float]:
    """Return the round durations (ms) that enclose two durations."""
    below = max((mark for mark in _MARKS if mark <= least), default=_MARKS[0])
    above = min((mark for mark in _MARKS if mark >= most), default=_MARKS[-1])
    return [mark for mark in _MARKS if below <= mark <= above]


def bars(title: str, values: Mapping[str, float]) -> str:
    """Draw a horizontal bar for each name, the first at the top."""
    height = 90 + 26 * max(1, len(values))
    chart = pygal.HorizontalBar(**_options(height=height, show_legend=False))
    chart.x_labels = [_cut(name) for name in values][::-1]
    chart.add(title, list(values.values())[::-1])
    return _svg(chart, title)


def _cut(text: str) -> str:
    """Return a text that fits beside a bar."""
    return text if len(text) <= _NAMED else text[: _NAMED - 1] + "…"


def _svg(chart: Any, title: str) -> str:
    """Return the drawing with an accessible name and without external resources."""
    # its styles are bound to this: the same figures give the same page
    chart.uuid = "c" + hashlib.sha256(title.encode()).hexdigest()[:12]
    svg: str = chart.render(is_unicode=True)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<script\b.*?</script>", "", svg, flags=re.DOTALL)
    # the only attribute of ours; pygal escapes what it writes
    name = title.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return re.sub(r"<svg\b", f'<svg role="img" aria-label="{name}"', svg, count=1).strip()
