"""Tests run against one mutant, in a process forked for it: it ends with the first test that fails.

The parent has loaded all that a mutant does not change, once, so a trial costs little more than its tests.
"""

from __future__ import annotations

import gc
import importlib
import importlib.abc
import json
import os
import resource
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import pytest

PACKAGE = "tidelog.replica"
MEMORY_BYTES_MAX = 3 << 30
LOADS_NOT = "loads not"


class Baseline(NamedTuple):
    """How the tests go on the code as it is.

    Attributes:
        failed: the first test that does; empty if none does.
        seconds: of each test, by its name.
        modules: that were loaded in the end.
    """

    failed: str
    seconds: Mapping[str, float]
    modules: Sequence[str]


class Running(NamedTuple):
    """A process at work, and where it tells of it."""

    pid: int
    readable: int

    def take_result(self) -> Any:
        """What came of the task, once it has ended; None when it was stopped before."""
        with os.fdopen(self.readable) as result:
            text = result.read()
        return json.loads(text) if text else None


@dataclass(frozen=True, slots=True)
class Changed:
    """One module with another source than its file has."""

    path: Path
    source: str

    @property
    def module(self) -> str:
        return PACKAGE if self.path.stem == "__init__" else f"{PACKAGE}.{self.path.stem}"


class _ChangedLoader(SourceFileLoader):
    def __init__(self, changed: Changed) -> None:
        super().__init__(changed.module, str(changed.path))
        self._source = changed.source

    def get_code(self, fullname: str) -> types.CodeType:
        code: types.CodeType = compile(self._source, self.path, "exec", dont_inherit=True)
        return code


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the changed module instead of the file; nothing of the package at all when there is none."""

    def __init__(self, changed: Changed | None) -> None:
        self._changed = changed

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        if self._changed is None:
            if fullname == PACKAGE:
                raise ImportError(f"{fullname} is loaded by those who have changed it")
        elif fullname == self._changed.module:
            return spec_from_file_location(fullname, self._changed.path, loader=_ChangedLoader(self._changed))
        return None


class _Watch:
    """A plugin that has the fastest tests run first, and notes what comes of them."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self._expected = seconds
        self.seconds: dict[str, float] = {}
        self.failed = ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: self._expected.get(item.nodeid, 0.0))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if report.failed and not self.failed:
            self.failed = report.nodeid


def load_all_but_the_package(modules: Sequence[str]) -> None:
    """Load those of `modules` that do not need the package, to be there in every trial."""
    finder = _Finder(None)
    sys.meta_path.insert(0, finder)
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception:
            continue  # it needs the package, or is no module that can be loaded by its name
    sys.meta_path.remove(finder)
    assert PACKAGE not in sys.modules
    gc.collect()
    gc.freeze()  # what is shared with the trials stays shared


def fork(task: Callable[[], Any]) -> Running:
    """Run `task` in a process of its own; what it returns, which JSON can tell, comes back here."""
    readable, writable = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writable)
        return Running(pid, readable)
    os.close(readable)
    try:
        with open(os.devnull, "r+b") as nowhere:
            for stream in range(3):
                os.dup2(nowhere.fileno(), stream)
        with os.fdopen(writable, "w") as result:
            json.dump(task(), result)
    finally:
        os._exit(0)


def measure(tests: Sequence[str]) -> Baseline:
    """How the tests go on the code as it is, in a process of their own."""

    def run() -> Baseline:
        watch = _run(tests, {})
        return Baseline(watch.failed, watch.seconds, [name for name in sys.modules if not name.startswith("__")])

    running = fork(run)
    told = running.take_result()
    os.waitpid(running.pid, 0)
    return Baseline("pytest itself", {}, []) if told is None else Baseline(*told)


def attempt(
    changed: Changed, tests: Sequence[str], seconds: Mapping[str, float], cpu_seconds: int
) -> Callable[[], str]:
    """A task: the name of the test that catches `changed`; empty if none does."""

    def run() -> str:
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
        sys.meta_path.insert(0, _Finder(changed))
        try:
            importlib.import_module(PACKAGE)
        except Exception:
            return LOADS_NOT
        return _run(tests, seconds).failed

    return run


def _run(tests: Sequence[str], seconds: Mapping[str, float]) -> _Watch:
    # What fails is not looked at any closer: hypothesis need not make it small.
    phases = [phase for phase in hypothesis.Phase if phase not in (hypothesis.Phase.shrink, hypothesis.Phase.explain)]
    watch = _Watch(seconds)
    hypothesis.settings.register_profile("mutants", derandomize=True, deadline=None, phases=phases)
    options = [
        "-x",
        "-q",
        "--assert=plain",
        "-p",
        "no:cacheprovider",
        "-o",
        "timeout=0",
        "--hypothesis-profile=mutants",
    ]
    code = pytest.main([*options, *tests], plugins=[watch])
    if code != pytest.ExitCode.OK and not watch.failed:
        watch.failed = f"pytest: {pytest.ExitCode(code).name}"
    return watch
