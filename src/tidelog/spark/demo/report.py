"""What the demo shows at the end: a table, a picture, and the line that counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.base.errors import MissingExtraError
from tidelog.spark.demo.flights import Books, Totals, Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WEEKS = 53
_INK, _FAINT, _LINE, _OUTAGE = "#22303c", "#8a97a3", "#1f77b4", "#d1495b"


@dataclass
class RunLog:
    """When what went through, in seconds since the query started.

    Attributes:
        progress: (seconds, records so far), growing.
        killed_at: when the broker was killed; None if it was not.
        back_at: when it served again.
    """

    progress: list[tuple[float, int]] = field(default_factory=list)
    killed_at: float | None = None
    back_at: float | None = None


def carrier_rows(books: Books) -> list[dict[str, object]]:
    """One row a carrier, the largest first: means of a year, from exact sums."""
    carriers: dict[str, Totals] = {}
    for (carrier, _), totals in books.items():
        carriers[carrier] = carriers.get(carrier, Totals()).plus(totals)
    return [
        {
            "carrier": carrier,
            "flights": year.flights,
            "never_departed": year.flights - year.departed,
            "mean_departure_delay_min": _mean(year.departure_delay, year.departed),
            "never_arrived": year.flights - year.arrived,
            "mean_arrival_delay_min": _mean(year.arrival_delay, year.arrived),
        }
        for carrier, year in sorted(carriers.items(), key=lambda item: (-item[1].flights, item[0]))
    ]


def verdict_line(verdict: Verdict) -> str:
    """The last line of the demo."""
    end = "" if verdict.is_clean else f"; {verdict.differing_days} days of a carrier differ from the file"
    return (
        f"{verdict.flights_in:,} flights in, {verdict.flights_out:,} out, "
        f"{verdict.lost:,} lost, {verdict.duplicated:,} duplicated{end}"
    )


def plot(path: Path, books: Books, log: RunLog, verdict: Verdict) -> None:
    """Draw the run, with the outage in it, above what it computed.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        raise MissingExtraError("the demo's picture", "demo") from None
    figure, (run, heat) = pyplot.subplots(
        2, 1, figsize=(12, 8.4), dpi=120, height_ratios=(1, 1.55), layout="constrained", facecolor="white"
    )
    figure.suptitle(
        f"{verdict.flights_in:,} flights through Tidelog and Spark: "
        f"{verdict.lost:,} lost, {verdict.duplicated:,} duplicated",
        fontsize=17,
        fontweight="bold",
        color=_INK,
    )
    _draw_run(run, log, verdict.flights_in)
    _draw_delays(figure, heat, books)
    figure.savefig(path)
    pyplot.close(figure)


def _draw_run(axes: Axes, log: RunLog, flights: int) -> None:
    seconds = [0.0, *(at for at, _ in log.progress)]
    records = [0, *(count for _, count in log.progress)]
    axes.fill_between(seconds, records, step="post", color=_LINE, alpha=0.12, linewidth=0)
    axes.step(seconds, records, where="post", color=_LINE, linewidth=2.2)
    axes.set_xlim(0, max(seconds) * 1.02 + 0.1)
    axes.set_ylim(0, flights * 1.14)
    if log.killed_at is not None and log.back_at is not None:
        axes.axvspan(log.killed_at, log.back_at, color=_OUTAGE, alpha=0.28, linewidth=0)
        axes.axvline(log.killed_at, color=_OUTAGE, linewidth=1.4)
        axes.annotate(
            f"kill -9, back after {log.back_at - log.killed_at:.1f} s",
            (log.killed_at, flights * 0.1),
            xytext=(9, 0),
            textcoords="offset points",
            color=_OUTAGE,
            fontsize=11,
            fontweight="bold",
            backgroundcolor=(1, 1, 1, 0.8),
        )
    axes.axhline(flights, color=_FAINT, linewidth=1, linestyle=(0, (4, 4)))
    axes.annotate(
        f"all {flights:,}", (0, flights), xytext=(6, 4), textcoords="offset points", color=_FAINT, fontsize=10
    )
    axes.set_xlabel("seconds since the query started", color=_INK)
    axes.set_ylabel("flights processed", color=_INK)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value / 1000:.0f} k" if value else "0")
    axes.set_title("A streaming query whose broker is killed half way", loc="left", fontsize=12.5, color=_INK)
    axes.grid(axis="y", color="#e6eaee", linewidth=0.8)
    axes.set_axisbelow(True)
    _tidy(axes)


def _draw_delays(figure: Figure, axes: Axes, books: Books) -> None:
    weeks: dict[tuple[str, int], Totals] = {}
    flights: dict[str, int] = {}
    for (carrier, day), totals in books.items():
        week = (date.fromisoformat(day).timetuple().tm_yday - 1) // 7
        weeks[carrier, week] = weeks.get((carrier, week), Totals()).plus(totals)
        flights[carrier] = flights.get(carrier, 0) + totals.flights
    carriers = sorted(flights, key=lambda carrier: -flights[carrier])
    nothing = float("nan")
    means = [
        [
            _mean(at.departure_delay, at.departed, nothing)
            for at in (weeks.get((name, w), Totals()) for w in range(WEEKS))
        ]
        for name in carriers
    ]
    image = axes.imshow(means, aspect="auto", cmap="RdYlBu_r", vmin=-20, vmax=60, interpolation="nearest")
    axes.set_yticks(range(len(carriers)), [f"{name}  {flights[name]:>7,}" for name in carriers], fontfamily="monospace")
    starts = [(date(2013, month, 1).timetuple().tm_yday - 1) / 7 - 0.5 for month in range(1, 13)]
    axes.set_xticks(starts, [date(2013, month, 1).strftime("%b") for month in range(1, 13)], ha="left")
    axes.set_title(
        "What it computed: mean departure delay by carrier and week of 2013, in minutes", loc="left", fontsize=12.5,
        color=_INK,
    )  # fmt: skip
    axes.set_ylabel("carrier, flights of the year", color=_INK)
    axes.set_facecolor("#f3f5f7")
    bar = figure.colorbar(image, ax=axes, pad=0.012, fraction=0.03, extend="both")
    bar.outline.set_visible(False)
    _tidy(axes)


def _tidy(axes: Axes) -> None:
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.tick_params(colors=_INK, length=0, labelsize=10)


def _mean(total: int, count: int, nothing: float = 0.0) -> float:
    return round(total / count, 1) if count else nothing
