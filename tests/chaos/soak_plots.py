"""The pictures of a soak: each figure by hour, a line for each node. `python tests/chaos/soak_plots.py DIRECTORY`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))

from chaos.growth import HOUR_SECONDS, MEGABYTE
from chaos.soak_samples import Samples
from tidelog.base.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SAMPLES = "samples.jsonl"
_INK, _FAINT = "#22303c", "#8a97a3"
_COLORS = ("#1f77b4", "#2a9d8f", "#d1495b", "#e09f3e", "#7b5ea7")
PICTURES = {
    "memory": ("resident memory, MB", ("rss",), MEGABYTE),
    "files": ("open files", ("fds",), 1),
    "threads": ("threads", ("threads",), 1),
    "disk": ("files on disk, MB", ("disk",), MEGABYTE),
    "processor": ("processor, % of a core", ("cpu",), 1),
    "metrics": ("a scrape of the metrics, ms", ("scrape",), 1),
    "series": ("series in the metrics", ("series",), 1),
    "produce": ("from send to acknowledgement, ms", ("produce_p50", "produce_p99"), 1),
    "fetch": ("from send to reader, ms", ("fetch_p50", "fetch_p99"), 1),
    "lag": ("lag of the group, records", ("lag",), 1),
}
"""By the name of the file: what is on its axis, the figures in it, and their divisor. Times have a logarithmic axis."""


def plot_samples(samples: Samples, into: Path) -> list[Path]:
    """One picture for each kind of figure. Returns their paths.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        raise MissingExtraError("the pictures of a soak", "demo") from None
    drawn = []
    for name, (title, figures, divisor) in PICTURES.items():
        canvas, axes = pyplot.subplots(figsize=(12, 4), dpi=110, layout="constrained", facecolor="white")
        lines = sorted(key for key in samples.found if key[0] in figures)
        for number, (figure, whose) in enumerate(lines):
            label = whose if len(figures) == 1 else figure.rpartition("_")[2]
            for place, series in enumerate(samples.lives(figure, whose).values()):
                hours = [at / HOUR_SECONDS for at, _ in series]
                values = [value / divisor for _, value in series]
                color = _COLORS[number % len(_COLORS)]
                axes.plot(hours, values, color=color, linewidth=1.1, label=label if place == 0 else None)
        _dress(axes, title, is_logarithmic=len(figures) > 1)
        path = into / f"{name}.png"
        canvas.savefig(path)
        pyplot.close(canvas)
        drawn.append(path)
    return drawn


def _dress(axes: Axes, title: str, *, is_logarithmic: bool) -> None:
    axes.set_title(title, loc="left", fontsize=12, color=_INK)
    axes.set_xlabel("hours", color=_INK)
    axes.set_xlim(left=0)
    if is_logarithmic:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    if axes.lines:
        axes.legend(loc="upper left", frameon=False, fontsize=9, labelcolor=_INK, ncols=3)
    axes.grid(axis="y", color="#e6eaee", linewidth=0.8)
    axes.tick_params(colors=_FAINT)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    print("\n".join(map(str, plot_samples(Samples.read(directory / SAMPLES), directory))))
