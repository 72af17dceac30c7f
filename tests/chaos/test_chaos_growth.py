"""The judge of a soak: growth that was planted is found, and what only scatters, steps or saws is not."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.growth import (
    ALLOWANCES,
    KENDALL_Z_MIN,
    SAMPLES_MIN,
    WARM_UP_SECONDS,
    Series,
    growth_of,
    kendall_z,
    theil_sen_slope,
)
from chaos.sampler import held_by
from chaos.soak_samples import Samples, judge_samples, unjudged_figures
from chaos.steady_load import SteadyLoad

HOUR = 3_600.0
WARM_UP = WARM_UP_SECONDS
MB = 1e6


def series(value_at, *, hours: float = 3.0, seed: int = 1, noise: float = 0.0) -> Series:  # type: ignore[no-untyped-def]
    dice = random.Random(seed)
    times = [number * 20.0 for number in range(int(hours * HOUR / 20))]
    return [(at, value_at(at) + dice.gauss(0, noise)) for at in times]


def saw(at: float) -> float:
    """What a stint of two minutes takes, and gives back."""
    return 20 * MB * (at % 120) / 120


def grown(name: str, found: Series):  # type: ignore[no-untyped-def]
    return growth_of(f"{name} of node 1", found, ALLOWANCES[name], warm_up_seconds=WARM_UP)


def test_a_leak_of_memory_is_found_under_noise_and_saws() -> None:
    found = grown("rss", series(lambda at: 60 * MB + saw(at) + 8 * MB * at / HOUR, noise=5 * MB))
    assert found is not None
    assert str(found).startswith("rss of node 1 grows: by ")
    assert "MB an hour), allowed 10.7 MB; from " in str(found)
    assert found.risen == pytest.approx(8 * MB * (3 - 1 / 4), rel=0.3)


def test_a_leak_of_files_is_found() -> None:
    found = grown("fds", series(lambda at: 200 + at // 30, noise=10))
    assert found is not None
    assert "files" in str(found)


@pytest.mark.parametrize("seed", range(20))
def test_what_stays_is_not_said_to_grow(seed: int) -> None:
    assert grown("rss", series(lambda at: 60 * MB + saw(at), noise=10 * MB, seed=seed)) is None
    assert grown("fds", series(lambda at: 200 + (300 if at % 600 < 60 else 0), noise=10, seed=seed)) is None
    assert grown("threads", series(lambda _: 12)) is None


def test_a_warm_up_is_not_growth() -> None:
    assert grown("rss", series(lambda at: min(at, WARM_UP) / WARM_UP * 100 * MB, noise=MB)) is None
    assert grown("rss", series(lambda at: min(at, 2 * WARM_UP) / WARM_UP * 50 * MB, noise=MB)) is None


def test_a_slow_leak_needs_a_long_soak() -> None:
    def leak(at: float) -> float:
        return 60 * MB + 3 * MB * at / HOUR

    assert grown("rss", series(leak, hours=1, noise=MB)) is None
    assert grown("rss", series(leak, hours=8, noise=MB)) is not None


def test_too_few_samples_show_nothing() -> None:
    assert grown("rss", [(WARM_UP * 2 + at, at * 100 * MB) for at in range(SAMPLES_MIN - 1)]) is None
    assert grown("rss", []) is None


def test_the_slope_is_that_of_most_pairs() -> None:
    line = [(float(at), 2.0 * at) for at in range(20)]
    assert theil_sen_slope(line) == 2.0
    assert theil_sen_slope([*line[:5], (5.0, 1e9), *line[6:]]) == pytest.approx(2.0)
    assert kendall_z(line) > KENDALL_Z_MIN
    assert kendall_z([(at, -value) for at, value in line]) < -KENDALL_Z_MIN
    assert kendall_z([(at, 1.0) for at, _ in line]) == 0.0


def test_each_life_of_a_process_is_judged_and_all_lives_together() -> None:
    def samples(per_life: float, per_hour: float) -> Samples:
        """Five lives of an hour: each grows by `per_life`, and begins `per_hour` higher than the one before."""
        found = Samples()
        for number in range(5 * 180):
            at = number * 20.0
            life, age = divmod(at, HOUR)
            rss = 60 * MB + per_life * age / HOUR + per_hour * life
            found.add("rss", "node 1", at, rss, life=int(life))
            found.add("fds", "node 1", at, 100, life=int(life))
        return found

    assert judge_samples(samples(0, 0), warm_up_seconds=WARM_UP) == []
    leak = judge_samples(samples(40 * MB, 0), warm_up_seconds=WARM_UP)
    assert len(leak) == 5
    assert str(leak[0]).startswith("rss of node 1 (process 0) grows: ")
    rising = judge_samples(samples(0, 10 * MB), warm_up_seconds=WARM_UP)
    assert [one.what for one in rising] == ["rss of node 1, over all its processes"]


def test_a_figure_that_nobody_measured_is_not_well() -> None:
    samples = Samples()
    for number in range(SAMPLES_MIN):
        for name in ALLOWANCES.keys() - {"lag", "rss"}:
            samples.add(name, "node 1", 10.0 * number, 1.0, life=number % 2)
        samples.add("rss", "node 1", 10.0 * number, 1.0)
    assert unjudged_figures(samples, warm_up_seconds=0.0) == ["lag"]
    assert set(unjudged_figures(samples, warm_up_seconds=5.0)) == set(ALLOWANCES)


def test_a_load_that_ends_by_itself_is_told() -> None:
    class Unreachable:
        bootstrap = ""

        def create_topic(self, *arguments: object, **settings: object) -> None:
            pass

    load = SteadyLoad(Unreachable())  # type: ignore[arg-type]
    load.start()
    load.close()
    assert len(load.failures) == 2


LEAKY = """
import os, sys
held = []
for line in sys.stdin:
    held.append(bytearray(os.urandom(1)) * {size_bytes} if {size_bytes} else None)
    held += [os.open("/dev/null", os.O_RDONLY) for _ in range({files})]
    print(flush=True)
"""


@pytest.mark.parametrize(
    ("size_bytes", "files", "growing"), [(0, 0, set()), (3_000_000, 0, {"rss"}), (0, 12, {"fds"}), (10_000, 1, set())]
)
def test_growth_that_is_planted_in_a_process_is_found(
    tmp_path: Path, size_bytes: int, files: int, growing: set[str]
) -> None:
    samples = Samples(tmp_path / "samples.jsonl")
    program = LEAKY.format(size_bytes=size_bytes, files=files)
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for step in range(30):
            process.stdin.write(b"\n")
            process.stdin.flush()
            process.stdout.readline()
            figures = held_by(process.pid)
            for name, value in figures.items():
                samples.add(name, "node 1", float(step), value, life=process.pid)
            samples.write([{"at": step, "whose": "node 1", "life": process.pid, "figures": figures}])
        process.stdin.close()
    for read in (samples, Samples.read(tmp_path / "samples.jsonl")):
        found = judge_samples(read, warm_up_seconds=5.0)
        assert {one.what.split()[0] for one in found} == growing
