"""What can go wrong with a cluster: with each of its nodes what can with one alone, and with several at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tidelog.sim.faults.faults import FaultKind, Kinds
from tidelog.sim.faults.node_faults import NODE_FAULTS
from tidelog.sim.world.rng import SeededRng

OF_ONE_NODE = (
    "kill", "kill in step", "power loss", "power loss in step", "kill while starting", "stop", "disk full", "clock jump"
)  # fmt: skip
"""What happens to one node of several as it does to one alone."""


def _below(end: int) -> Callable[[SeededRng], float]:
    return lambda rng: rng.randrange(0, end)


def _of_node(kind: FaultKind) -> FaultKind:
    return replace(kind, words=kind.words.replace("the node", "node {broker}"))


CLUSTER_FAULTS = Kinds(
    rates={
        **NODE_FAULTS.rates,
        "network slow": replace(NODE_FAULTS.rates["network slow"], share=0.55),  # or followers never differ
    },
    steps={
        **{kind: _of_node(NODE_FAULTS.steps[kind]) for kind in OF_ONE_NODE},
        "kill of all": FaultKind("kill all nodes at once; start them within {seconds:.3f} s", lasts_ms_max=4_000),
        "stop of all": FaultKind(
            "stop all nodes cleanly at once; start them within {seconds:.3f} s", lasts_ms_max=4_000
        ),
        "power loss of several": FaultKind(
            "several nodes lose power at once; start them within {seconds:.3f} s",
            weight=2,
            amount=_below(1_000_000),
            lasts_ms_max=4_000,
        ),
        "power loss of all": FaultKind(
            "all nodes lose power at once; start them within {seconds:.3f} s", weight=2, lasts_ms_max=4_000
        ),
        "power loss of all voters": FaultKind(
            "all voters lose power at once; start them within {seconds:.3f} s", weight=2, lasts_ms_max=4_000
        ),
        "rolling restart": FaultKind("stop and start one node after another, from node {broker} on"),
        "disk lost": FaultKind("node {broker} loses power and all it had; start it {seconds:.3f} s later"),
        "logs lost": FaultKind(
            "some nodes end, the logs of a partition go from their disks; start them within {seconds:.3f} s",
            weight=2,
            amount=_below(1_000_000),
            lasts_ms_max=4_000,
        ),
        "file lost": FaultKind(
            "node {broker} ends, a file of one of its logs goes from its disk, or its list of them; start it "
            "{seconds:.3f} s later",
            weight=2,
            amount=_below(1_000_000),
        ),
        "metadata lost": FaultKind(
            "node {broker} ends, its metadata log goes from its disk, or what it voted, or both; start it "
            "{seconds:.3f} s later",
            weight=3,
            amount=_below(1_000_000),
            lasts_ms_max=4_000,
        ),
        "bit rot": FaultKind(
            "node {broker} loses power, flip a bit {amount:.0f} parts in a million into a log of records; start it "
            "{seconds:.3f} s later",
            amount=_below(1_000_000),
        ),
        "disk slow for a while": FaultKind(
            "what waits for the disk of node {broker} waits for up to {amount:.0f} ms, for {seconds:.3f} s",
            weight=2,
            amount=lambda r: 100 + 1_900 * r.random(),
            lasts_ms_max=8_000,
        ),
        "partition": FaultKind(
            "node {broker} is cut off from another, either way, for {seconds:.3f} s",
            weight=8,
            amount=_below(1_000_000),
            lasts_ms_max=12_000,
        ),
        "partition one way": FaultKind(
            "nothing gets through from node {broker} to another for {seconds:.3f} s",
            weight=5,
            amount=_below(1_000_000),
            lasts_ms_max=12_000,
        ),
        "isolation": FaultKind(
            "nothing gets through from or to node {broker} for {seconds:.3f} s", weight=2, lasts_ms_max=12_000
        ),
        "deafness": FaultKind(
            "nothing gets through to node {broker} for {seconds:.3f} s", weight=2, lasts_ms_max=12_000
        ),
        "muteness": FaultKind(
            "nothing gets through from node {broker} for {seconds:.3f} s", weight=2, lasts_ms_max=12_000
        ),
        "far away": FaultKind(
            "all from and to node {broker} takes up to {amount:.0f} ms more, for {seconds:.3f} s",
            weight=12,
            amount=lambda r: 50 + 350 * r.random(),
            lasts_ms_max=12_000,
        ),
        "clients parted": FaultKind(
            "clients and node {broker} are parted for {seconds:.3f} s", weight=2, lasts_ms_max=12_000
        ),
        "clients unheard": FaultKind(
            "what node {broker} sends does not get through to clients for {seconds:.3f} s", lasts_ms_max=12_000
        ),
        "refused": FaultKind(
            "something resets the connections of node {broker}, and refuses those to it for {seconds:.3f} s",
            weight=2,
            lasts_ms_max=6_000,
        ),
        "controller isolated": FaultKind(
            "the node of the active controller is cut off from the others, not from clients, for {seconds:.3f} s",
            weight=3,
            lasts_ms_max=8_000,
        ),
        "controller killed": FaultKind(
            "kill the node of the active controller; start it {seconds:.3f} s later", weight=3, lasts_ms_max=4_000
        ),
        "leader isolated": FaultKind(
            "the node that leads a partition is cut off from the others, not from clients, for {seconds:.3f} s",
            weight=6,
            amount=_below(1_000_000),
            lasts_ms_max=8_000,
        ),
        "leader killed": FaultKind(
            "kill the node that leads a partition; start it {seconds:.3f} s later",
            weight=10,
            amount=_below(1_000_000),
            lasts_ms_max=4_000,
        ),
        "leader without power": FaultKind(
            "the node that leads a partition loses power; start it {seconds:.3f} s later, perhaps before it is missed",
            weight=8,
            amount=_below(1_000_000),
        ),
        "leader killed ahead": FaultKind(
            "the node that leads a partition is cut off from one of its followers for {seconds:.3f} s, and killed "
            "meanwhile; start it as late again",
            weight=20,
            amount=_below(1_000_000),
            lasts_ms_max=4_000,
        ),
        "swizzle": FaultKind(
            "cut all nodes off, one after the other, within {seconds:.3f} s; bring them back in another order",
            amount=_below(1_000_000),
            lasts_ms_max=6_000,
        ),
        "flood of topics": FaultKind(
            "make many topics at once, end the node of the active controller or a broker meanwhile, and delete them",
            weight=2,
            amount=_below(1_000_000),
            lasts_ms_max=4_000,
        ),
        "preferred election": FaultKind("elect the preferred leaders", weight=4),
        "reassignment": FaultKind("move partitions to other brokers", weight=3, amount=_below(1_000_000)),
        "reassignments cancelled": FaultKind("cancel all reassignments"),
        "unclean election": FaultKind("let anybody lead where nobody may, if this run allows it"),
    },
    at_once_max=7,
    gap_ms_max=3_000,
)
