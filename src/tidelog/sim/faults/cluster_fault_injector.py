"""What each fault does to a cluster, for as long as it lasts; and how all of it heals."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from random import Random
from typing import Any

from tidelog.base.ids import BrokerId, TopicPartition
from tidelog.log.directory import RECOVERY_POINT_FILE
from tidelog.log.files.replica_list import REPLICA_LIST_FILE
from tidelog.metadata.image import PartitionImage
from tidelog.sim.faults.faults import Fault
from tidelog.sim.faults.faulty_node import flip_bit
from tidelog.sim.faults.network_faults import BlockedWays, Way, begin_rate, end_rates, ways
from tidelog.sim.node import LOGS
from tidelog.sim.runs.cluster_operator import ClusterOperator
from tidelog.sim.runs.cluster_plan import ClusterPlan, machine_of
from tidelog.sim.runs.cluster_recorder import ClusterRecorder
from tidelog.sim.runs.cluster_views import METADATA_DIRECTORY, QUORUM_STATE, has_lost_metadata, quorum_of
from tidelog.sim.supervised_node import SupervisedNode
from tidelog.sim.world.disk import SimulatedDisk
from tidelog.sim.world.world import SimulatedWorld

CLIENT = "client"
FLOOD_TOPICS = 12
FLOOD_SECONDS_MAX = 0.5
SERVING_POLL_SECONDS = 0.1
SERVING_SECONDS_MAX = 20.0
"""So long a rolling restart waits for one node before it goes on with the next."""


class ClusterFaultInjector:
    """Does to a cluster what was drawn.

    Attributes:
        injected: faults, by kind. What would have been no fault (of a node that is being ended already, a loss of power
            beyond what the run allows) does not count.
    """

    def __init__(
        self,
        world: SimulatedWorld,
        plan: ClusterPlan,
        nodes: Mapping[BrokerId, SupervisedNode],
        recorder: ClusterRecorder,
        operator: ClusterOperator,
    ) -> None:
        self._world = world
        self._plan = plan
        self._nodes = nodes
        self._recorder = recorder
        self._operator = operator
        self._ways = BlockedWays(world.network)
        self._steps: Counter[str] = Counter()
        self._tasks: list[asyncio.Task[None]] = []
        self._names = [machine_of(node_id) for node_id in nodes]
        self._is_healed = False

    @property
    def injected(self) -> Counter[str]:
        executors = (node.machine.executor.injected for node in self._nodes.values())
        return sum(executors, self._steps + self._world.network.injected)

    def begin(self, fault: Fault) -> None:
        """What goes wrong all along."""
        begin_rate(self._world.network, fault)
        for node in self._nodes.values():
            node.begin(fault)

    def suffer(self, fault: Fault) -> None:
        """What goes wrong once; it is over, or begins to be mended, when its time is."""
        steps: dict[str, Callable[[Fault], bool]] = {
            "kill of all": partial(self._end_several, without_power=False),
            "stop of all": self._stop_all,
            "power loss of several": partial(self._end_several, without_power=True),
            "power loss of all": partial(self._end_several, without_power=True),
            "power loss of all voters": partial(self._end_several, without_power=True),
            "rolling restart": self._restart_all,
            "disk lost": self._lose_disk,
            "logs lost": self._lose_logs,
            "file lost": self._lose_file,
            "metadata lost": self._lose_metadata,
            "bit rot": self._rot,
            "disk slow for a while": self._slow_down,
            "far away": self._move_away,
            "refused": self._refuse,
            "controller killed": self._kill_controller,
            "leader killed": self._kill_leader,
            "leader without power": self._take_power_from_leader,
            "leader killed ahead": self._kill_leader_ahead,
            "swizzle": self._swizzle,
            "flood of topics": self._flood,
            "preferred election": lambda _: self._do(self._operator.elect_preferred()),
            "reassignment": lambda fault: self._do(self._operator.reassign(_random(fault))),
            "reassignments cancelled": lambda _: self._do(self._operator.cancel_reassignments()),
            "unclean election": lambda _: self._plan.allows_unclean and self._do(self._operator.elect_uncleanly()),
        }
        suffered = steps.get(fault.kind)
        blocked = self._blocked_by(fault)
        if suffered is not None:
            is_suffered = suffered(fault)
        elif blocked is not None:
            is_suffered = self._part(blocked, fault.lasts_ms)
        else:
            is_suffered = self._end_one(fault.broker, fault)
        if is_suffered:
            self._steps[fault.kind] += 1

    async def heal(self) -> None:
        """From now on nothing is in the way; return when all that was begun has come to its end."""
        self._is_healed = True
        self._ways.heal()
        end_rates(self._world.network)
        await asyncio.gather(*self._tasks)
        self._ways.heal()
        await asyncio.gather(*(node.heal() for node in self._nodes.values()))

    # Nodes that end.

    def _end_one(self, node_id: BrokerId, fault: Fault) -> bool:
        node = self._nodes[node_id]
        if fault.kind in ("disk full", "clock jump"):  # which end nothing by themselves
            return self._do(node.suffer(fault))
        if fault.kind.startswith("power") and not self._recorder.may_lose_power(node_id):
            return False
        return self._do(node.do_alone(node.suffer(fault)))

    def _kill_controller(self, fault: Fault) -> bool:
        controller = self._controller()
        return controller is not None and self._kill(controller, fault.lasts_ms)

    def _kill_leader(self, fault: Fault) -> bool:
        leader = self._leader(fault)
        return leader is not None and self._kill(leader, fault.lasts_ms)

    def _take_power_from_leader(self, fault: Fault) -> bool:
        leader = self._leader(fault)
        if leader is None or not self._recorder.may_lose_power(leader):
            return False
        node = self._nodes[leader]
        return self._do(node.do_alone(node.kill(fault.lasts_ms, without_power=True)))

    def _kill_leader_ahead(self, fault: Fault) -> bool:
        """While one follower lacks what the others have: who leads next is ahead of it, or behind the old leader."""
        random, leader, partition = _random(fault), self._leader(fault), self._partition(fault)
        if leader is None or partition is None:
            return False
        followers = [node_id for node_id in partition.replicas if node_id != leader]
        blocked = ways([machine_of(leader)], [machine_of(random.choice(followers))], both=True) if followers else []
        killed_after, lasts_seconds = random.random(), fault.lasts_ms / 1000
        self._ways.block(blocked)

        async def go() -> None:
            await asyncio.sleep(killed_after * lasts_seconds)
            self._kill(leader, fault.lasts_ms)
            await asyncio.sleep((1 - killed_after) * lasts_seconds)
            self._unblock(blocked)

        return self._do(go())

    def _kill(self, node_id: BrokerId, off_ms: int) -> bool:
        node = self._nodes[node_id]
        return self._do(node.do_alone(node.kill(off_ms, without_power=False)))

    def _end_several(self, fault: Fault, *, without_power: bool) -> bool:
        """At once, and each starts when it likes."""
        random, node_ids = _random(fault), list(self._nodes)
        if fault.kind == "power loss of several":
            node_ids = sorted(random.sample(node_ids, random.randrange(2, len(node_ids))))
        elif fault.kind == "power loss of all voters":
            node_ids = self._plan.voter_ids
        if any(self._nodes[each].busy.locked() for each in node_ids):
            return False
        if without_power and not self._plan.allows_unclean and not set(node_ids).isdisjoint(self._plan.broker_ids):
            return False
        for node_id in node_ids:
            node = self._nodes[node_id]
            self._do(node.do_alone(node.kill(round(random.random() * fault.lasts_ms), without_power=without_power)))
        return True

    def _stop_all(self, fault: Fault) -> bool:
        """At once: the last of them find no majority of the quorum any more."""
        if any(node.busy.locked() for node in self._nodes.values()):
            return False
        random = _random(fault)
        for node in self._nodes.values():
            self._do(node.do_alone(node.stop_and_start(round(random.random() * fault.lasts_ms))))
        return True

    def _restart_all(self, fault: Fault) -> bool:
        node_ids = list(self._nodes)
        first = node_ids.index(fault.broker)

        async def go() -> None:
            for node_id in (*node_ids[first:], *node_ids[:first]):
                node = self._nodes[node_id]
                work = node.do_alone(node.stop_and_start(fault.lasts_ms))
                if work is None:
                    continue
                await work
                for _ in range(round(SERVING_SECONDS_MAX / SERVING_POLL_SECONDS)):
                    if node.is_serving:
                        break
                    await asyncio.sleep(SERVING_POLL_SECONDS)

        return self._do(go())

    # Metadata.

    def _flood(self, fault: Fault) -> bool:
        """A broker that holds replicas of all of them ends, and the controller while it elects others, or another."""
        random = _random(fault)
        pauses = [random.random() * FLOOD_SECONDS_MAX for _ in range(3)]
        ends_twice, off_ms = random.random() < 0.7, fault.lasts_ms

        async def go() -> None:
            made = asyncio.create_task(self._operator.make_topics(f"flood-{self._steps[fault.kind]}", FLOOD_TOPICS))
            await asyncio.sleep(pauses[0])
            self._kill(fault.broker, off_ms)
            controller = self._controller()
            if ends_twice and controller is not None:
                await asyncio.sleep(pauses[1])
                self._kill(controller, off_ms)
            names = await made
            await asyncio.sleep(pauses[2])
            await self._operator.delete_topics(names)

        return self._do(go())

    # Disks.

    def _lose_disk(self, fault: Fault) -> bool:
        node_id = fault.broker
        node, disk = self._nodes[node_id], self._nodes[node_id].machine.disk
        if not self._recorder.may_lose_power(node_id, is_disk=True) or not self._may_lose_metadata(node_id):
            return False

        async def lose() -> None:
            self._recorder.before_disk_lost(node_id)
            node.end_without_telling()
            node.node.format(is_replacement=True)
            disk.sync_dir(LOGS)  # or a loss of power would bring something of it back
            self._recorder.after_end(node_id)
            await asyncio.sleep(fault.lasts_ms / 1000)
            await node.start()

        return self._do(node.do_alone(lose()))

    def _lose_metadata(self, fault: Fault) -> bool:
        """What a voter has for the quorum, or a part of that; which is no part of what acks=all promises."""
        node_id, node, random = fault.broker, self._nodes[fault.broker], _random(fault)
        disk = node.machine.disk
        if node.busy.locked() or not self._may_lose_metadata(node_id):
            return False
        is_stopped, what = random.random() < 0.5, random.choice(["directory", "log", "votes"])

        async def lose() -> None:
            if is_stopped:
                await node.stop()
            else:
                node.end(without_power=False)
            if self._may_lose_metadata(node_id):  # else another one has lost its own meanwhile
                self._recorder.before_metadata_lost(node_id, is_log_lost=what != "votes", are_votes_lost=what != "log")
                for path in [path for path in disk.files if path.startswith(f"{METADATA_DIRECTORY}/")]:
                    if what == "directory" or (path == QUORUM_STATE) == (what == "votes"):
                        disk.remove(path)
                if what == "directory":
                    disk.remove_tree(METADATA_DIRECTORY)
                for path in (LOGS, METADATA_DIRECTORY):
                    if disk.is_directory(path):
                        disk.sync_dir(path)  # or a loss of power would bring something of it back
                self._recorder.after_end(node_id)
            await asyncio.sleep(fault.lasts_ms / 1000)
            await node.start()

        return self._do(node.do_alone(lose()))

    def _lose_logs(self, fault: Fault) -> bool:
        """Of one partition, at one node or several, which were killed or stopped before."""
        random = _random(fault)
        partition = random.choice(self._plan.watched)
        node_ids = random.sample(self._plan.broker_ids, random.randrange(1, len(self._plan.broker_ids) + 1))
        path = f"{LOGS}/{partition}"
        lost = [self._lose(node_id, partition, lambda _: path, random, fault.lasts_ms) for node_id in node_ids]
        return any(lost)

    def _lose_file(self, fault: Fault) -> bool:
        """Any one file of a log; or the list of all logs, with one of them, for without a loss it is not missed."""
        random = _random(fault)
        partition = random.choice(self._plan.watched)
        inside, loses_list = f"{LOGS}/{partition}/", random.random() < 0.2

        def chosen(disk: SimulatedDisk) -> str:
            if loses_list:
                disk.remove(f"{LOGS}/{REPLICA_LIST_FILE}")
                return inside.rstrip("/")
            return random.choice([inside.rstrip("/"), *sorted(path for path in disk.files if path.startswith(inside))])

        return fault.broker in self._plan.broker_ids and self._lose(
            fault.broker, partition, chosen, random, fault.lasts_ms
        )

    def _lose(
        self,
        node_id: BrokerId,
        partition: TopicPartition,
        what: Callable[[SimulatedDisk], str],
        random: Random,
        off_ms: int,
    ) -> bool:
        """A node ends, and when it is back something of a partition is not there any more."""
        node, disk = self._nodes[node_id], self._nodes[node_id].machine.disk
        if node.busy.locked() or not self._recorder.may_lose_log(node_id, partition):
            return False
        is_stopped, off_seconds = random.random() < 0.5, random.random() * off_ms / 1000

        async def lose() -> None:
            if is_stopped:
                await node.stop()
            else:
                node.end(without_power=False)
            if not self._recorder.may_lose_log(node_id, partition):  # others have lost theirs meanwhile
                await node.start()
                return
            self._recorder.before_log_lost(node_id, partition)
            path = what(disk)
            if path in disk.files:
                disk.remove(path)
            else:
                disk.remove_tree(path)
            for each in (LOGS, f"{LOGS}/{partition}"):
                if disk.is_directory(each):
                    disk.sync_dir(each)  # or a loss of power would bring something of it back
            self._recorder.after_end(node_id)
            await asyncio.sleep(off_seconds)
            await node.start()

        return self._do(node.do_alone(lose()))

    def _may_lose_metadata(self, node_id: BrokerId) -> bool:
        """Whether a majority of the voters keeps its logs, and its votes: those that have not recovered have neither.

        A node that never votes may lose them at any time.
        """
        voter_ids = self._plan.voter_ids
        lost = {each for each in voter_ids if has_lost_metadata(self._nodes[each].node)} | {node_id}
        return node_id not in voter_ids or 2 * len(lost) < len(voter_ids)

    def _rot(self, fault: Fault) -> bool:
        """Damage is as good as lost; so it is looked for, and cut off, as after a loss of power."""
        node_id, node = fault.broker, self._nodes[fault.broker]
        disk, partitions = node.machine.disk, self._plan.watched
        if not self._recorder.may_lose_power(node_id, is_disk=True):
            return False

        async def rot() -> None:
            self._recorder.before_end(node_id, without_power=True)
            node.end_without_telling()
            if flip_bit(node.node, partitions[round(fault.amount) % len(partitions)], round(fault.amount)):
                disk.remove(f"{LOGS}/{RECOVERY_POINT_FILE}")
                disk.sync_dir(LOGS)  # or a loss of power would bring it back, and nobody look
            self._recorder.after_end(node_id)
            await asyncio.sleep(fault.lasts_ms / 1000)
            await node.start()

        return self._do(node.do_alone(rot()))

    def _slow_down(self, fault: Fault) -> bool:
        faults = self._nodes[fault.broker].machine.executor.faults
        before, faults.wait_ms_max = faults.wait_ms_max, fault.amount

        async def speed_up() -> None:
            await asyncio.sleep(fault.lasts_ms / 1000)
            faults.wait_ms_max = before

        return self._do(speed_up())

    # The network.

    def _blocked_by(self, fault: Fault) -> list[Way] | None:
        """What does not get through; None if that is not what the fault is about."""
        name = machine_of(fault.broker)
        others = [each for each in self._names if each != name]
        other = others[round(fault.amount) % len(others)]
        everybody = [*others, CLIENT]
        match fault.kind:
            case "partition":
                return ways([name], [other], both=True)
            case "partition one way":
                return ways([name], [other])
            case "isolation":
                return ways([name], everybody, both=True)
            case "deafness":
                return ways(everybody, [name])
            case "muteness":
                return ways([name], everybody)
            case "clients parted":
                return ways([CLIENT], [name], both=True)
            case "clients unheard":
                return ways([name], [CLIENT])
            case "controller isolated":
                return self._away_from_nodes(self._controller())
            case "leader isolated":
                return self._away_from_nodes(self._leader(fault))
            case _:
                return None

    def _away_from_nodes(self, node_id: BrokerId | None) -> list[Way]:
        return [] if node_id is None else ways([machine_of(node_id)], self._names, both=True)

    def _part(self, blocked: list[Way], lasts_ms: int) -> bool:
        self._ways.block(blocked)

        async def rejoin() -> None:
            await asyncio.sleep(lasts_ms / 1000)
            self._unblock(blocked)

        return bool(blocked) and self._do(rejoin())

    def _move_away(self, fault: Fault) -> bool:
        """It is behind the others, perhaps in sync with them. Of two such faults the first that ends ends both."""
        far_ms, name = self._world.network.far_ms, machine_of(fault.broker)
        far_ms[name] = fault.amount

        async def move_back() -> None:
            await asyncio.sleep(fault.lasts_ms / 1000)
            far_ms.pop(name, None)

        return self._do(move_back())

    def _refuse(self, fault: Fault) -> bool:
        """As by a middle box; two of them in the way of one node are one."""
        name = machine_of(fault.broker)
        self._world.network.refuse(name)

        async def admit() -> None:
            await asyncio.sleep(fault.lasts_ms / 1000)
            self._world.network.admit(name)

        return self._do(admit())

    def _unblock(self, blocked: Iterable[Way]) -> None:
        if not self._is_healed:
            self._ways.unblock(blocked)

    def _swizzle(self, fault: Fault) -> bool:
        random, names = _random(fault), self._names[:]
        everybody = [*names, CLIENT]
        pause_seconds = fault.lasts_ms / 1000 / len(names)

        async def go() -> None:
            random.shuffle(names)
            for name in names:
                self._ways.block(ways([name], everybody, both=True))
                await asyncio.sleep(pause_seconds * random.random())
            random.shuffle(names)
            for name in names:
                await asyncio.sleep(pause_seconds * random.random())
                self._unblock(ways([name], everybody, both=True))

        return self._do(go())

    # Who is who.

    def _controller(self) -> BrokerId | None:
        """The node that leads the quorum, in the newest epoch if several believe that they do."""
        leaders = [
            (quorum.leader_epoch, node_id)
            for node_id, node in self._nodes.items()
            if (quorum := quorum_of(node.node)) is not None and quorum.is_leader
        ]
        return max(leaders)[1] if leaders else None

    def _leader(self, fault: Fault) -> BrokerId | None:
        state = self._partition(fault)
        return None if state is None else state.leader

    def _partition(self, fault: Fault) -> PartitionImage | None:
        """The one that it meets, as the metadata has it."""
        partitions = self._plan.partitions
        met = partitions[round(fault.amount) % len(partitions)]
        return self._recorder.latest.partition(met.topic, met.partition)

    def _do(self, work: Coroutine[Any, Any, None] | None) -> bool:
        if work is None:
            return False
        self._tasks = [task for task in self._tasks if not task.done() or task.exception() is not None]
        self._tasks.append(asyncio.create_task(work))
        return True


def _random(fault: Fault) -> Random:
    return Random(round(fault.amount) * 1_000_003 + fault.lasts_ms)  # noqa: S311  # it was drawn from the seed
