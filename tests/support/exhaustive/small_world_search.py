"""Breadth first through all states of a small world: what is broken is found by one of the shortest ways."""

from __future__ import annotations

from dataclasses import dataclass
from time import process_time
from typing import Protocol

State = tuple[int, ...]
Action = tuple[object, ...]
Found = list[tuple[Action, State]]


class World(Protocol):
    """What can be explored: states are equal if nothing that comes can tell them apart."""

    @property
    def initial(self) -> State: ...

    def successors(self, state: State) -> Found:
        """All that may happen next."""
        ...

    def broken(self, state: State) -> str:
        """What does not hold, beginning with the name of the invariant; empty if all does."""
        ...


@dataclass(frozen=True)
class Explored:
    """What came of it.

    Attributes:
        depth: how many steps it takes to the last state.
        seconds: of one processor.
        broken: what does not hold in the last state of `steps`; empty if nothing is broken.
        steps: from the initial state on, what happened and what was the case then.
    """

    states: int
    transitions: int
    depth: int
    seconds: float
    broken: str = ""
    steps: tuple[tuple[Action, State], ...] = ()


def explore(world: World, *, is_traced: bool = False) -> Explored:
    """Visit every state that can be reached, until something is broken.

    States are known by their hashes, of 64 bits: that one of ten million is missed is as likely as one in 400,000.

    Args:
        is_traced: whether to remember how each state was reached. If not, and something is found, it is sought again.
    """
    began = process_time()
    seen = {hash(world.initial)}
    came: dict[State, tuple[Action, State]] = {}
    level = [world.initial]
    transitions = depth = 0
    while level:
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
                        return explore(world, is_traced=True)
                    seconds = process_time() - began
                    return Explored(len(seen), transitions, depth, seconds, broken, _way(came, after))
                following.append(after)
        level = following
    return Explored(len(seen), transitions, depth, process_time() - began)


def _way(came: dict[State, tuple[Action, State]], state: State) -> tuple[tuple[Action, State], ...]:
    steps = []
    while state in came:
        action, before = came[state]
        steps.append((action, state))
        state = before
    return tuple(reversed(steps))
