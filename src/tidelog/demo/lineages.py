"""The picture of the second act: which leader epochs the log of every replica held, before, meanwhile and after."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.base.errors import MissingExtraError
from tidelog.demo.balance import Balance
from tidelog.demo.evidence import ReplicaLog
from tidelog.demo.unclean_election import ACKNOWLEDGED, HEALED, OVERWRITTEN, Cast, Stages

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK, _FAINT, _LOST = "#22303c", "#8a97a3", "#d1495b"
_EPOCHS = ("#9ecae1", "#6baed6", "#7fc8a9", "#b9a3d6", "#f2b661", "#a3c586", "#8fa8d6", "#d7a5c4")
LABEL_SHARE_MIN = 0.06
"""Of the width, from which on there is room for words in a bar."""


def plot_lineages(path: Path, stages: Stages, ledger: Balance, table: ReplicaLog) -> None:
    """Draw a panel for each stage, with a bar for each node, coloured by leader epoch.

    Args:
        path: of the picture.
        stages: of the act.
        ledger: its books.
        table: the rows of Spark's table, which is a bar of its own in the last panel.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        raise MissingExtraError("the demo's picture", "demo") from None
    cast, parts_at = stages.cast, stages.parts_at()
    every = [log for logs in stages.replicas.values() for log in logs.values()]
    end = max(log.end_offset for log in every)
    # What lies far below is the same everywhere.
    begin = 0 if parts_at is None else max(0, parts_at - (end - parts_at))
    epochs = sorted({span.leader_epoch for log in every for span in log.spans})
    colors = {epoch: _EPOCHS[number % len(_EPOCHS)] for number, epoch in enumerate(epochs)}
    figure, panels = pyplot.subplots(
        len(stages.replicas),
        1,
        figsize=(12, 7.9),
        dpi=120,
        sharex=True,
        facecolor="white",
        height_ratios=[len(logs) + (stage == HEALED) for stage, logs in stages.replicas.items()],
    )
    figure.suptitle(
        f"An unclean election took back {ledger.truncated:,} acknowledged records: "
        f"{ledger.truncated - ledger.unreported:,} reported, {ledger.unreported:,} in silence",
        fontsize=15.5,
        fontweight="bold",
        color=_INK,
    )
    figure.set_layout_engine("constrained", w_pad=0.1, h_pad=0.1, hspace=0.06)
    told = "reported" if not ledger.unreported else "NOT ALL REPORTED"
    words = _words(cast)
    for axes, (stage, logs) in zip(panels, stages.replicas.items(), strict=True):
        title, states = words[stage]
        bars = [(f"node {node}", log, states[node]) for node, log in logs.items()]
        if stage == HEALED:
            bars.append(("Spark's table", table, "healed, audited"))
        for row, (_, log, state) in enumerate(bars):
            _draw_log(axes, row, log, colors, range(begin, end))
            axes.text(end + (end - begin) * 0.015, row, state, va="center", fontsize=10, color=_INK)
        if parts_at is not None:
            lost_end = stages.replicas[ACKNOWLEDGED][cast.killed].end_offset
            axes.axvline(parts_at, color=_LOST, linewidth=1.4, linestyle=(0, (4, 3)))
            if stage == ACKNOWLEDGED:
                axes.axvspan(parts_at, lost_end, color=_LOST, alpha=0.14, linewidth=0, zorder=0)
                axes.text(
                    (parts_at + lost_end) / 2, 0, f"truncated and {told}:\n{parts_at:,} to {lost_end - 1:,}",
                    ha="center", va="center", fontsize=10.5, fontweight="bold", color=_LOST,
                )  # fmt: skip
            if stage == HEALED:
                _draw_healed(axes, len(bars) - 1, range(parts_at, table.end_offset))
        axes.set_title(title, loc="left", fontsize=12, color=_INK, pad=8)
        axes.set_yticks(range(len(bars)), [name for name, _, _ in bars])
        axes.set_ylim(len(bars) - 0.5, -0.5)
        axes.set_xlim(begin, end + (end - begin) * 0.22)
        for side in ("top", "right", "left", "bottom"):
            axes.spines[side].set_visible(False)
        axes.tick_params(colors=_INK, length=0, labelsize=10.5)
    ticks = [tick for tick in panels[-1].get_xticks() if begin <= tick <= end]
    panels[-1].set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
    panels[-1].set_xlabel(f"offset in ledger-{cast.partition}; bars are coloured by leader epoch", color=_INK)
    figure.savefig(path)
    pyplot.close(figure)


def _words(cast: Cast) -> dict[str, tuple[str, dict[int, str]]]:
    """For each stage its title, and what became of each node."""
    return {
        ACKNOWLEDGED: (
            "Before: two nodes acknowledged more than the third has, and both are unavailable",
            {cast.stale: "was down, is stale", cast.torn: "log directory failed", cast.killed: "killed with kill -9"},
        ),
        OVERWRITTEN: (
            f"The operator had node {cast.stale} elected: new records stand at the old offsets",
            {cast.stale: "leads, elected uncleanly", cast.torn: "still away", cast.killed: "still away"},
        ),
        HEALED: (
            "After: the others came back, truncated, and hold what the leader holds",
            {cast.stale: "leads", cast.torn: "truncated, in sync", cast.killed: "truncated, in sync"},
        ),
    }


def _draw_healed(axes: Axes, row: int, healed: range) -> None:
    """Frame what the table withdrew and read again."""
    axes.barh(
        row, len(healed), left=healed.start, height=0.74, facecolor="none", edgecolor=_LOST, linewidth=1.8, zorder=3
    )


def _draw_log(axes: Axes, row: int, log: ReplicaLog, colors: dict[int, str], seen: range) -> None:
    for epoch, start_offset, end_offset in log.spans:
        left = max(seen.start, start_offset)
        width = end_offset - left
        if width <= 0:
            continue
        axes.barh(row, width, left=left, height=0.62, color=colors[epoch], edgecolor="white", linewidth=1, zorder=2)
        if width > len(seen) * LABEL_SHARE_MIN:
            axes.text(left + width / 2, row, f"epoch {epoch}", ha="center", va="center", fontsize=9.5, color=_INK)
