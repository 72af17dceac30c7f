"""A network in memory: every stream has its delays, drawn from the seed, and faults come between machines.

A stream keeps its order, and loses nothing while it lasts, as TCP promises; what two streams carry is not ordered.
What is lost is lost by a reset, or because somebody gave up.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass
from random import Random
from typing import Any

from tidelog.base.certificates import Certificates
from tidelog.base.errors import ConfigError, NetworkError
from tidelog.base.ports import Admit, Link, Receiver, SecuredNetwork
from tidelog.io.network import Stream
from tidelog.sim.runs.trace import Trace
from tidelog.sim.world.loop import SimulatedLoop
from tidelog.sim.world.transport import SimulatedTransport

FIRST_FREE_PORT = 49_152
PORT_END = 65_536
FIRST_DESCRIPTOR = 10
RESEND_SECONDS_MIN, RESEND_SECONDS_MAX = 0.2, 3.2
"""TCP sends a segment that was lost again after the first, and waits twice as long each time, up to the second."""
LATE_SECONDS_MAX = 2.0
"""So late what one end left behind when it was reset reaches the other."""
KNOCKS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds between attempts to reach somebody who does not answer at all."""


@dataclass(slots=True)
class NetworkFaults:
    """How bad the network is. May change at any time.

    Attributes:
        delay_ms_min: what the fastest piece takes.
        delay_ms_max: what the slowest usual piece takes.
        straggle_rate: how many pieces take ten times as long as that, in [0, 1].
        cut_rate: how many pieces arrive in two parts, in [0, 1].
        loss_rate: how many pieces are lost and sent again, in [0, 1); what follows them on their stream waits for them,
            other streams of the same machines do not.
        reset_rate: how many writes end their stream instead, in [0, 1].
        half_reset_rate: how many writes end their stream for the writer alone, in [0, 1]: the other end gets what was
            written, but late, perhaps after the same request on another stream.
        end_ms_max: so long after a process was killed the last of its streams ends: systems end one after the other,
            and may do something else in between.
    """

    delay_ms_min: float = 0.05
    delay_ms_max: float = 1.0
    straggle_rate: float = 0.01
    cut_rate: float = 0.05
    loss_rate: float = 0.0
    reset_rate: float = 0.0
    half_reset_rate: float = 0.0
    end_ms_max: float = 0.0


