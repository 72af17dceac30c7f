"""Operators of users, rights, quotas, delegation tokens and settings, and readers who ask any broker about them.

Operators and readers share what they have seen (KIP-1243): who made or removed something at one broker is served
accordingly by every other, at once, also by one whose decision about a user or a right goes by it. An onlooker shares
nothing, and goes forward only.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from itertools import count

from tidelog.base.errors import Code, SaslAuthenticationError, TidelogError
from tidelog.base.ids import BrokerId
from tidelog.client.cluster import World
from tidelog.client.consistency import ConsistencyContextStore
from tidelog.sim.checkers.registers import BegunRegisterRead, Registers, Sight
from tidelog.sim.runs.client_tasks import ClientTasks
from tidelog.sim.runs.cluster_recorder import ClusterRecorder
from tidelog.sim.runs.security_plan import OPERATOR, READER, USERS, SecurityPlan
from tidelog.sim.runs.security_probes import PROBES, may_do
from tidelog.sim.runs.security_reads import (
    KINDS,
    READS_OF_CONTROLLERS,
    RULE,
    TOKEN,
    TOPIC,
    USER,
    SecurityRegister,
    Sights,
    codes_of,
    gated_reads,
)
from tidelog.sim.runs.security_writes import name_of, next_value, password, resource_type_of, write_request
from tidelog.sim.runs.user_connections import Answered, Peer, UserConnections, token_password
from tidelog.sim.world.rng import SeededRng
from tidelog.wire.messages.api_38_create_delegation_token import CreateDelegationTokenRequest
from tidelog.wire.messages.api_40_expire_delegation_token import ExpireDelegationTokenRequest

CONTEXT, ONLOOKER = "the operator", "an onlooker"
LOOKS = 2
"""After each change, at any broker each."""
LOOKS_MAX = 20
"""At a time: a broker that is cut off answers none of them for long."""
LIVE_MAX = 3
"""Of a kind and an operator, at a time."""
KEPT_SHARE = 0.3
"""Of what was removed, to be made again by the same name."""
MORE_SHARE = 0.4
"""How often one more of a kind is made, while there is room, and none that is there is changed."""
CONTROLLER_SHARE = 0.3
"""Of requests that controllers serve as well."""
NOT_OF_CONTROLLERS = (CreateDelegationTokenRequest, ExpireDelegationTokenRequest)
"""Changes that take somebody who is known."""
FINAL_SECONDS_MAX = 5.0
"""In which each broker answers once all is healed and settled."""


class SecurityClient:
    """One who asks: with connections of its own, in a context that it may share.

    Args:
        context: of the registers.
        connections: its own.

    Attributes:
        live: what is there by its doing: nobody else changes that.
    """

    def __init__(self, context: str, connections: UserConnections, rng: SeededRng) -> None:
        self.context = context
        self.connections = connections
        self.rng = rng
        self.live: dict[str, list[SecurityRegister]] = defaultdict(list)

    def forget(self, register: SecurityRegister) -> None:
        """Leave a register alone from now on."""
        if register in self.live[register.kind]:
            self.live[register.kind].remove(register)


class SecurityWorkload:
    """See the module.

    Args:
        peers: the brokers, at the listeners that ask who somebody is; and the controllers.
        world: of the clients.
        plan: how much of what.
        replication_factor: of topics that are made.
        rng: for what is done next.
        recorder: is told what does not hold.
    """

    def __init__(
        self,
        peers: Sequence[Peer],
        world: World,
        plan: SecurityPlan,
        *,
        replication_factor: int,
        rng: SeededRng,
        recorder: ClusterRecorder,
    ) -> None:
        self.registers = Registers()
        self._brokers = [peer for peer in peers if not peer.is_controller]
        self._controllers = [peer for peer in peers if peer.is_controller]
        self._plan = plan
        self._replication_factor = replication_factor
        self._recorder = recorder
        self._clients = ClientTasks(recorder)
        self._names: dict[str, list[str]] = defaultdict(list)
        self._is_stopping = asyncio.Event()
        self._numbers = count(1)
        self._kinds = [kind for kind in (*KINDS, RULE, RULE) if kind != RULE or plan.has_authorizer]
        shared = ConsistencyContextStore()

        def client(context: str, store: ConsistencyContextStore, name: str) -> SecurityClient:
            return SecurityClient(context, UserConnections(world, store), rng.stream(name))

        self._operators = [client(CONTEXT, shared, f"operator {number}") for number in range(plan.operators)]
        self._readers = [client(CONTEXT, shared, f"reader {number}") for number in range(plan.readers)]
        self._readers.append(client(ONLOOKER, ConsistencyContextStore(), "onlooker"))
        self._tasks: list[asyncio.Task[None]] = []
        self._looks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin, and go on until `finish`."""
        operating = [self._clients.begin(self._operate(one)) for one in self._operators]
        self._tasks = [*operating, *(self._clients.begin(self._read(one)) for one in self._readers)]

    async def finish(self) -> None:
        """Change no more; return when all that was begun has its answer."""
        self._is_stopping.set()
        await asyncio.gather(*self._tasks)
        await asyncio.gather(*self._looks)

    def waits_for(self) -> str | None:
        """What `finish` waits for, to be read by people."""
        left = sum(not task.done() for task in self._tasks) + len(self._looks)
        return f"{left} who administer users and rights" if left else None

    async def look_everywhere(self) -> None:
        """All is healed: every broker answers all that can be asked, as it is, on a connection of now."""
        client = self._operators[0]
        client.connections.close()
        names = gated_reads(self._names)
        for broker in self._brokers:
            for name in names:
                try:
                    async with asyncio.timeout(FINAL_SECONDS_MAX):
                        is_answered = await self._ask(client, broker, name)
                except TimeoutError:
                    is_answered = False
                what = f"all is healed, and {broker} does not answer {name}"
                self._recorder.expect(is_answered, "Progress", what)
            for kind in (RULE, USER, TOKEN):
                for register in (register for operator in self._operators for register in operator.live[kind]):
                    await self._try(client, broker, register)
        for each in (*self._operators, *self._readers):
            each.connections.close()

    # Writing.

    async def _operate(self, client: SecurityClient) -> None:
        while not self._is_stopping.is_set():
            await asyncio.sleep(client.rng.random() * 2 * self._plan.interval_ms / 1000)
            kind = self._kinds[client.rng.randrange(0, len(self._kinds))]
            register = await (self._change_token(client) if kind == TOKEN else self._change(client, kind))
            for _ in range(LOOKS):
                if register is not None and len(self._looks) < LOOKS_MAX:
                    look = self._clients.begin(self._look_at(client, register))
                    self._looks.add(look)
                    look.add_done_callback(self._looks.discard)

    async def _change(self, client: SecurityClient, kind: str) -> SecurityRegister:
        """Returns what may be another one now."""
        register = self._chosen(client, kind) or SecurityRegister(kind, name_of(kind, next(self._numbers)))
        before = self.registers.values(register)[-1]
        value = next_value(register, before, next(self._numbers), client.rng)
        if register.name not in self._names[kind]:
            self._names[kind].append(register.name)
        if kind == TOPIC:
            self._recorder.may_be_deleted.add(register.name)
        request = write_request(register, before, value, self._replication_factor)
        begun = self.registers.begin_write(register, value)
        answered = await self._ask_for(client, request)
        if answered is None:
            client.forget(register)  # it may be done later
            return register
        self.registers.on_written(CONTEXT, begun)
        self._recorder.facts[f"{kind} written"] += 1
        if value is None and client.rng.random() >= KEPT_SHARE:
            client.forget(register)
        elif register not in client.live[kind]:
            client.live[kind].append(register)
        return register

    def _chosen(self, client: SecurityClient, kind: str) -> SecurityRegister | None:
        """One that is there; None to make one more."""
        rng, live = client.rng, client.live[kind]
        if not live or (len(live) < LIVE_MAX and rng.random() < MORE_SHARE):
            return None
        return live[rng.randrange(0, len(live))]

    async def _change_token(self, client: SecurityClient) -> SecurityRegister | None:
        """A token has its name from the controller: of one whose making had no answer nobody knows anything."""
        register = self._chosen(client, TOKEN)
        if register is None:
            answered = await self._ask_for(client, CreateDelegationTokenRequest())
            if answered is None:
                return None
            made, hmac = answered.response, bytes(answered.response.hmac)
            register = SecurityRegister(TOKEN, made.token_id)
            self._names[TOKEN].append(register.name)
            client.live[TOKEN].append(register)
            self.registers.on_written(CONTEXT, self.registers.begin_write(register, hmac))
        else:
            (hmac,) = (value for value in self.registers.values(register) if isinstance(value, bytes))
            client.forget(register)
            begun = self.registers.begin_write(register, None)
            request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1)
            if await self._ask_for(client, request) is not None:
                self.registers.on_written(CONTEXT, begun)
        self._recorder.facts[f"{TOKEN} written"] += 1
        return register

    async def _ask_for(self, client: SecurityClient, request: object) -> Answered | None:
        """The answer of any broker to a change; None unless it says that it is done."""
        try:
            peer = self._any(client)
            if client.rng.random() < CONTROLLER_SHARE and not isinstance(request, NOT_OF_CONTROLLERS):
                peer = self._controllers[client.rng.randrange(0, len(self._controllers))]
            answered = await client.connections.ask(peer, OPERATOR, request)
        except TidelogError:
            return None
        return None if codes_of(answered.response) else answered

    # Reading.

    def _any(self, client: SecurityClient) -> Peer:
        return self._brokers[client.rng.randrange(0, len(self._brokers))]

    def _any_that_serves(self, client: SecurityClient, name: str) -> Peer:
        """Controllers serve some of the reads as well (KIP-919)."""
        if name not in READS_OF_CONTROLLERS or client.rng.random() >= CONTROLLER_SHARE:
            return self._any(client)
        return self._controllers[client.rng.randrange(0, len(self._controllers))]

    async def _read(self, client: SecurityClient) -> None:
        while not self._is_stopping.is_set():
            await asyncio.sleep(client.rng.random() * self._plan.interval_ms / 1000)
            made = [kind for kind in self._kinds if self._names[kind]]
            if client.rng.random() < 0.5 and made:
                kind = made[client.rng.randrange(0, len(made))]
                names = self._names[kind]
                await self._look_at(client, SecurityRegister(kind, names[client.rng.randrange(0, len(names))]))
            else:
                names = list(gated_reads(self._names))
                name = names[client.rng.randrange(0, len(names))]
                await self._ask(client, self._any_that_serves(client, name), name)

    async def _look_at(self, client: SecurityClient, register: SecurityRegister) -> None:
        """By one of the reads that show it, or by what depends on it."""
        names = [name for name, read in gated_reads(self._names).items() if register.kind in read.kinds]
        if register.kind in (RULE, USER, TOKEN) and client.rng.random() < 0.6:
            await self._try(client, self._any(client), register)
        else:
            name = names[client.rng.randrange(0, len(names))]
            await self._ask(client, self._any_that_serves(client, name), name)

    async def _ask(self, client: SecurityClient, peer: Peer, name: str) -> bool:
        """One of the reads, at one broker. Returns whether it was answered, and not refused."""
        read = gated_reads(self._names)[name]
        begun = self.registers.begin_read(client.context)
        try:
            answered = await client.connections.ask(peer, OPERATOR, read.request)
        except TidelogError:
            return False
        codes = set(codes_of(answered.response)) - {Code.UNKNOWN_TOPIC_OR_PARTITION, Code.LEADER_NOT_AVAILABLE}
        if codes:
            self._recorder.facts[f"{name} refused"] += 1
            return False
        self._recorder.facts[f"{name} answered"] += 1
        self._recorder.facts["read of a controller"] += peer.is_controller
        self._note(begun, read.sights(answered.response), answered)
        if name == "DescribeCluster":
            self._check_brokers(answered)
        return True

    async def _try(self, client: SecurityClient, peer: Peer, register: SecurityRegister) -> None:
        """Do what the register allows, or forbids."""
        if register.kind == RULE:
            await self._probe(client, peer, register)
        else:
            await self._log_in(client, peer, register)

    async def _probe(self, client: SecurityClient, peer: Peer, register: SecurityRegister) -> None:
        probes = PROBES[resource_type_of(register.name)]
        probe = probes[client.rng.randrange(0, len(probes))]
        begun = self.registers.begin_read(client.context)
        request, version = probe(register.name)
        try:
            answered = await client.connections.ask(peer, READER, request, version)
        except TidelogError:
            return
        may = may_do(codes_of(answered.response))
        if may is None:
            return
        self._recorder.facts["right used" if may else "right denied"] += 1
        told = f"by {peer} that {READER} {'may' if may else 'may not'} ({type(request).__name__})"
        sight = Sight(told, _allows if may else _forbids, is_grant=may)
        self._note(begun, {register: sight}, answered)

    async def _log_in(self, client: SecurityClient, peer: Peer, register: SecurityRegister) -> None:
        """By a password that it has, or had."""
        values = [value for value in self.registers.values(register) if value is not None]
        value = values[client.rng.randrange(max(len(values) - 2, 0), len(values))]
        begun = self.registers.begin_read(client.context)
        secret = token_password(value) if isinstance(value, bytes) else password(register.name, value)
        try:
            await client.connections.log_in(peer, register.name, secret, by_token=register.kind == TOKEN)
        except SaslAuthenticationError:
            self._recorder.facts["login refused"] += 1
            sight = Sight(f"by {peer} that {value!r} is wrong", lambda other: other != value)
        except TidelogError:
            return
        else:
            self._recorder.facts["login"] += 1
            sight = Sight(f"by {peer} that {value!r} lets in", lambda other: other == value, is_grant=True)
        self._note(begun, {register: sight})

    def _note(self, begun: BegunRegisterRead, sights: Sights, answered: Answered | None = None) -> None:
        token = None if answered is None else answered.token
        self._recorder.note(Registers.names, self.registers.on_answered(begun, sights, token))

    def _check_brokers(self, answered: Answered) -> None:
        """What there is beside registers: the brokers of the metadata that the answer says it is of."""
        if answered.token is None or answered.token >= self._recorder.metadata.end_offset:
            return
        image = self._recorder.metadata.image_at(answered.token)
        there = {one.broker_id for one in image.brokers.values() if not one.is_fenced and one.endpoint(USERS)}
        told = {BrokerId(one.broker_id) for one in answered.response.brokers}
        what = f"of offset {answered.token} the brokers {sorted(told)} were described, where there are {sorted(there)}"
        self._recorder.expect(told == there, Registers.never_goes_back, what)


def _allows(value: object) -> bool:
    return value == ("allow",)


def _forbids(value: object) -> bool:
    return value != ("allow",)
