"""Stock clients, as they are: which version was tried, and which tests each is allowed to fail.

Each directory here is a client (`unclean_elections` has six). Its `ALLOW` lists tests that fail for a reason that lies
with the client: one a line, `test_name or test_name[parameters]`, then `:` and the reason. Such a test must fail: a
line that is not needed any more turns the run red. `FINDINGS.md` says what was learnt about the client.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.clients.kafka_peer import TOOL_FLAGS, KafkaPeer, missing_peers
from support.nodes.node import NodeProcess, StartNode

HERE = Path(__file__).parent


def allowed(client: Path) -> dict[str, str]:
    """Test names to reasons, from a client's ALLOW file."""
    found = {}
    for line in (client / "ALLOW").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, separator, reason = line.partition(":")
            if not separator or not reason.strip():
                raise pytest.UsageError(f"{client / 'ALLOW'}: {line!r}: `test: reason` is expected")
            found[name.strip()] = reason.strip()
    return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    lists: dict[Path, dict[str, str]] = {}
    for item in items:
        client = item.path.parent
        if client.parent == HERE:
            if client not in lists:
                lists[client] = allowed(client)
            reason = lists[client].get(item.name) or lists[client].get(item.name.partition("[")[0])
            if reason is not None:
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name of the test's own; nothing creates it."""
    module = request.node.path.stem.removeprefix("test_")
    return re.sub(r"[^a-zA-Z0-9-]+", "-", f"{module}-{request.node.name}").strip("-")


@pytest.fixture(scope="session")
def needs_kafka() -> None:
    """Skips what asks for it where `make peers` was not run."""
    if (reason := missing_peers()) is not None:
        pytest.skip(reason)


@pytest.fixture(params=["Tidelog", pytest.param("Kafka", marks=pytest.mark.slow)])
def broker_to_kill(
    needs_kafka: None, request: pytest.FixtureRequest, start_node: StartNode, tmp_path: Path
) -> Iterator[NodeProcess | KafkaPeer]:
    """A broker of the test's own: a node, or Apache Kafka. Members of its groups may have sessions of a second."""
    config = {
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }
    broker: NodeProcess | KafkaPeer
    if request.param == "Tidelog":
        broker = start_node(config=config)
    else:
        broker = KafkaPeer(tmp_path / "kafka", config=config, flags=TOOL_FLAGS)
    try:
        if not broker.is_running:
            broker.start()
        yield broker
    finally:
        broker.close()
