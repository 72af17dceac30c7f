"""Where the nodes of the metadata quorum are asked, while they listen for controllers under several names."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from tidelog.base.ids import BrokerId, ClusterId
from tidelog.io.rng import SystemRng
from tidelog.net.address import Address
from tidelog.quorum.values import ReplicaKey, Voter, VoterSet
from tidelog.server.quorum.quorum_peers import QuorumPeers
from tidelog.server.settings.config import NodeConfig

OLD, NEW = "CONTROLLER", "QUORUM"
HERE, THERE, ELSEWHERE = BrokerId(1), BrokerId(2), BrokerId(3)


def endpoints(node_id: int, *names: str) -> tuple[tuple[str, str, int], ...]:
    ports = {OLD: 9093, NEW: 9096}
    return tuple((name, f"node-{node_id}", ports[name]) for name in names)


def peers(first: str, second: str) -> QuorumPeers:
    """Of node 1, which listens on both, the old one first in `listeners`, and asks on `first`."""
    properties = {
        "process.roles": "controller",
        "node.id": "1",
        "listeners": "CONTROLLER://node-1:9093,QUORUM://node-1:9096",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,QUORUM:PLAINTEXT",
        "controller.listener.names": f"{first},{second}",
        "controller.quorum.bootstrap.servers": "node-2:9093",
        "log.dirs": "/none",
    }
    config = NodeConfig.from_properties(properties).quorum
    unused = cast(Any, SimpleNamespace())
    return QuorumPeers(
        HERE,
        ClusterId("the cluster"),
        endpoints(1, OLD, NEW),
        config,
        unused,
        network=unused,
        rng=SystemRng(),
        tasks=unused,
    )


def voters(*names: str) -> VoterSet:
    return VoterSet(
        (Voter(ReplicaKey(HERE), endpoints(1, OLD, NEW)), Voter(ReplicaKey(THERE), endpoints(2, *names))), 1
    )


def test_nodes_are_asked_on_the_listener_that_is_named_first_this_one_too() -> None:
    async def story() -> None:
        for first, second, port in ((OLD, NEW, 9093), (NEW, OLD, 9096)):
            asking = peers(first, second)
            asking.set_voters(voters(OLD, NEW))
            assert asking.address_of(HERE) == Address("node-1", port)
            assert asking.address_of(THERE) == Address("node-2", port)

    asyncio.run(story())


def test_who_asks_where_the_leader_is_goes_on_by_the_listener_that_it_asked_on() -> None:
    async def story() -> None:
        asking = peers(NEW, OLD)
        asking.set_voters(voters(OLD, NEW))
        assert asking.endpoint_of(HERE, OLD) == (HERE, Address("node-1", 9093))
        assert asking.endpoint_of(THERE, OLD) == (THERE, Address("node-2", 9093))
        assert asking.endpoint_of(THERE, NEW) == (THERE, Address("node-2", 9096))
        asking.set_voters(voters(NEW))
        assert asking.endpoint_of(THERE, OLD) is None  # it speaks to nobody there
        assert asking.endpoint_of(ELSEWHERE, NEW) is None
        assert asking.endpoint_of(None, NEW) is None

    asyncio.run(story())


def test_a_leader_that_is_no_voter_here_is_known_by_the_name_that_is_asked_on() -> None:
    async def story() -> None:
        asking = peers(NEW, OLD)
        asking.on_endpoints(ELSEWHERE, endpoints(3, OLD, NEW))
        assert asking.address_of(ELSEWHERE) == Address("node-3", 9096)
        asking.on_endpoints(ELSEWHERE, endpoints(3, OLD))
        assert asking.address_of(ELSEWHERE) == Address("node-3", 9096)
        assert asking.endpoint_of(ELSEWHERE, NEW) == (ELSEWHERE, Address("node-3", 9096))

    asyncio.run(story())


def test_under_another_name_a_voter_is_asked_where_it_listens_first() -> None:
    async def story() -> None:
        asking = peers(NEW, OLD)
        asking.set_voters(voters(OLD))
        assert asking.address_of(THERE) == Address("node-2", 9093)

    asyncio.run(story())
