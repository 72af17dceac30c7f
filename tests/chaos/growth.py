"""Whether something grows: a robust slope over the samples of a soak, held against what is allowed.

The slope is the Theil-Sen estimate, the median of the slopes between all pairs of samples: a fault, a compaction or a
garbage collection that makes some samples higher does not move it. Kendall's test says whether the samples rise at all,
or only scatter. Samples of the warm-up are not looked at: caches fill, and code is loaded on first use.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

SAMPLES_MIN = 12
"""Fewer show nothing."""
SAMPLES_MAX = 300
"""Of more, every second, third … is taken: the pairs grow with their square."""
KENDALL_Z_MIN = 3.0
"""Standard deviations from a series that does not rise: by chance one series in 700 exceeds it."""
HOUR_SECONDS = 3_600.0
WARM_UP_SECONDS = 900.0
"""In so long a stint of each kind was played, and what is loaded, cached or counted on first use is there."""

Series = Sequence[tuple[float, float]]
"""(seconds, value), the oldest first."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """How far a figure may rise over the samples that are judged.

    Attributes:
        unit: of the figure.
        at_once: whatever the duration: what steps and sawtooth may leave.
        per_hour: more than that, for each hour of samples.
        of_median: more than that, as a share of the median of the samples.
        first_use: more than that, where the warm-up is too short for everything to be used in it.
        why: for people.
    """

    unit: str
    at_once: float
    why: str
    per_hour: float = 0.0
    of_median: float = 0.0
    first_use: float = 0.0

    def over(self, series: Series, *, is_warm: bool) -> float:
        """What it comes to for these samples."""
        hours = (series[-1][0] - series[0][0]) / HOUR_SECONDS
        first_use = 0.0 if is_warm else self.first_use
        return first_use + self.at_once + self.per_hour * hours + self.of_median * median(value for _, value in series)


MEGABYTE = 1e6
ALLOWANCES: Mapping[str, Allowance] = {
    "rss": Allowance(
        "bytes",
        8 * MEGABYTE,
        "the allocator keeps what a burst took; code loads on first use",
        per_hour=1 * MEGABYTE,
        first_use=24 * MEGABYTE,
    ),
    "fds": Allowance("files", 60, "a topic more or fewer; connections of clients that were killed", first_use=120),
    "threads": Allowance("threads", 4, "the pools of threads start theirs one by one", first_use=4),
    "series": Allowance(
        "series", 400, "topics and groups of a stint; each API and error on its first use", first_use=2_500
    ),
    "disk": Allowance("bytes", 96 * MEGABYTE, "segments between their roll and their deletion", per_hour=4 * MEGABYTE),
    "lag": Allowance("records", 5_000, "a group is behind for as long as a fault lasts"),
    "produce_p50": Allowance("ms", 20, "the load of a stint is not that of the one before", of_median=1.0),
    "fetch_p50": Allowance("ms", 40, "the load of a stint is not that of the one before", of_median=1.0),
}
"""What is judged. The figures of a node are judged for each life of its process, and over all lives."""


@dataclass(frozen=True, slots=True)
class Growth:
    """A figure that grows.

    Attributes:
        what: the figure and whose it is.
        risen: by how much the slope rises over the samples.
        allowed: at most.
        seconds: from the first sample that was judged to the last.
    """

    what: str
    unit: str
    risen: float
    allowed: float
    first: float
    last: float
    seconds: float

    def __str__(self) -> str:
        hours = self.seconds / HOUR_SECONDS
        return (
            f"{self.what} grows: by {_shown(self.risen, self.unit)} in {hours:.2f} h "
            f"({_shown(self.risen / hours, self.unit)} an hour), allowed {_shown(self.allowed, self.unit)}; "
            f"from {_shown(self.first, self.unit)} to {_shown(self.last, self.unit)}"
        )


def growth_of(
    what: str, series: Series, allowance: Allowance, *, warm_up_seconds: float, is_warm: bool | None = None
) -> Growth | None:
    """None if it does not grow beyond what is allowed, or if there are too few samples to say.

    Args:
        what: for the message.
        series: of one figure; its warm-up begins with its first sample.
        is_warm: whether everything was used before the judged samples; by default if the warm-up is long enough.
    """
    if not series:
        return None
    judged = thinned([one for one in series if one[0] >= series[0][0] + warm_up_seconds])
    if len(judged) < SAMPLES_MIN:
        return None
    seconds = judged[-1][0] - judged[0][0]
    risen = theil_sen_slope(judged) * seconds
    is_warm = warm_up_seconds >= WARM_UP_SECONDS if is_warm is None else is_warm
    allowed = allowance.over(judged, is_warm=is_warm)
    if risen <= allowed or kendall_z(judged) < KENDALL_Z_MIN:
        return None
    quarter = max(1, len(judged) // 4)
    first, last = (median(value for _, value in part) for part in (judged[:quarter], judged[-quarter:]))
    return Growth(what, allowance.unit, risen, allowed, first, last, seconds)


def thinned(series: Series) -> Series:
    """At most SAMPLES_MAX of them, at even distances."""
    return series[:: math.ceil(len(series) / SAMPLES_MAX)] if series else series


def theil_sen_slope(series: Series) -> float:
    """A second, by the median of all pairs."""
    return median((b - a) / (until - since) for (since, a), (until, b) in combinations(series, 2) if until > since)


def kendall_z(series: Series) -> float:
    """How many standard deviations more pairs rise than fall, corrected for ties (Mann and Kendall's test)."""
    rising = sum((b > a) - (b < a) for (_, a), (_, b) in combinations(series, 2))
    counts: dict[float, int] = {}
    for _, value in series:
        counts[value] = counts.get(value, 0) + 1
    n = len(series)
    variance = (n * (n - 1) * (2 * n + 5) - sum(t * (t - 1) * (2 * t + 5) for t in counts.values())) / 18
    return 0.0 if not variance or not rising else (rising - math.copysign(1, rising)) / math.sqrt(variance)


def _shown(value: float, unit: str) -> str:
    return f"{value / MEGABYTE:,.1f} MB" if unit == "bytes" else f"{value:,.1f} {unit}"
