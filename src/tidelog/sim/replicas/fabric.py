"""What lies between the processes of a run: messages are delayed, reordered, dropped, repeated, and held off by
partitions of the network, one way or both.

They are values, not bytes: what TCP and the wire do to bytes is tried where one node runs whole. Here each message goes
its own way, as if it had a connection of its own, so the order of two is nobody's promise; what the other side does
with one that comes late, or twice, is part of what is tested. The ways are those of `SimulatedNetwork`: its `block` and
`heal` count here, and so does a machine's power.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import NamedTuple

from tidelog.sim.runs.trace import Trace
from tidelog.sim.world.loop import SimulatedLoop
from tidelog.sim.world.network import SimulatedNetwork
from tidelog.sim.world.process import CURRENT, Process

KEPT_MS = 30_000
"""For so long an answer finds the one who asked, though it was given up."""


@dataclass(slots=True)
class FabricFaults:
    """How bad it is. May change at any time.

    Attributes:
        delay_ms_min: what the fastest message takes.
        delay_ms_max: what the slowest usual message takes.
        straggle_rate: how many messages take up to `straggle_ms_max`, in [0, 1].
        drop_rate: how many never arrive, in [0, 1].
        repeat_rate: how many arrive twice, in [0, 1].
    """

    delay_ms_min: float = 0.2
    delay_ms_max: float = 3.0
    straggle_rate: float = 0.0
    straggle_ms_max: float = 1_000.0
    drop_rate: float = 0.0
    repeat_rate: float = 0.0


class Letter(NamedTuple):
    """A message on its way.

    `to` names the process that an answer is for, `number` the question; a question is for whatever process runs there.
    """

    sender: str
    target: str
    sender_process: str
    to: str | None
    number: int
    body: object


Reply = Callable[[object], None]
OnAnswer = Callable[[object | None], None]
Serve = Callable[[str, object, Reply], None]


class Fabric:
    """See the module.

    Attributes:
        faults: how bad it is.
        counts: faults injected, by kind.
    """

    def __init__(self, loop: SimulatedLoop, network: SimulatedNetwork, random: Random, trace: Trace) -> None:
        self.loop = loop
        self.faults = FabricFaults()
        self.counts: Counter[str] = Counter()
        self._network = network
        self._random = random
        self._trace = trace
        self._stations: dict[str, Station] = {}
        self._root = loop.root.context.copy()

    def station(self, machine: str, serve: Serve) -> Station:
        """The place of the process that asks for it; it takes that of the one that ran on the machine before."""
        station = self._stations[machine] = Station(self, machine, serve)
        return station

    def send(self, letter: Letter) -> None:
        """Let it arrive, or not."""
        faults, random = self.faults, self._random
        self._trace.add(self.loop.now_us, f"send {letter.sender}>{letter.target} {letter.number} {letter.body!r}")
        if faults.drop_rate and random.random() < faults.drop_rate:
            self.counts["message dropped"] += 1
            return
        self._send_once(letter)
        may_repeat = getattr(letter.body, "may_repeat", True)
        if faults.repeat_rate and may_repeat and random.random() < faults.repeat_rate:
            self.counts["message repeated"] += 1
            self._send_once(letter)

    def _send_once(self, letter: Letter) -> None:
        faults, random = self.faults, self._random
        longest = faults.delay_ms_max
        if faults.straggle_rate and random.random() < faults.straggle_rate:
            self.counts["message delayed"] += 1
            longest = faults.straggle_ms_max
        delay_ms = faults.delay_ms_min + random.random() * max(0.0, longest - faults.delay_ms_min)
        self.loop.call_later(delay_ms / 1000, self._arrive, letter, context=self._root)

    def _arrive(self, letter: Letter) -> None:
        station = self._stations.get(letter.target)
        if station is None or not station.process.is_alive or letter.to not in (None, station.process.name):
            return
        if letter.sender != letter.target and not self._network.passes(letter.sender, letter.target):
            self.counts["message held off by a partition"] += 1
            return
        self._trace.add(self.loop.now_us, f"recv {letter.target} {letter.number}")
        station.context.run(station.on_letter, letter)


class Station:
    """One process's place: it asks, and it is asked."""

    def __init__(self, fabric: Fabric, machine: str, serve: Serve) -> None:
        process = CURRENT.get()
        assert process is not None
        self.machine = machine
        self.process: Process = process
        self.context: Context = copy_context()
        self._fabric = fabric
        self._serve = serve
        self._numbers = count(1)
        self._asked: dict[int, OnAnswer] = {}

    def ask(self, target: str, body: object, timeout_ms: float, on_answer: OnAnswer) -> None:
        """Ask whoever runs there.

        Args:
            on_answer: told of every answer, late and repeated ones too; None when the time is over without one.
        """
        number = next(self._numbers)
        is_answered = False

        def answered(body: object | None) -> None:
            nonlocal is_answered
            is_answered = True
            on_answer(body)

        def expire() -> None:
            if not is_answered:
                on_answer(None)
            self.later(KEPT_MS, lambda: self._asked.pop(number, None))

        self._asked[number] = answered
        self.later(timeout_ms, expire)
        self._fabric.send(Letter(self.machine, target, self.process.name, None, number, body))

    def tell(self, target: str, body: object) -> None:
        """Send what wants no answer."""
        self._fabric.send(Letter(self.machine, target, self.process.name, None, next(self._numbers), body))

    def later(self, ms: float, step: Callable[[], object]) -> None:
        """Do something of this process in so many milliseconds, if it lives."""
        self._fabric.loop.call_later(ms / 1000, step, context=self.context)

    def on_letter(self, letter: Letter) -> None:
        """A letter arrives, in a step of this process."""
        if letter.to is not None:
            asked = self._asked.get(letter.number)
            if asked is not None:
                asked(letter.body)
            return

        def reply(body: object) -> None:
            back = Letter(self.machine, letter.sender, self.process.name, letter.sender_process, letter.number, body)
            self._fabric.send(back)

        self._serve(letter.sender, letter.body, reply)