class SimulatedNetwork:
    """All machines, and what lies between them.

    Args:
        loop: whose time it takes.
        random: for delays and faults.
        trace: told of every byte.

    Attributes:
        faults: how bad it is.
        far_ms: by machine, what a piece from or to it takes at most beside that.
        held: streams on which something waits for a way to be free again, by age.
        injected: how often something went wrong that was drawn, by kind.
    """

    def __init__(self, loop: SimulatedLoop, random: Random, trace: Trace) -> None:
        self.loop = loop
        self.faults = NetworkFaults()
        self.far_ms: dict[str, float] = {}
        self.held: dict[SimulatedTransport, None] = {}
        self.injected: Counter[str] = Counter()
        self._random = random
        self._trace = trace
        self._machines: dict[str, MachineNetwork] = {}
        self._blocked: set[tuple[str, str]] = set()
        self._refused: set[str] = set()

    def machine(self, name: str) -> MachineNetwork:
        """The network as a machine of this name sees it; made when first asked for."""
        if name not in self._machines:
            self._machines[name] = MachineNetwork(self, name, f"10.0.0.{len(self._machines) + 1}")
        return self._machines[name]

    def find(self, host: str) -> MachineNetwork | None:
        """By its name or its address."""
        found = self._machines.get(host)
        return found or next((each for each in self._machines.values() if each.ip == host), None)

    # Faults.

    def block(self, source: str, target: str) -> None:
        """Let nothing through from one machine to another; the other way is as it was."""
        self._blocked.add((source, target))

    def partition(self, one: str, other: str) -> None:
        """Let nothing through, either way."""
        self.block(one, other)
        self.block(other, one)

    def unblock(self, source: str, target: str) -> None:
        """Let through again from one machine to another. What was held arrives, unless somebody gave up meanwhile."""
        self._blocked.discard((source, target))
        for transport in [each for each in self.held if each.leads(source, target)]:
            del self.held[transport]
            transport.go_on()

    def heal(self) -> None:
        """Let everything through again. What was held arrives, unless somebody gave up meanwhile."""
        self._blocked.clear()
        self._refused.clear()
        held, self.held = self.held, {}
        for transport in held:
            transport.go_on()

    def refuse(self, name: str) -> None:
        """Have something in between reset the connections of a machine, and refuse those to it in its name."""
        self._refused.add(name)
        self._machines[name].reset()

    def admit(self, name: str) -> None:
        """Let through again who connects to a machine."""
        self._refused.discard(name)

    def is_refused(self, source: str, target: str) -> bool:
        """Whether something in between refuses connections from one machine to another."""
        return source != target and target in self._refused

    def passes(self, source: str, target: str) -> bool:
        """Whether something sent now from one machine to another would arrive."""
        return (source, target) not in self._blocked and self.is_up(target)

    def is_up(self, name: str) -> bool:
        """Whether a machine has power."""
        return self._machines[name].is_up

    def draws_reset(self) -> bool:
        """Whether the next write ends its stream."""
        rate = self.faults.reset_rate
        if not rate or self._random.random() >= rate:
            return False
        self.injected["network reset"] += 1
        return True

    def draws_half_reset(self) -> bool:
        """Whether the next write ends its stream for the writer alone."""
        rate = self.faults.half_reset_rate
        if not rate or self._random.random() >= rate:
            return False
        self.injected["network half reset"] += 1
        return True

    def late_seconds(self) -> float:
        """How late that reaches the other end."""
        return LATE_SECONDS_MAX * self._random.random()

    def end_seconds(self) -> float:
        """How long after its process the next stream ends."""
        end_ms_max = self.faults.end_ms_max
        return end_ms_max * self._random.random() / 1000 if end_ms_max else 0.0

    def resend_seconds(self) -> float:
        """How long the next piece is lost and sent again, before it takes its usual time."""
        rate = self.faults.loss_rate
        if not rate:
            return 0.0
        waited, wait = 0.0, RESEND_SECONDS_MIN
        while wait <= RESEND_SECONDS_MAX and self._random.random() < rate:
            self.injected["network loss"] += 1
            waited, wait = waited + wait, 2 * wait
        return waited

    def draws_half(self) -> bool:
        """One way or the other."""
        return self._random.random() < 0.5

    def delay_seconds(self) -> float:
        """What the next piece takes."""
        faults, draw = self.faults, self._random.random
        delay_ms = faults.delay_ms_min + draw() * (faults.delay_ms_max - faults.delay_ms_min)
        if faults.straggle_rate and draw() < faults.straggle_rate:
            self.injected["network straggle"] += 1
            delay_ms *= 10
        return delay_ms / 1000

    def far_seconds(self, source: str, target: str) -> float:
        """What the next piece takes beside that, from one machine to another; 0 if neither is far away."""
        if not self.far_ms:
            return 0.0
        far_ms = max(self.far_ms.get(source, 0.0), self.far_ms.get(target, 0.0))
        return far_ms * (0.5 + 0.5 * self._random.random()) / 1000 if far_ms else 0.0

    def cut(self, size: int) -> int:
        """How much of a piece arrives at once: all, or less."""
        if size > 1 and self._random.random() < self.faults.cut_rate:
            self.injected["network cut"] += 1
            return self._random.randrange(1, size)
        return size

    # What streams tell.

    @property
    def now(self) -> float:
        """The loop's time."""
        return self.loop.time()

    def tell(self, event: str, data: bytes) -> None:
        """Bytes leave, or reached their reader."""
        self._trace.add(self.loop.now_us, event, data)

    def on_lost(self, transport: SimulatedTransport) -> None:
        """A stream is at its end, on one side."""
        self.held.pop(transport, None)
        self._machines[transport.machine].on_lost(transport)

    def later(self, context: Context, step: Callable[..., object], *arguments: Any) -> None:
        """Do a step of somebody else, once word of it is there."""
        self.loop.call_later(self.delay_seconds(), step, *arguments, context=context)


