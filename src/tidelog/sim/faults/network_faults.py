"""What goes wrong between machines: rates that hold all along, and ways on which nothing gets through for a while."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import product

from tidelog.sim.faults.faults import Fault
from tidelog.sim.world.network import NetworkFaults, SimulatedNetwork

Way = tuple[str, str]
"""From one machine to another, by name."""


def begin_rate(network: SimulatedNetwork, fault: Fault) -> None:
    """What goes wrong with the network all along. Other kinds are none of its business."""
    match fault.kind:
        case "network reset":
            network.faults.reset_rate = fault.amount
        case "network straggle":
            network.faults.straggle_rate = fault.amount
        case "network cut":
            network.faults.cut_rate = fault.amount
        case "network slow":
            network.faults.delay_ms_max = fault.amount
            network.injected[fault.kind] += 1
        case "network loss":
            network.faults.loss_rate = fault.amount
        case "network half reset":
            network.faults.half_reset_rate = fault.amount


def end_rates(network: SimulatedNetwork) -> None:
    """From now on the network is as good as it gets."""
    network.faults = NetworkFaults(straggle_rate=0.0, cut_rate=0.0)
    network.far_ms.clear()


def ways(sources: Iterable[str], targets: Iterable[str], *, both: bool = False) -> list[Way]:
    """From each of these machines to each of those, and back if need be."""
    found = [(source, target) for source, target in product(sources, list(targets)) if source != target]
    return found + [(target, source) for source, target in found] if both else found


class BlockedWays:
    """Ways that several faults may block at a time: free again when the last of them is over."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self._network = network
        self._blocks: Counter[Way] = Counter()

    def block(self, blocked: Iterable[Way]) -> None:
        """One fault more."""
        for way in blocked:
            self._blocks[way] += 1
            self._network.block(*way)

    def unblock(self, blocked: Iterable[Way]) -> None:
        """One fault less."""
        for way in blocked:
            self._blocks[way] -= 1
            if self._blocks[way] == 0:
                self._network.unblock(*way)

    def heal(self) -> None:
        """All faults are over. Who tells of the end of one later on is not heard."""
        self._blocks.clear()
        self._network.heal()
