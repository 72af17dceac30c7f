"""Who may connect, and what the operator is told when files are too few."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tidelog.io.clock import SystemClock
from tidelog.io.executor import InlineExecutor
from tidelog.metadata.configs import BrokerSettings
from tidelog.server.quotas.client_quotas import ClientQuotas
from tidelog.server.quotas.peer_limits import PeerLimits
from tidelog.server.transport.closed import Closed
from tidelog.server.transport.connection_memory import ConnectionMemory
from tidelog.server.transport.connections import ConnectionLimits, Connections, Refused
from tidelog.server.transport.server_connection import OnClosed, ServerConnection

MANY = 1 << 31
PEERS = PeerLimits(BrokerSettings.of({}), SystemClock())


def limits(
    *, all_max: int = MANY, per_ip: int = MANY, overrides: Mapping[str, int] | None = None, files: int | None = None
) -> ConnectionLimits:
    return ConnectionLimits(all_max, per_ip, overrides or {}, files)


def connections_of(**of: Any) -> Connections:
    return Connections(limits(**of), ClientQuotas(lambda: 0), PEERS)


class Door:
    """What `max.connections` holds up."""

    def __init__(self) -> None:
        self.is_open = True

    def pause(self) -> None:
        self.is_open = False

    def resume(self) -> None:
        self.is_open = True


class Guest:
    """Comes, and leaves."""

    def __init__(
        self,
        connections: Connections,
        ip: str = "10.0.0.1",
        *,
        descriptor: int = 50,
        is_counted: bool = True,
        is_rated: bool = False,
    ):
        self.tell: OnClosed | None = None

        def make(on_closed: OnClosed) -> ServerConnection:
            self.tell = on_closed
            return ServerConnection(
                lambda *_: None,
                listener_name="L",
                frame_size_bytes_max=1,
                connections={},
                executor=InlineExecutor(),
                memory=ConnectionMemory(1, 1, SystemClock()),
            )

        self.is_in = connections.admit(make, is_counted, ip, descriptor, is_rated=is_rated) is not None

    def leave(self, why: Closed = Closed.BY_PEER) -> None:
        assert self.tell is not None
        self.tell(why, None)


def test_at_the_limit_the_door_is_shut_until_one_leaves() -> None:
    connections, door = connections_of(all_max=2), Door()
    connections.hold_up(door)
    first = Guest(connections)
    assert door.is_open
    second = Guest(connections)
    assert second.is_in
    assert not door.is_open
    first.leave()
    assert door.is_open
    assert (connections.accepted, connections.closed[Closed.BY_PEER]) == (2, 1)


def test_controllers_are_not_counted() -> None:
    connections, door = connections_of(all_max=1, per_ip=1), Door()
    connections.hold_up(door)
    controllers = [Guest(connections, is_counted=False) for _ in range(5)]
    assert all(one.is_in for one in controllers)
    assert door.is_open
    for one in controllers:
        one.leave()
    Guest(connections)
    assert not door.is_open


def test_each_address_has_its_own_limit_and_some_have_another() -> None:
    connections = connections_of(per_ip=2, overrides={"10.0.0.9": 0, "::1": 3})
    assert [Guest(connections, "10.0.0.1").is_in for _ in range(3)] == [True, True, False]
    assert [Guest(connections, "10.0.0.2").is_in for _ in range(3)] == [True, True, False]
    assert [Guest(connections, "::1").is_in for _ in range(4)] == [True, True, True, False]
    assert not Guest(connections, "10.0.0.9").is_in
    assert connections.refused == {Refused.PER_IP: 4}


def test_whoever_left_makes_room_at_its_address() -> None:
    connections = connections_of(per_ip=1)
    for _ in range(5):
        guest = Guest(connections)
        assert guest.is_in
        assert not Guest(connections).is_in
        guest.leave()
    assert not connections._by_ip


def test_an_address_connects_at_its_rate_and_nodes_as_they_like() -> None:
    quotas = ClientQuotas(lambda: 1_000)
    quotas.set_quotas({(("ip", "10.0.0.1"),): {"connection_creation_rate": 0.2}})
    connections = Connections(limits(), quotas, PEERS)
    assert [Guest(connections, is_rated=True).is_in for _ in range(3)] == [True, True, False]
    assert Guest(connections, is_rated=False).is_in
    assert Guest(connections, "10.0.0.2", is_rated=True).is_in
    assert connections.refused == {Refused.RATE: 1}


def test_files_are_kept_for_the_logs() -> None:
    connections = connections_of(files=1_000)
    assert connections.limits.files_in_reserve == 100
    assert Guest(connections, descriptor=899).is_in
    assert not Guest(connections, descriptor=900).is_in
    assert connections.refused == {Refused.FILES: 1}


@pytest.mark.parametrize(("files", "reserve"), [(None, 0), (100, 64), (5_000, 500), (1_000_000, 1_000)])
def test_how_many_files_are_kept(files: int | None, reserve: int) -> None:
    assert limits(files=files).files_in_reserve == reserve


def test_too_few_files_are_told_with_numbers_and_what_to_do() -> None:
    said = limits(files=4_096).shortage(300)
    assert said is not None
    assert "the file limit is 4096: 300 files are open, 409 are kept" in said
    assert "leaves 3387 for connections, fewer than 10000" in said
    assert "to 11300 or more" in said
    assert "max.connections=3387" in said
    assert limits(files=4_096, all_max=3_387).shortage(300) is None
    assert limits(files=20_000).shortage(300) is None
    assert limits().shortage(10**9) is None


def test_the_lines_of_the_log_are_few(caplog: pytest.LogCaptureFixture) -> None:
    connections = connections_of(per_ip=0)
    for _ in range(1_000):
        Guest(connections)
        connections.on_trouble(OSError(24, "Too many open files"))
    assert len(caplog.records) == 2
    assert connections.refused == {Refused.PER_IP: 1_000}