class MachineNetwork:
    """The `Network` of one machine.

    Attributes:
        is_up: whether the machine has power.
        files_max: how many files and connections a process of it may have open; None for any number.
    """

    def __init__(self, network: SimulatedNetwork, name: str, ip: str) -> None:
        self.name = name
        self.ip = ip
        self.is_up = True
        self.files_max: int | None = None
        self._network = network
        self._listening: dict[int, SimulatedListening] = {}
        self._open: dict[SimulatedTransport, None] = {}
        self._next_port = FIRST_FREE_PORT

    # The port.

    async def connect(self, host: str, port: int, receiver: Receiver) -> Link:
        """Open a stream, from this machine.

        Raises:
            NetworkError: names the address and the reason.
        """
        network = self._network
        target = network.find(host)
        if target is None:
            raise NetworkError(f"cannot connect to {host}:{port}: the name cannot be resolved")
        for wait_seconds in (*KNOCKS, None):
            await asyncio.sleep(network.delay_seconds())
            can_talk = network.passes(self.name, target.name) and network.passes(target.name, self.name)
            listening = None if network.is_refused(self.name, target.name) else target.listening_on(port)
            if can_talk and listening is None:
                await asyncio.sleep(network.delay_seconds())
                raise NetworkError(f"cannot connect to {host}:{port}: connection refused; is a broker listening there?")
            if can_talk and listening is not None and not listening.is_full:
                return await self._open_stream(listening, (target.ip, port), receiver)
            if wait_seconds is not None:
                await asyncio.sleep(wait_seconds)
        raise NetworkError(f"cannot connect to {host}:{port}: Connection timed out")

    def over_tls(self, certificates: Certificates, *, listens: bool) -> SecuredNetwork:
        """Raises ConfigError: always."""
        raise ConfigError("no TLS is simulated: what it carries is the same")

    async def refuses(self, host: str, port: int) -> bool:
        """Whether that machine says that nobody listens there."""
        network = self._network
        target = network.find(host)
        if target is None:
            return False
        await asyncio.sleep(network.delay_seconds())
        if not network.passes(self.name, target.name) or not network.passes(target.name, self.name):
            await asyncio.sleep(sum(KNOCKS))
            return False
        refuses = network.is_refused(self.name, target.name) or target.listening_on(port) is None
        await asyncio.sleep(network.delay_seconds())
        return refuses

    async def _open_stream(self, listening: SimulatedListening, there: tuple[str, int], receiver: Receiver) -> Link:
        network = self._network
        here = (self.ip, self.take_port())
        stream = Stream(receiver, network.loop)
        ours = SimulatedTransport(network, self.name, here, there)
        self._open[ours] = None
        listening.on_connecting(ours, there, here)
        await asyncio.sleep(network.delay_seconds())
        if ours.is_closing() or ours.peer is None:
            raise NetworkError(f"cannot connect to {there[0]}:{there[1]}: it hung up at once")
        ours.open(ours.peer, stream)
        return stream

    def listen(
        self, host: str | None, port: int, *, backlog: int, admit: Admit, on_trouble: Callable[[OSError], None]
    ) -> SimulatedListening:
        """Take a port of this machine, whatever the host. Raises `NetworkError`: the reason, without the address."""
        if host is not None and self._network.find(host) is not self:
            raise NetworkError("this machine has no such address")
        if port in self._listening:
            raise NetworkError("Address already in use")
        taken = port or self.take_port()
        listening = SimulatedListening(self._network, self, taken, backlog, admit)
        self._listening[taken] = listening
        return listening

    def open_files(self) -> int:
        """Connections, and as many files as the simulation pretends."""
        return FIRST_DESCRIPTOR + len(self._open)

    def file_limit(self) -> int | None:
        """`files_max`."""
        return self.files_max

    # What happens to the machine.

    def listening_on(self, port: int) -> SimulatedListening | None:
        """Who accepts there now."""
        listening = self._listening.get(port)
        return listening if listening is not None and listening.is_started else None

    def reset(self) -> None:
        """End every stream on both sides; the processes stay."""
        for transport in list(self._open):
            transport.reset()

    def hang_up(self, *, is_silent: bool) -> None:
        """The process is gone: so are its connections and its ports.

        Args:
            is_silent: because the machine is: its peers are not told.
        """
        for transport in list(self._open):
            transport.die(is_silent=is_silent)
        self._open.clear()
        self._listening.clear()

    def take_port(self) -> int:
        """One that nobody else has."""
        port = self._next_port
        self._next_port = port + 1 if port + 1 < PORT_END else FIRST_FREE_PORT
        return port

    def on_opened(self, transport: SimulatedTransport) -> None:
        """A stream of this machine begins."""
        self._open[transport] = None

    def on_lost(self, transport: SimulatedTransport) -> None:
        """A stream of this machine is at its end."""
        self._open.pop(transport, None)

    def on_closed(self, listening: SimulatedListening) -> None:
        """Nobody listens there any more."""
        if self._listening.get(listening.port) is listening:
            del self._listening[listening.port]


class SimulatedListening:
    """A port of a machine that somebody listens on. Its steps are those of the process that took it."""

    def __init__(
        self, network: SimulatedNetwork, machine: MachineNetwork, port: int, backlog: int, admit: Admit
    ) -> None:
        self.port = port
        self.is_started = False
        self._network = network
        self._machine = machine
        self._backlog = backlog
        self._admit = admit
        self._context = copy_context()
        self._is_paused = False
        self._queue: deque[SimulatedTransport] = deque()

    @property
    def is_full(self) -> bool:
        """Whether nobody else can even wait."""
        return len(self._queue) >= self._backlog

    def start(self) -> None:
        """Accept from now on."""
        self.is_started = True

    def pause(self) -> None:
        """Leave whoever connects in the queue."""
        self._is_paused = True

    def resume(self) -> None:
        """Accept again, those in the queue first."""
        if self._is_paused:
            self._is_paused = False
            self._network.loop.call_soon(self._accept_all, context=self._context)

    def close(self) -> None:
        """Free the port. Who is in the queue is hung up on."""
        self.is_started = False
        self._machine.on_closed(self)
        for theirs in self._queue:
            theirs.reset()
        self._queue.clear()

    def on_connecting(self, theirs: SimulatedTransport, here: tuple[str, int], there: tuple[str, int]) -> None:
        """Somebody is at the door: join the two ends, and look who it is in a step of this process."""
        ours = self._context.run(SimulatedTransport, self._network, self._machine.name, here, there)
        ours.peer, theirs.peer = theirs, ours
        self._machine.on_opened(ours)
        self._queue.append(ours)
        self._network.loop.call_soon(self._accept_all, context=self._context)

    def _accept_all(self) -> None:
        while self._queue and not self._is_paused and self.is_started:
            ours = self._queue.popleft()
            if ours.is_closing() or ours.peer is None:
                continue
            protocol = self._admit(str(ours.get_extra_info("peername")[0]), self._machine.open_files())
            if protocol is None:
                ours.abort()
            else:
                ours.open(ours.peer, protocol)
