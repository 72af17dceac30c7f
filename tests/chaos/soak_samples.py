"""What a soak measures: figures by time, by owner and by life of its process; their file; the verdict."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from chaos.growth import ALLOWANCES, SAMPLES_MIN, WARM_UP_SECONDS, Growth, Series, growth_of


@dataclass(slots=True)
class Samples:
    """All that was measured so far.

    Attributes:
        file: each sample is appended to it as a JSON line, so that a soak that is killed keeps its samples.
        found: by figure and whose it is: (seconds, value, life). A life is the id of a process; 0 where none is meant.
    """

    file: Path | None = None
    found: dict[tuple[str, str], list[tuple[float, float, int]]] = field(default_factory=dict)

    def add(self, name: str, whose: str, at: float, value: float, *, life: int = 0) -> None:
        """One more, `at` seconds after the soak began."""
        self.found.setdefault((name, whose), []).append((at, value, life))

    def write(self, lines: list[Mapping[str, object]]) -> None:
        """Keep these, which were added."""
        if self.file is not None:
            with self.file.open("a") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)

    def lives(self, name: str, whose: str) -> dict[int, Series]:
        """The samples of each process."""
        lives: dict[int, list[tuple[float, float]]] = {}
        for at, value, life in self.found.get((name, whose), ()):
            lives.setdefault(life, []).append((at, value))
        return dict(lives)

    @staticmethod
    def read(path: Path) -> Samples:
        """Those of an earlier soak."""
        samples = Samples()
        for line in path.read_text().splitlines():
            one = json.loads(line)
            for name, value in one["figures"].items():
                samples.add(name, one["whose"], one["at"], value, life=one["life"])
        return samples


def judge_samples(samples: Samples, *, warm_up_seconds: float) -> list[Growth]:
    """All that grows: within a life of a process, or from one life to the next.

    Args:
        warm_up_seconds: the first of each life, which are not judged.
    """
    found: list[Growth] = []
    for name, whose in samples.found:
        allowance = ALLOWANCES.get(name)
        if allowance is None:
            continue
        lives, grown = samples.lives(name, whose), len(found)
        for life, series in lives.items():
            who = f"{name} of {whose} (process {life})" if life or len(lives) > 1 else f"{name} of {whose}"
            growth = growth_of(who, series, allowance, warm_up_seconds=warm_up_seconds)
            found += [] if growth is None else [growth]
        if len(lives) > 1 and len(found) == grown:
            warm = _warm(lives, warm_up_seconds)
            what = f"{name} of {whose}, over all its processes"
            growth = growth_of(what, warm, allowance, warm_up_seconds=0.0, is_warm=warm_up_seconds >= WARM_UP_SECONDS)
            found += [] if growth is None else [growth]
    return found


def unjudged_figures(samples: Samples, *, warm_up_seconds: float) -> list[str]:
    """Those of which nobody has samples enough: a soak that did not measure them says nothing of them."""
    judged = {
        name for name, whose in samples.found if len(_warm(samples.lives(name, whose), warm_up_seconds)) >= SAMPLES_MIN
    }
    return [name for name in ALLOWANCES if name not in judged]


def _warm(lives: Mapping[int, Series], warm_up_seconds: float) -> list[tuple[float, float]]:
    return [one for series in lives.values() for one in series if one[0] >= series[0][0] + warm_up_seconds]
