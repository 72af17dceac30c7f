"""The story of a whole cluster and its clients: once all is healed every partition is led, every replica in sync and
equal to its leader, every broker knows the same metadata, and clients come to their end.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tidelog.base.ids import BrokerId, ClusterId, uuid_text
from tidelog.client.cluster import World
from tidelog.client.factory import AsyncFactory
from tidelog.net.address import Address
from tidelog.sim.checkers.copies import CopyTransaction
from tidelog.sim.faults.cluster_fault_injector import CLIENT, ClusterFaultInjector
from tidelog.sim.faults.cluster_faults import CLUSTER_FAULTS
from tidelog.sim.faults.faults import Fault
from tidelog.sim.faults.late_stops import LateStops
from tidelog.sim.node import CONTROLLER_PORT, INTERNAL_PORT, SimulatedNode
from tidelog.sim.runs.cluster_operator import ClusterOperator
from tidelog.sim.runs.cluster_plan import ClusterPlan, machine_of
from tidelog.sim.runs.cluster_recorder import ClusterRecorder
from tidelog.sim.runs.group_recorder import GroupRecorder
from tidelog.sim.runs.group_workload import GroupWorkload
from tidelog.sim.runs.security_plan import USERS_PORT
from tidelog.sim.runs.security_workload import SecurityWorkload
from tidelog.sim.runs.share_recorder import ShareRecorder
from tidelog.sim.runs.share_workload import SHARE_GROUP, ShareWorkload
from tidelog.sim.runs.story import Story
from tidelog.sim.runs.transaction_plan import LATEST, TRANSACTION_STATE
from tidelog.sim.runs.transaction_recorder import TransactionRecorder
from tidelog.sim.runs.transactional_workload import TransactionalWorkload
from tidelog.sim.runs.user_connections import Peer
from tidelog.sim.runs.workload import Workload
from tidelog.sim.supervised_node import SupervisedNode
from tidelog.sim.world.rng import SeededRng
from tidelog.sim.world.world import SimulatedWorld

START_SECONDS_MAX = 30.0
HEALED_SECONDS_MAX = 240.0
"""Of virtual time, in which everything must come to its end once nothing is in the way any more."""
LEADERLESS_SECONDS_MAX = 3.0
"""So long an operator who may elect anybody waits for a leader."""
TOLD_SECONDS_MAX = 60.0
"""In which replicas that are in sync have told what they lost."""
POLL_SECONDS = 0.1


def make_nodes(
    world: SimulatedWorld, plan: ClusterPlan, properties: Mapping[str, str] | None = None
) -> dict[BrokerId, SimulatedNode]:
    """The nodes of one cluster, each on a machine of its own, none of them started.

    Args:
        properties: of every node, beside those of the plan.
    """
    cluster_id = ClusterId(uuid_text(world.rng.stream("cluster").uuid()))
    return {
        node_id: SimulatedNode(
            world.machine(machine_of(node_id)),
            plan.properties(node_id) | dict(properties or {}),
            node_id=node_id,
            cluster_id=cluster_id,
        )
        for node_id in plan.node_ids
    }


class ClusterStory(Story):
    """Production nodes and their clients.

    Args:
        world: for nothing else.
        plan: how large, how patient, what clients do.
    """

    def __init__(self, world: SimulatedWorld, plan: ClusterPlan) -> None:
        nodes = make_nodes(world, plan)
        self.plan = plan
        self.recorder = recorder = ClusterRecorder(plan, nodes, lambda: world.loop.stepped)
        bootstrap = [nodes[node_id].bootstrap for node_id in plan.broker_ids]
        self.factory = AsyncFactory(bootstrap, world=world.client_world(CLIENT))
        factor = plan.clients.replication_factor
        self.operator = ClusterOperator(self.factory, recorder, plan.broker_ids, factor)
        self.nodes_by_id = {
            node_id: SupervisedNode(
                node, recorder.of(node_id), plan.clients.topic_partitions, partial(recorder.may_lose_power, node_id)
            )
            for node_id, node in nodes.items()
        }
        self._injector = ClusterFaultInjector(world, plan, self.nodes_by_id, recorder, self.operator)
        client_world = world.client_world(CLIENT)
        self._late_stops = LateStops(
            client_world.network,
            {node_id: Address(machine_of(node_id), INTERNAL_PORT) for node_id in plan.broker_ids},
            world.rng.stream("late stops"),
            None if plan.security is None else plan.security.node_security(world.rng.stream("logins of late stops")),
        )
        for node in nodes.values():
            node.on_made = self._late_stops.listen_to
        rng = world.rng.stream("workload")
        self._workload = Workload(self.factory, bootstrap, client_world, plan.clients, rng=rng, recorder=recorder)
        self._transactions = self._transactional_workload(
            nodes, bootstrap, client_world, world.rng.stream("transactions")
        )
        self._group = self._group_workload(bootstrap, client_world, world.rng.stream("group"))
        self._share_group = self._share_workload(nodes, bootstrap, client_world, world.rng.stream("share group"))
        self._security = self._security_workload(world, world.rng.stream("security"))
        super().__init__(world, plan.nodes, CLUSTER_FAULTS, recorder)

    def _transactional_workload(
        self, nodes: Mapping[BrokerId, SimulatedNode], bootstrap: Sequence[str], client_world: World, rng: SeededRng
    ) -> TransactionalWorkload | None:
        plan = self.plan
        if plan.transactions is None:
            return None
        return TransactionalWorkload(
            self.factory,
            bootstrap,
            client_world,
            plan.transactions,
            sources=plan.clients.topic_partitions,
            replication_factor=plan.clients.replication_factor,
            rng=rng,
            recorder=TransactionRecorder(self.recorder, nodes, LATEST, TRANSACTION_STATE),
        )

    def _group_workload(self, bootstrap: Sequence[str], client_world: World, rng: SeededRng) -> GroupWorkload | None:
        plan = self.plan.group
        if plan is None:
            return None
        return GroupWorkload(
            self.factory,
            bootstrap,
            client_world,
            plan,
            partitions=self.plan.clients.topic_partitions,
            rng=rng,
            recorder=GroupRecorder(self.recorder, has_one_protocol=plan.has_one_protocol),
        )

    def _share_workload(
        self, nodes: Mapping[BrokerId, SimulatedNode], bootstrap: Sequence[str], client_world: World, rng: SeededRng
    ) -> ShareWorkload | None:
        plan = self.plan.share
        if plan is None:
            return None
        return ShareWorkload(
            self.factory,
            bootstrap,
            client_world,
            plan,
            partitions=self.plan.clients.topic_partitions,
            rng=rng,
            recorder=ShareRecorder(self.recorder, nodes, SHARE_GROUP, plan, client_world.clock.now_ms),
        )

    def _security_workload(self, world: SimulatedWorld, rng: SeededRng) -> SecurityWorkload | None:
        plan = self.plan.security
        if plan is None:
            return None
        brokers = [Peer(one, Address(machine_of(one), USERS_PORT)) for one in self.plan.broker_ids]
        controllers = [
            Peer(one, Address(machine_of(one), CONTROLLER_PORT), is_controller=True, asks_who=plan.nodes_log_in)
            for one in self.plan.voter_ids
        ]
        return SecurityWorkload(
            brokers + controllers,
            world.client_world(CLIENT),
            plan,
            replication_factor=self.plan.clients.replication_factor,
            rng=rng,
            recorder=self.recorder,
        )

    @property
    def transactions(self) -> list[CopyTransaction] | None:
        """All that were begun; None in a run without any."""
        return None if self._transactions is None else self._transactions.recorder.transactions

    async def _start(self) -> None:
        await self.start_nodes()
        await self._workload.prepare()
        if self._transactions is not None:
            await self._transactions.prepare()
            self._transactions.start()
        if self._group is not None:
            self._group.start()
        if self._share_group is not None:
            await self._share_group.prepare()
            self._share_group.start()
        if self._security is not None:
            self._security.start()
        self._workload.start()
        self._electing = asyncio.create_task(self._elect_where_nobody_leads())
        self._delivering = asyncio.create_task(self._late_stops.run())

    async def start_nodes(self) -> None:
        """Return when all serve."""
        for node in self.nodes_by_id.values():
            await node.start()
        await self._wait(self._not_serving, START_SECONDS_MAX, "the start")

    def _begin(self, rate: Fault) -> None:
        self._injector.begin(rate)

    async def _suffer(self, step: Fault) -> None:
        self._injector.suffer(step)

    def _injected(self) -> Counter[str]:
        return self._injector.injected

    async def _finish(self) -> None:
        """Nothing is in the way any more."""
        await self._injector.heal()
        try:
            async with asyncio.timeout(HEALED_SECONDS_MAX):
                await self._workload.finish()
                if self._transactions is not None:
                    await self._transactions.finish()
                if self._group is not None:
                    await self._group.finish()
                if self._share_group is not None:
                    await self._share_group.finish()
                if self._security is not None:
                    await self._security.finish()
        except TimeoutError:
            copying = None if self._transactions is None else self._transactions.waits_for()
            reading = None if self._group is None else self._group.waits_for()
            sharing = None if self._share_group is None else self._share_group.waits_for()
            securing = None if self._security is None else self._security.waits_for()
            waiting = [self._workload.waits_for(), copying, reading, sharing, securing, self._unsettled()]
            waits_for = "; ".join(filter(None, waiting))
            self.recorder.look_at_all()
            self.recorder.expect(
                False, "Progress", f"{HEALED_SECONDS_MAX:.0f} s after the healing there are {waits_for}"
            )
            return
        if await self._wait(self._unsettled, HEALED_SECONDS_MAX, "the end of all writing"):
            self.recorder.expect(True, "Progress", "")
            self.recorder.check_books()
            await self._until_nobody_is_awaited()
            self.recorder.check_account()
            if self._transactions is not None:
                self._transactions.recorder.check_books()
            if self._security is not None:
                await self._security.look_everywhere()
        self._electing.cancel()
        self._delivering.cancel()
        for node in self.nodes_by_id.values():
            await node.stop()

    async def _wait(self, waits_for: Callable[[], str | None], seconds_max: float, since: str) -> bool:
        """Returns whether it came to pass."""
        text = waits_for()
        for _ in range(round(seconds_max / POLL_SECONDS)):
            if text is None:
                return True
            await asyncio.sleep(POLL_SECONDS)
            text = waits_for()
        self.recorder.expect(text is None, "Progress", f"{seconds_max:.0f} s after {since} {text}")
        return text is None

    async def _until_nobody_is_awaited(self) -> None:
        """Whoever has something to tell of losses tells it a little later than it is in sync."""
        for _ in range(round(TOLD_SECONDS_MAX / POLL_SECONDS)):
            if self.recorder.awaited() is None:
                break
            await asyncio.sleep(POLL_SECONDS)

    def _not_serving(self) -> str | None:
        for node in self.nodes_by_id.values():
            if not node.is_serving:
                why = "" if node.trouble is None else f" (the last time because: {node.trouble})"
                return f"{node.machine.name} does not serve{why}"
        return None

    def _unsettled(self) -> str | None:
        """What is not as it has to be, if something is not."""
        found = self._not_serving()
        latest, end_offset = self.recorder.latest, self.recorder.metadata.end_offset
        for node_id, node in self.nodes_by_id.items():
            registered, process = latest.brokers.get(node_id), node.node.node
            if node_id in self.plan.broker_ids and (registered is None or not registered.is_active):
                found = found or f"broker {node_id} is not active"
            if process is None or process.broker.image.last_offset != end_offset - 1:
                found = found or f"broker {node_id} does not know the metadata of offset {end_offset - 1}"
        for name, topic in sorted(latest.topics_by_name.items()):
            for number, state in enumerate(topic.partitions):
                if state.adding_replicas or state.removing_replicas:
                    who = f"adds {state.adding_replicas} and removes {state.removing_replicas}, in sync are {state.isr}"
                    found = found or f"{name}-{number} {who}"
                if state.leader is None or set(state.isr) != set(state.replicas):
                    who = f"led by {state.leader}, in sync are {state.isr} of {state.replicas}"
                    found = found or f"{name}-{number} is {who}"
        return found or self.recorder.replicas_differ()

    async def _elect_where_nobody_leads(self) -> None:
        """What an operator does whom somebody has told that records may be lost; else nothing is."""
        while self.plan.allows_unclean:
            before = self.operator.leaderless()
            await asyncio.sleep(LEADERLESS_SECONDS_MAX)
            if set(before) & set(self.operator.leaderless()):
                await self.operator.elect_uncleanly()
