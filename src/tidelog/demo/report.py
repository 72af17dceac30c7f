"""What the demo shows at the end: a table, a picture, and the line that counts."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.base.errors import MissingExtraError
from tidelog.demo.balance import Balance
from tidelog.demo.flights import Books, Totals, Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tidelog.spark.table_audit import AuditReport

WEEKS = 53
_INK, _FAINT, _LINE, _OUTAGE = "#22303c", "#8a97a3", "#1f77b4", "#d1495b"
_WRITTEN = "#2a9d8f"


@dataclass
class Outage:
    """A node that was killed.

    Attributes:
        who: it was, in words.
        killed_at: in seconds since the run began.
        back_at: when it served again; None if it never did.
    """

    who: str
    killed_at: float
    back_at: float | None = None


@dataclass
class RunLog:
    """When what went through, in seconds since the run began.

    Attributes:
        began: in `time.monotonic`.
        written: (seconds, flights that are in the topic), growing.
        query_began_at: when the streaming query was started.
        progress: (seconds, records that the query has read so far), growing.
        outages: in the order in which they came.
    """

    began: float = 0.0
    written: list[tuple[float, int]] = field(default_factory=list)
    query_began_at: float = 0.0
    progress: list[tuple[float, int]] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)

    def seconds(self) -> float:
        """Since the run began."""
        return time.monotonic() - self.began


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
    """What became of the flights."""
    end = "" if verdict.is_clean else f"; {verdict.differing_days} days of a carrier differ from the file"
    return (
        f"{verdict.flights_in:,} flights in, {verdict.flights_out:,} out, "
        f"{verdict.lost:,} lost, {verdict.duplicated:,} duplicated{end}"
    )


def ledger_line(outages: Balance, longest_pause_ms: int) -> str:
    """What became of the numbers that were written while nodes were killed."""
    return (
        f"ledger, after two nodes were killed: {outages.acknowledged:,} records acknowledged, "
        f"{outages.truncated:,} of them lost, {outages.duplicated:,} duplicated; "
        f"the longest wait for an acknowledgement: {longest_pause_ms / 1000:.1f} s"
    )


def audit_line(report: AuditReport) -> str:
    """What became of the table that Spark copied the ledger into."""
    return (
        f"audit of the healed table: {report.matching:,} rows are as the log gives them, "
        f"{report.differences:,} differ, {report.unverifiable:,} unverifiable"
    )


def balance_rows(ledger: Balance) -> list[dict[str, object]]:
    """What became of the numbers in the end, as the files of all replicas say."""
    return [
        {"ledger": what, "records": count}
        for what, count in (
            ("acknowledged", ledger.acknowledged),
            ("truncated by the unclean election", ledger.truncated),
            ("  reported to readers", ledger.told_readers),
            ("    by the Spark query", ledger.told_query),
            ("    to the consumer", ledger.told_consumer),
            ("  reported to the producer", ledger.told_producer),
            ("  reported to nobody", ledger.unreported),
            ("  in the cluster's account of losses", ledger.truncated - ledger.unaccounted),
        )
    ]


def complaints(ledger: Balance) -> list[str]:
    """What is wrong with the books of the ledger: nothing, as a rule."""
    return [
        text
        for count, text in (
            (ledger.unreported, "acknowledged records are in no log any more, and NOBODY WAS TOLD"),
            (ledger.unaccounted, "acknowledged records are in no log any more, and not in the account of losses"),
            (ledger.duplicated, "records are there twice, or were read twice"),
            (ledger.consumer_differs, "records differ between what the consumer has and what is in the log"),
            (ledger.query_differs, "records differ between what the Spark query has and what is in the log"),
            (ledger.differing_replicas, "replicas do not hold what the others of their partition hold"),
            (ledger.inexact, "reports name another offset than the one where the files part"),
        )
        for text in ([f"{count:,} {text}"] if count else [])
    ]


def plot(path: Path, books: Books, log: RunLog, verdict: Verdict, ledger: Balance) -> None:
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
        f"{verdict.flights_in + ledger.acknowledged:,} acknowledged records through three nodes and Spark: "
        f"{verdict.lost + ledger.truncated:,} lost, {verdict.duplicated + ledger.duplicated:,} duplicated",
        fontsize=17,
        fontweight="bold",
        color=_INK,
    )
    _draw_run(run, log, verdict.flights_in)
    _draw_delays(figure, heat, books)
    figure.savefig(path)
    pyplot.close(figure)


def _draw_run(axes: Axes, log: RunLog, flights: int) -> None:
    seconds = [log.query_began_at, *(at for at, _ in log.progress)]
    records = [0, *(count for _, count in log.progress)]
    if log.written:
        axes.step(*zip(*log.written, strict=True), where="post", color=_WRITTEN, linewidth=2.2, label="written")
    axes.fill_between(seconds, records, step="post", color=_LINE, alpha=0.12, linewidth=0)
    axes.step(seconds, records, where="post", color=_LINE, linewidth=2.2, label="read and summed up")
    end = max([*seconds, *(outage.back_at or outage.killed_at for outage in log.outages)]) * 1.02 + 0.1
    axes.set_xlim(0, end)
    axes.set_ylim(0, flights * 1.14)
    for outage in log.outages:
        _draw_outage(axes, outage, end, flights)
    axes.legend(loc="upper left", bbox_to_anchor=(0, 0.8), frameon=False, fontsize=10.5, labelcolor=_INK)
    axes.axhline(flights, color=_FAINT, linewidth=1, linestyle=(0, (4, 4)))
    axes.annotate(
        f"all {flights:,}", (0, flights), xytext=(6, 4), textcoords="offset points", color=_FAINT, fontsize=10
    )
    axes.set_xlabel("seconds since Spark began to write", color=_INK)
    axes.set_ylabel("flights processed", color=_INK)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value / 1000:.0f} k" if value else "0")
    axes.set_title(
        "Three nodes: a leader is killed while Spark writes, the controller while it reads",
        loc="left",
        fontsize=12.5,
        color=_INK,
    )
    axes.grid(axis="y", color="#e6eaee", linewidth=0.8)
    axes.set_axisbelow(True)
    _tidy(axes)


def _draw_outage(axes: Axes, outage: Outage, end: float, flights: int) -> None:
    back_at = end if outage.back_at is None else outage.back_at
    axes.axvspan(outage.killed_at, back_at, color=_OUTAGE, alpha=0.28, linewidth=0)
    axes.axvline(outage.killed_at, color=_OUTAGE, linewidth=1.4)
    back = "" if outage.back_at is None else f",\nback after {outage.back_at - outage.killed_at:.1f} s"
    is_late = outage.killed_at > end * 0.6  # there is room on its left only
    axes.annotate(
        f"kill -9: {outage.who}{back}",
        (outage.killed_at if is_late else back_at, flights * (0.76 if is_late else 0.1)),
        xytext=(-9 if is_late else 9, 0),
        textcoords="offset points",
        ha="right" if is_late else "left",
        color=_OUTAGE,
        fontsize=10.5,
        fontweight="bold",
        backgroundcolor=(1, 1, 1, 0.8),
    )


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
