"""What happens between processes: nothing passes, one way or both; packets are late, lost, repeated, out of order."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from chaos.fault import Fault, Hurt, Stage
from chaos.network import CLIENTS, Network
from chaos.wires import CUT, Way, Weather
from support.nodes.cluster import ClusterNode


def isolate(stage: Stage) -> Iterator[str]:
    """One node from all others and from clients, both ways."""
    network, node = _network(stage), stage.victim()
    return _for_a_while(network, network.between([node.node_id], network.rest([node.node_id])), CUT, str(node))


def part_from_nodes(stage: Stage) -> Iterator[str]:
    """One node from the other nodes, both ways; clients still reach it."""
    network, node = _network(stage), stage.victim()
    return _for_a_while(network, network.between([node.node_id], _others(stage, node)), CUT, str(node))


def part_in_two(stage: Stage) -> Iterator[str]:
    """The nodes into two groups, both of which clients reach."""
    network, ids = _network(stage), sorted(stage.cluster.nodes)
    ones = stage.dice.sample(ids, len(ids) // 2)
    others = [one for one in ids if one not in ones]
    return _for_a_while(network, network.between(ones, others), CUT, f"{ones} from {others}")


def part_a_pair(stage: Stage) -> Iterator[str]:
    """Two nodes from each other; both of them reach the others."""
    network, node = _network(stage), stage.victim()
    other = stage.another(node)
    return _for_a_while(network, network.between([node.node_id], [other.node_id]), CUT, f"{node} and {other}")


def deafen(stage: Stage) -> Iterator[str]:
    """One node hears nobody; all hear it."""
    network, node = _network(stage), stage.victim()
    ways = network.between(network.rest([node.node_id]), [node.node_id], both=False)
    return _for_a_while(network, ways, CUT, f"{node} hears nothing")


def mute(stage: Stage) -> Iterator[str]:
    """One node hears all; nobody hears it."""
    network, node = _network(stage), stage.victim()
    ways = network.between([node.node_id], network.rest([node.node_id]), both=False)
    return _for_a_while(network, ways, CUT, f"{node} is not heard")


def part_one_way(stage: Stage) -> Iterator[str]:
    """What one node sends does not reach the other nodes; clients reach it."""
    network, node = _network(stage), stage.victim()
    ways = network.between([node.node_id], _others(stage, node), both=False)
    return _for_a_while(network, ways, CUT, f"{node} to the nodes")


def delay(stage: Stage) -> Iterator[str]:
    """Packets between nodes are late."""
    weather = Weather(delay_ms=stage.dice.uniform(5, 150), jitter_ms=stage.dice.uniform(0, 100))
    return _among_nodes(stage, weather, f"{weather.delay_ms:.0f} to {weather.delay_ms + weather.jitter_ms:.0f} ms")


def lose(stage: Stage) -> Iterator[str]:
    """Some packets are lost, between all."""
    weather = Weather(loss=stage.dice.choice([0.01, 0.05, 0.1, 0.2]))
    return _everywhere(stage, weather, f"{weather.loss:.0%}")


def disorder(stage: Stage) -> Iterator[str]:
    """Some packets come twice, and some are overtaken by others."""
    weather = Weather(delay_ms=2, duplication=stage.dice.uniform(0.05, 0.3), reordering=stage.dice.uniform(0.05, 0.3))
    return _everywhere(stage, weather, f"{weather.duplication:.0%} twice, {weather.reordering:.0%} overtaken")


def narrow(stage: Stage) -> Iterator[str]:
    """Few bytes a second pass between nodes."""
    weather = Weather(delay_ms=20, bytes_per_second=stage.dice.choice([100_000, 300_000, 1_000_000]))
    return _among_nodes(stage, weather, f"{weather.bytes_per_second} bytes/s")


def flap(stage: Stage) -> Iterator[str]:
    """One node is cut off and reachable by turns."""
    network, node = _network(stage), stage.victim()
    ways = network.between([node.node_id], network.rest([node.node_id]))
    for _ in range(stage.dice.randrange(3, 7)):
        yield from _for_a_while(network, ways, CUT, f"{node} is cut off")
        yield f"{node} is reachable"


def forget(stage: Stage) -> Iterator[str]:
    """A box in the middle forgets all connections, or those of one node, a few times: each is reset at its next use.

    Between nodes it may be that only whoever spoke is told, and the other end waits for an answer until its patience
    is over. With clients it tells both: librdkafka's idempotent producer waits for an answer as long as for the
    delivery, and what it sends again after that comes from a new epoch, hence twice.
    """
    network = _network(stage)
    for _ in range(stage.dice.randrange(1, 5)):
        tells_both, how = stage.dice.choice([(True, "both ends told"), (False, "one end told")])
        if stage.dice.random() < 0.5:
            ways, what = network.between(network.peers, network.peers, both=False), "all connections"
        else:
            node = stage.victim()
            ways, what = network.between([node.node_id], network.rest([node.node_id])), f"the connections of {node}"
        with_clients = [way for way in ways if CLIENTS in way]
        network.set(with_clients, Weather(forgets=True, tells_both=True))
        try:
            others = [way for way in ways if CLIENTS not in way]
            yield from _for_a_while(network, others, Weather(forgets=True, tells_both=tells_both), f"{what}, {how}")
        finally:
            network.clear(with_clients)


def _among_nodes(stage: Stage, weather: Weather, what: str) -> Iterator[str]:
    network, ids = _network(stage), list(stage.cluster.nodes)
    return _for_a_while(network, network.between(ids, ids, both=False), weather, what)


def _everywhere(stage: Stage, weather: Weather, what: str) -> Iterator[str]:
    network = _network(stage)
    return _for_a_while(network, network.between(network.peers, network.peers, both=False), weather, what)


def _for_a_while(network: Network, ways: Collection[Way], weather: Weather, what: str) -> Iterator[str]:
    network.set(ways, weather)
    try:
        yield what
    finally:
        network.clear(ways)


def _network(stage: Stage) -> Network:
    assert stage.network is not None
    return stage.network


def _others(stage: Stage, node: ClusterNode) -> list[int]:
    return [one for one in stage.cluster.nodes if one != node.node_id]


FAULTS = tuple(
    Fault(kind=kind, strike=strike, hurts=Hurt.NETWORK, seconds=seconds)
    for kind, strike, seconds in (
        ("node isolated", isolate, (1.0, 15.0)),
        ("node parted from nodes", part_from_nodes, (1.0, 15.0)),
        ("nodes parted in two", part_in_two, (1.0, 12.0)),
        ("pair parted", part_a_pair, (1.0, 15.0)),
        ("node deaf", deafen, (1.0, 15.0)),
        ("node mute", mute, (1.0, 15.0)),
        ("one way cut between nodes", part_one_way, (1.0, 15.0)),
        ("packets delayed", delay, (3.0, 15.0)),
        ("packets lost", lose, (3.0, 15.0)),
        ("packets repeated and reordered", disorder, (3.0, 15.0)),
        ("network narrow", narrow, (3.0, 15.0)),
        ("connections reset", forget, (0.3, 3.0)),
        ("network flapping", flap, (0.2, 4.0)),
    )
)
