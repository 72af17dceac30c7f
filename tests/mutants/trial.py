"""Tests run against one mutant, in a process forked for it: it ends with the first test that fails.

The tests are collected once. The process of a mutant has them all in memory, puts the changed code in the place of the
one function that it is about, and runs what there is: so a trial costs little more than its tests.
"""

from __future__ import annotations

import ast
import gc
import json
import os
import resource
import sys
import time
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import hypothesis
import pytest

from mutants.mutations import Mutant

MEMORY_BYTES_MAX = 3 << 30
EXAMPLES_MAX = 25
LOADS_NOT = "loads not"
TIME_LIMIT = "the time limit"


class Baseline(NamedTuple):
    """How the tests go on the code as it is: the first that fails, if one does, and how long they take a processor."""

    failed: str
    test_count: int
    cpu_seconds: float


class Running(NamedTuple):
    """A process at work, and where it tells of it."""

    pid: int
    readable: int

    def take_result(self) -> Any:
        """What came of the task, once it has ended; None when it was stopped before."""
        with os.fdopen(self.readable) as result:
            text = result.read()
        return json.loads(text) if text else None


class Bench:
    """The tests, collected and ready; told by pytest of each that has run."""

    def __init__(self, session: pytest.Session, package: str, temporary: Path) -> None:
        self._items = session.items
        self._package = package
        self._temporary = temporary
        self._seconds: dict[str, float] = {}
        self._setups: dict[str, float] = {}
        self._failed = ""
        session.config.pluginmanager.register(self)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration
        if report.when == "setup":  # of what the tests of a file share: the first of them pays for all
            file = report.nodeid.partition("::")[0]
            self._setups[file] = max(self._setups.get(file, 0.0), report.duration)
        if report.failed and not self._failed:
            self._failed = report.nodeid

    def measure(self) -> Baseline:
        """Run all on the code as it is. From then on the fastest run first."""
        running = fork(lambda: (self._run(), time.process_time(), self._seconds, self._setups))
        told = running.take_result()
        os.waitpid(running.pid, 0)
        failed, cpu_seconds, seconds, setups = ("pytest itself", 0.0, {}, {}) if told is None else told
        self._items.sort(key=lambda item: seconds.get(item.nodeid, 0) + setups.get(item.nodeid.partition("::")[0], 0))
        gc.collect()
        gc.freeze()  # what is shared with the trials stays shared
        return Baseline(failed, len(seconds), cpu_seconds)

    def attempt(self, mutant: Mutant, *, cpu_seconds: int) -> Running:
        """Try one mutant. The result is the name of the test that catches it; empty if none does."""

        def task() -> str:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
            try:
                put_in_force(mutant, self._package)
            except Exception:
                return LOADS_NOT
            return self._run()

        return fork(task)

    def _run(self) -> str:
        own = self._temporary / str(os.getpid())
        own.mkdir()
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(own)
        for item, following in zip(self._items, [*self._items[1:], None], strict=True):
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failed:
                break
        return self._failed


class _Loop:
    """A plugin that has `work` done in place of running the tests that were collected."""

    def __init__(self, package: str, work: Callable[[Bench], None]) -> None:
        self._package = package
        self._work = work

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        with TemporaryDirectory() as temporary:
            self._work(Bench(session, self._package, Path(temporary)))
        return True


def with_collected(tests: Sequence[str], package: str, work: Callable[[Bench], None]) -> None:
    """Collect the tests of a package, and do `work` with them."""
    # What fails is not looked at any closer: hypothesis need not make it small.
    phases = [phase for phase in hypothesis.Phase if phase not in (hypothesis.Phase.shrink, hypothesis.Phase.explain)]
    hypothesis.settings.register_profile(
        "mutants", derandomize=True, deadline=None, phases=phases, max_examples=EXAMPLES_MAX
    )
    options = ["-qq", "-s", "--assert=plain", "-p", "no:cacheprovider", "-o", "timeout=0"]
    pytest.main([*options, "--hypothesis-profile=mutants", *tests], plugins=[_Loop(package, work)])


def put_in_force(mutant: Mutant, package: str) -> None:
    """Have the functions that the mutant is about do what it says, for whoever imported them."""
    stem = Path(mutant.file).stem
    live = sys.modules[package if stem == "__init__" else f"{package}.{stem}"]
    path = mutant.place.split(" ")[1:]
    if not path:
        _put_value_in_force(mutant, live)
        return
    changed = types.ModuleType(live.__name__)
    exec(compile(mutant.source, mutant.file, "exec", dont_inherit=True), changed.__dict__)
    names = path[0].split(".")
    pairs = list(zip(_functions(live, names), _functions(changed, names), strict=True))
    if all(_looks_alike(function, new) for function, new in pairs):
        raise LookupError(f"{mutant.file}:{mutant.line}: what a class is made of is not changed in place")
    for function, new in pairs:
        function.__code__ = new.__code__
        function.__defaults__, function.__kwdefaults__ = new.__defaults__, new.__kwdefaults__


def _looks_alike(function: types.FunctionType, new: types.FunctionType) -> bool:
    """Whether the change is elsewhere: in a declared field, say, whose codec was compiled when it was loaded."""
    return (
        function.__code__ == new.__code__
        and repr(function.__defaults__) == repr(new.__defaults__)
        and repr(function.__kwdefaults__) == repr(new.__kwdefaults__)
    )


def _functions(module: types.ModuleType, names: Sequence[str]) -> Iterator[types.FunctionType]:
    """The outermost function of that name; of a class, whose fields have defaults, those that make its instances."""
    found: Any = module
    for name in names:
        found = vars(found)[name]
        found = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
        if isinstance(found, types.FunctionType):
            yield found
            return
    for name in ("__init__", "__new__"):
        if isinstance(vars(found).get(name), types.FunctionType):
            yield vars(found)[name]


def _put_value_in_force(mutant: Mutant, live: types.ModuleType) -> None:
    """What a module holds, a table for one, is changed in place: others have imported it."""
    for statement in ast.parse(mutant.source).body:
        if statement.lineno <= mutant.line <= (statement.end_lineno or statement.lineno):
            names = dict(vars(live))
            exec(compile(ast.Module([statement], []), mutant.file, "exec", dont_inherit=True), names)
            for name, value in names.items():
                if isinstance(value, dict) and value is not vars(live).get(name):
                    vars(live)[name].clear()
                    vars(live)[name].update(value)
                    return
    raise LookupError(f"{mutant.file}:{mutant.line}: only tables are changed in place")


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
