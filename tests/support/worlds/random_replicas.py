"""Replicas joined in memory to which whatever may happen does, as a seed decides: a little simulation.

Each run is bad in its own way: how often each kind of thing happens is drawn first, and many kinds never happen.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from support.worlds.replica_values import Message, Rules
from support.worlds.replica_world import InvariantBrokenInWorldError, ReplicaWorld
from tidelog.base.errors import InvariantBrokenError
from tidelog.base.ids import BrokerId

STEPS = 120
MESSAGES_MAX = 12

Step = Callable[[], None]

USUAL = {
    "arrive": 12,
    "learn": 5,
    "produce": 3,
    "restart": 3,
    "elect": 1,
    "expire": 1,
    "tick": 2,
    "give up": 1,
}
"""What furthers replication, and how often it happens beside the rest: in every run."""
FAULTS = {
    "repeat": 1,
    "lose": 2,
    "crash": 1,
    "restart at once": 1,
    "lose power": 1,
    "elect another": 1,
    "elect uncleanly": 1,
    "wait long": 1,
}
"""What does not: in some runs, more often or less."""


class RandomReplicas:
    """One run.

    Args:
        seed: what all of it is drawn from.
        rules: what the replicas go by.

    Attributes:
        steps: that were taken.
    """

    def __init__(self, seed: int, rules: Rules | None = None) -> None:
        self._rng = rng = Random(seed)
        replica_count = rng.choice((2, 3, 3))
        self.world = ReplicaWorld(replica_count, min_insync=rng.choice((1, 2, 2)), rules=rules)
        self._weights = USUAL | {kind: weight * rng.choice((0, 0, 1, 2)) for kind, weight in FAULTS.items()}
        self.steps = 0

    def run(self, steps: int = STEPS) -> list[str]:
        """Take so many steps, or fewer if something breaks. Returns what did."""
        for number in range(steps):
            self.steps = number + 1
            try:
                self._step(number)
                self.world.check()
            except InvariantBrokenInWorldError as broken:
                return str(broken).splitlines()
            except InvariantBrokenError as broken:
                return [f"its own invariant: {broken}"]
        return []

    def _step(self, number: int) -> None:
        possible = {kind: steps for kind, steps in self._possible(number).items() if steps and self._weights[kind]}
        kinds = list(possible)
        (kind,) = self._rng.choices(kinds, [self._weights[kind] for kind in kinds])
        self._rng.choice(possible[kind])()

    def _possible(self, number: int) -> dict[str, list[Step]]:
        """All that may happen next, by kind."""
        world, rng = self.world, self._rng
        nodes = list(world.nodes.values())
        up = [node for node in nodes if node.is_up]
        heirs = [node.broker_id for node in up if not node.is_fenced and node.broker_id != world.state.leader]
        in_sync = [broker for broker in heirs if broker in world.state.isr]
        has_leader = world.state.leader is not None
        messages = world.messages
        return {
            "arrive": [partial(self._arrive, message) for message in messages],
            "repeat": [partial(world.deliver, one) for one in messages] if len(messages) < MESSAGES_MAX else [],
            "lose": [partial(messages.remove, message) for message in messages],
            "learn": [partial(world.apply_next, n.broker_id) for n in up if n.applied < len(world.history) - 1],
            "produce": [partial(world.produce, n.broker_id, f"m{number}") for n in up if n.leader is not None],
            "give up": [partial(world.give_up, n.broker_id) for n in up if n.asked is not None or n.leader is not None],
            "crash": [partial(world.crash, node.broker_id) for node in up],
            "expire": [partial(world.expire, n.broker_id) for n in nodes if not n.is_up and not n.is_fenced],
            "restart": [partial(world.restart, node.broker_id) for node in nodes if not node.is_up],
            "restart at once": [partial(self._restart, node.broker_id) for node in up],
            "lose power": [
                partial(world.lose_power, node.broker_id, keeps=rng.randint(0, node.log.end_offset)) for node in nodes
            ],
            "elect": [] if has_leader else [partial(world.elect, broker) for broker in in_sync],
            "elect another": [partial(world.elect, broker) for broker in in_sync],
            "elect uncleanly": [partial(world.elect, broker, is_unclean=True) for broker in heirs],
            "tick": [partial(world.tick, 10)],
            "wait long": [partial(world.tick, 40)],
        }

    def _arrive(self, message: Message) -> None:
        self.world.messages.remove(message)
        self.world.deliver(message)

    def _restart(self, broker: BrokerId) -> None:
        """Faster than anyone notices."""
        self.world.crash(broker)
        self.world.restart(broker)
