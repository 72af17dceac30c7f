"""Breadth first through all states of a small world: what is broken is found by one of the shortest ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import process_time
from typing import Protocol

State = tuple[int, ...]
Action = tuple[object, ...]


class World(Protocol):
    """What can be explored: states are equal if nothing that comes can tell them apart."""

    @property
    def initial(self) -> State: ...

    def successors(self, state: State) -> list[tuple[Action, State]]:
        """All that may happen next."""
        ...

    def broken(self, state: State) -> str:
        """What does not hold, beginning with the name of the invariant; empty if all does."""
        ...


@dataclass(frozen=True)
class Explored:
    """What came of it.

    Attributes:
        is_whole: whether there is no other state.
        depth: how many steps it takes to the last state.
        seconds: of one processor.
        broken: what does not hold in the last state of `steps`; empty if nothing is broken.
        steps: from the initial state on, what happened and what was the case then.
    """

    states: int
    transitions: int
    depth: int
    seconds: float
    is_whole: bool
    broken: str = ""
    steps: tuple[tuple[Action, State], ...] = ()

    @property
    def rate(self) -> float:
        """Transitions per second."""
        return self.transitions / self.seconds if self.seconds else 0.0


def explore(
    world: World,
    *,
    depth_max: int | None = None,
    is_traced: bool = False,
    on_level: Callable[[int, int, int], None] | None = None,
) -> Explored:
    """Visit every state that can be reached, or all within a depth, until something is broken.

    States are known by their hashes, of 64 bits: that one of ten million is missed is as likely as one in 400,000.

    Args:
        is_traced: whether to remember how each state was reached. If not, and something is found, it is sought again.
        on_level: told the depth, the states seen so far and the transitions, as the search goes on.
    """
    began = process_time()
    seen = {hash(world.initial)}
    came: dict[State, tuple[Action, State]] = {}
    level = [world.initial]
    transitions = depth = 0
    while level and (depth_max is None or depth < depth_max):
        depth += 1
        following = []
        for state in level:
            for action, after in world.successors(state):
                transitions += 1
                fingerprint = hash(after)
                if fingerprint in seen:
                    continue
                seen.add(fingerprint)
                if is_traced:
                    came[after] = (action, state)
                broken = world.broken(after)
                if broken:
                    if not is_traced:
                        return explore(world, depth_max=depth, is_traced=True)
                    seconds = process_time() - began
                    return Explored(len(seen), transitions, depth, seconds, False, broken, _way(came, after))
                following.append(after)
        level = following
        if on_level is not None:
            on_level(depth, len(seen), transitions)
    return Explored(len(seen), transitions, depth, process_time() - began, not level)


def _way(came: dict[State, tuple[Action, State]], state: State) -> tuple[tuple[Action, State], ...]:
    steps = []
    while state in came:
        action, before = came[state]
        steps.append((action, state))
        state = before
    return tuple(reversed(steps))
