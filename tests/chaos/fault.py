"""What a fault is, what it may cost, and what it is given to work with."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from support.load.histories import Fault as Finding
from support.nodes.cluster import ClusterNode

if TYPE_CHECKING:
    from chaos.network import Network
    from chaos.nodes import ChaosCluster
    from support.load.verifying import VerifyingLoad

RECORDS_MAX = 300
"""Of each producer, between one fault and the next."""


class Cost(Enum):
    """What a fault may cost."""

    NOTHING = "nothing"  # all that was acknowledged is there, and nobody is told of a loss
    TOLD_LOSSES = "told losses"  # what was acknowledged may be gone; whoever had read it is told

    @property
    def excused(self) -> frozenset[Finding]:
        """What may be found in the end."""
        if self is Cost.NOTHING:
            return frozenset()
        return frozenset({Finding.LOST, Finding.MOVED, Finding.REORDERED})


class Hurt(Enum):
    """What is hurt. Two faults at a time never hurt the same."""

    PROCESS = "process"
    NETWORK = "network"
    DISK = "disk"
    CLOCK = "clock"
    OPERATOR = "operator"
    STRANGER = "stranger"


@dataclass(slots=True)
class Stage:
    """What a fault is given.

    Attributes:
        cluster: its nodes, all of which run when a fault begins, unless another one is under way.
        network: None where nodes have no network of their own; then no fault that hurts the network is played.
        load: what is written and read meanwhile.
        dice: decides everything, so that a seed says what is done.
    """

    cluster: ChaosCluster
    network: Network | None
    load: VerifyingLoad
    dice: random.Random
    topic: str
    group: str
    partitions: int

    @property
    def is_majority_away(self) -> bool:
        """Whether so many nodes are stopped that nobody leads the quorum."""
        answering = [node for node in self.cluster.running if not node.is_paused]
        return 2 * len(answering) <= len(self.cluster.nodes)

    def victim(self) -> ClusterNode:
        """A node by what it is now: a leader, a follower, the active controller, or the group's coordinator.

        Any node while another fault keeps a majority from answering: nobody can be asked who has these roles then.
        """
        cluster, dice = self.cluster, self.dice
        partition = dice.randrange(self.partitions)
        role = dice.randrange(4)
        if self.is_majority_away:
            return self.another()
        if role == 0:
            return cluster.leader_of(self.topic, partition)
        if role == 1:
            return cluster.follower_of(self.topic, partition)
        return cluster.active_controller() if role == 2 else cluster.coordinator_of(self.group)

    def another(self, *but: ClusterNode) -> ClusterNode:
        """Any node but these."""
        return self.dice.choice([node for node in self.cluster.nodes.values() if node not in but])

    def go_on(self) -> None:
        """Some more records of each producer are acknowledged. Raises AssertionError if they are not, in a minute.

        Not while another fault keeps a majority from answering: then nothing is acknowledged before that ends.
        """
        if self.is_majority_away:
            return
        self.load.until_acknowledged(self.dice.randrange(1, RECORDS_MAX))

    def until_in_sync(self) -> None:
        """Every partition is led and every replica in sync. Raises AssertionError if it does not come to that."""
        self.cluster.wait_until_in_sync(self.topic)


Strike = Callable[[Stage], Iterator[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A kind of fault.

    Attributes:
        kind: its name, and its row in the table.
        strike: begins it, yields what was hit, and ends it when it goes on after that. It lasts as long as the runner
            likes; may yield more than once, then each part lasts so long. Is closed (GeneratorExit) when the run is
            stopped midway: what outlives processes and namespaces is undone in `finally`.
        hurts: what it hurts.
        seconds: how long it lasts, at least and at most.
        cost: what it may cost.
        nodes: how many it takes, at least.
        config: settings of every node in a round of this kind.
        topic: settings of the topic in a round of this kind.
        prepare: what is done to the cluster before it starts.
        is_mixed: whether it is played in mixed rounds too: not with settings or preparations of its own.
        is_alone: whether no other one is played at the same time: together they would cost more than each.
        is_restart: whether a process of a node ends by it: what a process holds is seen in one that lives long.
        is_secured: whether it is about a cluster with TLS, logins and rules, and is played in no other.
        says: what nodes may report on account of it; would be the sign of a bug elsewhere.
        needs: why it cannot be played here; None if it can. Is asked once.
    """

    kind: str
    strike: Strike
    hurts: Hurt
    seconds: tuple[float, float]
    cost: Cost = Cost.NOTHING
    nodes: int = 3
    config: Mapping[str, str] = field(default_factory=dict)
    topic: Mapping[str, str] = field(default_factory=dict)
    prepare: Callable[[ChaosCluster], None] | None = None
    is_mixed: bool = True
    is_alone: bool = False
    is_restart: bool = False
    is_secured: bool = False
    says: tuple[str, ...] = ()
    needs: Callable[[], str | None] | None = None
