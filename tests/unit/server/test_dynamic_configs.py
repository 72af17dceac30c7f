"""Settings that do not count are not passed over in silence."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest

from tidelog.metadata import ConfigResource, MetadataImage, ResourceType
from tidelog.metadata.configs import BrokerSettings
from tidelog.metadata.listeners import Listener
from tidelog.server.dynamic_configs import DynamicConfigs, listeners_beside

ALL_BROKERS = ConfigResource(ResourceType.BROKER, "")


@pytest.mark.parametrize(
    ("of_file", "of_metadata", "tells"),
    [(None, "2", False), ("2", "2", False), ("1", None, False), ("2", "3", True), ("2", None, True)],
)
def test_who_set_how_many_must_be_in_sync_where_it_does_not_count_is_told(
    of_file: str | None, of_metadata: str | None, tells: bool, caplog: pytest.LogCaptureFixture
) -> None:
    nothing = cast(Any, None)
    configs = DynamicConfigs(
        {} if of_file is None else {"min.insync.replicas": of_file}, nothing, nothing, nothing, nothing
    )
    in_metadata = {} if of_metadata is None else {ALL_BROKERS: {"min.insync.replicas": of_metadata}}
    with caplog.at_level(logging.WARNING):
        configs.tell_what_does_not_count(MetadataImage(configs=in_metadata))
    assert ("in this node's file does not count" in caplog.text) == tells


def test_listeners_beside_those_of_the_file(caplog: pytest.LogCaptureFixture) -> None:
    file = {
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    assert listeners_beside(BrokerSettings.of(file)) == []
    changed = {"listeners": "PLAINTEXT://:9999, INSIDE://h:1, OUTSIDE://h:2"}
    assert listeners_beside(BrokerSettings(file, changed, {})) == [Listener("INSIDE", "h", 1)]
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]
    assert "PLAINTEXT stays at :9092" in caplog.text
    assert "listener OUTSIDE speaks OUTSIDE" in caplog.text
    changed["listener.security.protocol.map"] = "OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT"
    assert [one.name for one in listeners_beside(BrokerSettings(file, changed, {}))] == ["INSIDE", "OUTSIDE"]


def test_what_does_nothing_is_told_of_once_and_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    nothing = cast(Any, None)
    file = {"num.io.threads": "9", "num.network.threads": "3", "socket.send.buffer.bytes": "5", "num.partitions": "2"}
    configs = DynamicConfigs(file, nothing, nothing, nothing, nothing)
    with caplog.at_level(logging.WARNING):
        configs.tell_what_does_nothing()
        configs.tell_what_does_nothing()
    (line,) = caplog.messages
    assert "num.io.threads, num.network.threads (a node is one process with one event loop" in line
    assert "socket.send.buffer.bytes (the buffers" in line
    assert "num.partitions" not in line
