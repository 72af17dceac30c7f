"""How every run goes: things go wrong for a while and nothing may break; then all heals, and comes to its end."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence

from tidelog.base.errors import TidelogError
from tidelog.sim.checkers.findings import Findings
from tidelog.sim.faults.faults import MS_PER_MINUTE, Fault, Kinds
from tidelog.sim.faults.own_bugs import noting_own_bugs, words_of
from tidelog.sim.runs.report import Report
from tidelog.sim.world.loop import StuckError
from tidelog.sim.world.world import SimulatedWorld

LIMIT_SECONDS_BESIDE = 7_200.0
"""Of virtual time, beside that in which things go wrong: a run that takes longer is stuck."""


class Story(ABC):
    """From the first start to the last demand; to be run once.

    Args:
        world: for nothing else.
        nodes: how many there are.
        kinds: what can go wrong.
        findings: of whoever looks.
    """

    def __init__(self, world: SimulatedWorld, nodes: int, kinds: Kinds, findings: Findings) -> None:
        self.nodes = nodes
        self.kinds = kinds
        self._world = world
        self._findings = findings

    def run(self, minutes: float, faults: Sequence[Fault]) -> Report:
        """Run it to its end, or to the first thing that breaks.

        Args:
            minutes: of virtual time, in which things go wrong.
            faults: all that do; steps by time.
        """
        world, findings = self._world, self._findings
        schedule = tuple(map(self.kinds.words_of, faults))
        with noting_own_bugs() as bugs:
            world.loop.after_step = self._after_step
            try:
                world.run(self._tell(minutes, faults), limit_seconds=minutes * 60 + LIMIT_SECONDS_BESIDE)
            except _BrokenError:
                pass  # the findings say more
            except StuckError as error:
                findings.expect(False, "Progress", str(error))
            except Exception as error:  # a callback of the code under test failed
                findings.expect(False, "OwnInvariant", words_of(error))
            finally:
                world.loop.after_step = None
        findings.expect(not bugs.told, "OwnInvariant", "; ".join(bugs.told[:1]))
        return Report(
            seed=world.seed,
            nodes=self.nodes,
            minutes=minutes,
            virtual_seconds=world.elapsed_seconds,
            events=world.loop.events,
            faults=dict(sorted(self._injected().items())),
            checks=dict(sorted(findings.checks.items())),
            digest=world.trace.digest,
            broken=tuple(map(str, findings.broken)),
            schedule=schedule,
        )

    def _after_step(self) -> None:
        self._findings.after_step()
        if self._findings.broken:
            raise _BrokenError

    async def _tell(self, minutes: float, faults: Sequence[Fault]) -> None:
        await self._start()
        loop, started = self._world.loop, self._world.loop.time()
        for fault in faults:
            if fault.at_ms is None:
                self._begin(fault)
        for fault in faults:
            if fault.at_ms is not None:
                await asyncio.sleep(max(started + fault.at_ms / 1000 - loop.time(), 0.0))
                await self._suffer(fault)
        await asyncio.sleep(max(started + minutes * MS_PER_MINUTE / 1000 - loop.time(), 0.0))
        await self._finish()

    @abstractmethod
    async def _start(self) -> None:
        """All is there, and clients are at work."""

    @abstractmethod
    def _begin(self, rate: Fault) -> None:
        """What goes wrong all along."""

    @abstractmethod
    async def _suffer(self, step: Fault) -> None:
        """What goes wrong once; return when the next thing may."""

    @abstractmethod
    async def _finish(self) -> None:
        """Heal everything; what was begun comes to its end, or is told."""

    @abstractmethod
    def _injected(self) -> Counter[str]:
        """What went wrong, by kind."""


class _BrokenError(TidelogError):
    """What must hold does not: the run ends here."""
