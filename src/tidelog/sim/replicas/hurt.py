"""What each fault does to a cluster, for as long as it lasts; and how all of it heals."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from tidelog.base.errors import KafkaError
from tidelog.base.ids import BrokerId
from tidelog.controller.leaders import ElectionType
from tidelog.log.directory import RECOVERY_POINT_FILE
from tidelog.sim.faults.faults import Fault
from tidelog.sim.replicas.broker import LOGS
from tidelog.sim.replicas.controller import CONTROLLER, machine_of
from tidelog.sim.replicas.fabric import FabricFaults
from tidelog.sim.replicas.messages import PARTITION
from tidelog.sim.replicas.world import CLIENTS, IN_STEP_MS, ReplicaCluster
from tidelog.sim.world.executor import ExecutorFaults
from tidelog.sim.world.rng import SeededRng


class Hurt:
    """Does to a cluster what was drawn.

    Attributes:
        injected: faults, by kind. What would have been no fault (a broker that does not run, a loss of power beyond
            what the run allows) does not count.
    """

    def __init__(self, cluster: ReplicaCluster, rng: SeededRng) -> None:
        self.injected: Counter[str] = Counter()
        self._cluster = cluster
        self._rng = rng
        self._tasks: list[asyncio.Task[None]] = []
        self._away: dict[str, tuple[BrokerId, ...]] = {}

    def begin(self, fault: Fault) -> None:
        """What goes wrong all along."""
        faults = self._cluster.fabric.faults
        match fault.kind:
            case "message dropped":
                faults.drop_rate = fault.amount
            case "message repeated":
                faults.repeat_rate = fault.amount
            case "message delayed":
                faults.straggle_rate = fault.amount
            case "network slow":
                self.injected[fault.kind] += 1
                faults.delay_ms_max = fault.amount
            case "disk slow":
                self.injected[fault.kind] += 1
                for machine in self._cluster.machines.values():
                    machine.executor.faults.wait_ms_max = fault.amount

    def suffer(self, fault: Fault) -> None:
        """What goes wrong once; it is over, or begins to be mended, when its time is."""
        steps: dict[str, Callable[[Fault], bool]] = {
            "kill": self._kill,
            "kill in step": partial(self._in_step, loses_power=False),
            "power loss": self._lose_power,
            "power loss in step": partial(self._in_step, loses_power=True),
            "disk lost": self._lose_disk,
            "bit rot": self._rot,
            "stop": self._stop,
            "disk full": self._fill,
            "partition": self._part,
            "isolation": self._part,
            "deafness": self._part,
            "muteness": self._part,
            "lost controller": self._part,
            "swizzle": self._swizzle,
            "session expiry": self._expire,
            "preferred election": self._elect_preferred,
            "reassignment": self._reassign,
            "topic recreated": self._recreate,
            "clock jump": self._jump,
        }
        if steps[fault.kind](fault):
            self.injected[fault.kind] += 1

    def heal(self) -> None:
        """From now on nothing is in the way: what was begun must come to its end."""
        cluster = self._cluster
        for task in self._tasks:
            task.cancel()
        cluster.network.heal()
        cluster.fabric.faults = FabricFaults()
        for broker, machine in cluster.machines.items():
            machine.executor.faults = ExecutorFaults()
            machine.disk.free_write_bytes = None
            machine.kill_at_change = None
            machine.clock.wall_offset_ms = 0
            cluster.start(broker)
        cluster.controller.is_generous = True

    # What happens to one broker.

    def _kill(self, fault: Fault) -> bool:
        if fault.broker not in self._cluster.brokers:
            return False
        self._cluster.end(fault.broker, self._cluster.machines[fault.broker].kill)
        self._cluster.start_later(fault.broker, fault.lasts_ms)
        return True

    def _in_step(self, fault: Fault, *, loses_power: bool) -> bool:
        cluster, broker = self._cluster, fault.broker
        process, machine = cluster.brokers.get(broker), cluster.machines[broker]
        if process is None or (loses_power and not self._may_lose(broker)):
            return False
        machine.kill_at_change = round(fault.amount)

        async def end() -> None:
            for _ in range(IN_STEP_MS // 10):
                await asyncio.sleep(0.01)
                if not machine.is_running:
                    break
            if cluster.brokers.get(broker) is not process:
                return  # it came to another end
            cluster.end(broker, machine.kill)
            if loses_power and self._may_lose(broker):
                cluster.watch.on_power_lost(broker)
                machine.lose_power()
            cluster.start_later(broker, fault.lasts_ms)

        self._do(end())
        return True

    def _may_lose(self, broker: BrokerId, *, is_disk: bool = False) -> bool:
        """Whether the run allows one loss more at a time."""
        plan, watch = self._cluster.plan, self._cluster.watch
        losses_max = min(plan.power_losses_max, plan.min_insync_replicas - 1) if is_disk else plan.power_losses_max
        for topic_id, topic in self._cluster.latest.topics_by_id.items():
            state = topic.partitions[PARTITION]
            if broker in state.replicas:
                is_counted = watch.is_doubtful(topic_id, broker)
                if watch.doubtful_in(topic_id, state) + (not is_counted) > losses_max:
                    return False
        return True

    def _lose_power(self, fault: Fault) -> bool:
        if fault.broker not in self._cluster.brokers or not self._may_lose(fault.broker):
            return False
        self._cluster.watch.on_power_lost(fault.broker)
        self._cluster.end(fault.broker, self._cluster.machines[fault.broker].lose_power)
        self._cluster.start_later(fault.broker, fault.lasts_ms)
        return True

    def _lose_disk(self, fault: Fault) -> bool:
        cluster, machine = self._cluster, self._cluster.machines[fault.broker]
        if fault.broker not in cluster.brokers or not self._may_lose(fault.broker, is_disk=True):
            return False
        cluster.watch.on_power_lost(fault.broker, is_disk_lost=True)
        cluster.end(fault.broker, machine.lose_power)
        machine.disk.remove_tree(LOGS)
        machine.disk.make_dirs(LOGS)
        machine.disk.lose_power(self._rng.random_source)
        cluster.start_later(fault.broker, fault.lasts_ms)
        return True

    def _rot(self, fault: Fault) -> bool:
        """Damage is as good as lost; so it is only looked for, and cut off, where the promise covers it."""
        cluster, machine = self._cluster, self._cluster.machines[fault.broker]
        rotten = sorted(path for path in machine.disk.files if path.endswith(".log") and machine.disk.files[path].data)
        if fault.broker not in cluster.brokers or not rotten or not self._may_lose(fault.broker, is_disk=True):
            return False
        cluster.watch.on_power_lost(fault.broker)
        cluster.end(fault.broker, machine.kill)
        machine.disk.rot(rotten[self._rng.randrange(0, len(rotten))], self._rng.random_source)
        machine.disk.remove(f"{LOGS}/{RECOVERY_POINT_FILE}")
        machine.disk.sync_dir(LOGS)  # or a loss of power would bring it back, and nobody look
        cluster.start_later(fault.broker, fault.lasts_ms)
        return True

    def _stop(self, fault: Fault) -> bool:
        if fault.broker not in self._cluster.brokers:
            return False
        self._cluster.stop(fault.broker)
        self._cluster.start_later(fault.broker, fault.lasts_ms)
        return True

    def _fill(self, fault: Fault) -> bool:
        disk = self._cluster.machines[fault.broker].disk
        disk.free_write_bytes = round(fault.amount)

        def give_room() -> None:
            disk.free_write_bytes = None

        self._later(fault.lasts_ms, give_room)
        return True

    def _jump(self, fault: Fault) -> bool:
        self._cluster.machines[fault.broker].clock.wall_offset_ms += round(fault.amount)
        return True

    # The network.

    def _part(self, fault: Fault) -> bool:
        network, name = self._cluster.network, machine_of(fault.broker)
        everybody = [*(machine_of(each) for each in self._cluster.machines), CONTROLLER, CLIENTS]
        others = [each for each in everybody if each != name]
        ways: list[tuple[str, str]] = []
        if fault.kind == "partition":
            other = others[self._rng.randrange(0, len(others))]
            ways = [(name, other), (other, name)]
        elif fault.kind == "lost controller":
            ways = [(name, CONTROLLER), (CONTROLLER, name)]
        if fault.kind in ("isolation", "deafness"):
            ways += [(other, name) for other in others]
        if fault.kind in ("isolation", "muteness"):
            ways += [(name, other) for other in others]
        for way in ways:
            network.block(*way)

        def rejoin() -> None:
            for way in ways:
                network.unblock(*way)

        self._later(fault.lasts_ms, rejoin)
        return True

    def _swizzle(self, fault: Fault) -> bool:
        network, random = self._cluster.network, self._rng.random_source
        names = [machine_of(each) for each in self._cluster.machines]
        everybody = [*names, CONTROLLER, CLIENTS]

        async def go() -> None:
            random.shuffle(names)
            for name in names:
                for other in everybody:
                    if other != name:
                        network.partition(name, other)
                await asyncio.sleep(fault.lasts_ms / 1000 / len(names) * random.random())
            random.shuffle(names)
            for name in names:
                await asyncio.sleep(fault.lasts_ms / 1000 / len(names) * random.random())
                for other in everybody:
                    network.unblock(name, other)
                    network.unblock(other, name)

        self._do(go())
        return True

    # What operators do.

    def _expire(self, fault: Fault) -> bool:
        self._cluster.controller.expire(fault.broker)
        return True

    def _elect_preferred(self, fault: Fault) -> bool:
        for topic in sorted(self._cluster.latest.topics_by_name):
            try:
                self._cluster.controller.elect(topic, ElectionType.PREFERRED)
            except KafkaError:
                continue
        return True

    def _reassign(self, fault: Fault) -> bool:
        """Only where enough who are in sync stay: more than that no promise survives."""
        cluster = self._cluster
        if not cluster.latest.topics_by_name:
            return False
        topic = min(cluster.latest.topics_by_name)
        state = cluster.latest.topics_by_name[topic].partitions[PARTITION]
        free = [each for each in cluster.machines if each not in state.replicas]
        leaving = state.replicas[self._rng.randrange(0, len(state.replicas))]
        staying = tuple(each for each in state.replicas if each != leaving)
        if not self._stay_enough(topic, staying):
            return False
        before = state.replicas
        added = (free[self._rng.randrange(0, len(free))],) if free else ()
        cluster.controller.reassign(topic, (*staying, *added))

        async def back() -> None:
            await asyncio.sleep(fault.lasts_ms / 1000)
            while not self._stay_enough(topic, before):
                await asyncio.sleep(0.2)
            cluster.controller.reassign(topic, before)

        self._do(back())
        return True

    def _stay_enough(self, topic: str, replicas: tuple[BrokerId, ...]) -> bool:
        image = self._cluster.latest.topics_by_name.get(topic)
        if image is None:
            return False
        staying = [each for each in image.partitions[PARTITION].isr if each in replicas]
        sure = [each for each in staying if not self._cluster.watch.is_doubtful(image.topic_id, each)]
        return bool(replicas) and len(sure) >= self._cluster.plan.min_insync_replicas

    def _recreate(self, fault: Fault) -> bool:
        controller = self._cluster.controller
        topics = sorted(self._cluster.latest.topics_by_name)
        if len(topics) < self._cluster.plan.topics:
            return False
        topic = topics[self._rng.randrange(0, len(topics))]
        self._away[topic] = self._cluster.latest.topics_by_name[topic].partitions[PARTITION].replicas
        controller.delete_topic(topic)
        self._later(fault.lasts_ms, self.create_deleted)
        return True

    def create_deleted(self) -> None:
        """Topics that are gone, as they were; once somebody is there who can have them."""
        for topic, replicas in list(self._away.items()):
            try:
                self._cluster.controller.create_topic(topic, replicas)
            except KafkaError:
                self._later(200, self.create_deleted)
                return
            del self._away[topic]

    def _later(self, ms: float, step: Callable[[], object]) -> None:
        async def wait() -> None:
            await asyncio.sleep(ms / 1000)
            step()

        self._do(wait())

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks = [task for task in self._tasks if not task.done()]
        self._tasks.append(asyncio.create_task(work))
