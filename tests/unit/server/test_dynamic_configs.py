"""Settings that do not count are not passed over in silence."""

from __future__ import annotations

import logging

import pytest

from tidelog.base.ids import BrokerId, Offset
from tidelog.metadata import MetadataDelta, MetadataImage, ResourceKey, ResourceType
from tidelog.metadata.configs import BrokerSettings
from tidelog.metadata.configs.broker import MAX_CONNECTIONS
from tidelog.metadata.listeners import Listener
from tidelog.metadata.records import ConfigRecord
from tidelog.server.broker.dynamic_configs import DynamicConfigs
from tidelog.server.replication.replication_throttles import Limit, moves_limit
from tidelog.server.settings.in_force import SettingsInForce
from tidelog.server.transport.listeners import listeners_beside

ALL_BROKERS = ResourceKey(ResourceType.BROKER, "")


@pytest.mark.parametrize(
    ("of_file", "of_metadata", "tells"),
    [(None, "2", False), ("2", "2", False), ("1", None, False), ("2", "3", True), ("2", None, True)],
)
def test_who_set_how_many_must_be_in_sync_where_it_does_not_count_is_told(
    of_file: str | None, of_metadata: str | None, tells: bool, caplog: pytest.LogCaptureFixture
) -> None:
    configs = DynamicConfigs({} if of_file is None else {"min.insync.replicas": of_file}, BrokerId(1))
    in_metadata = {} if of_metadata is None else {ALL_BROKERS: {"min.insync.replicas": of_metadata}}
    with caplog.at_level(logging.WARNING):
        configs.log_what_does_not_count(MetadataImage(configs=in_metadata))
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
    assert "does not say what listener OUTSIDE speaks" in caplog.text
    changed["listener.security.protocol.map"] = "OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT"
    assert [one.name for one in listeners_beside(BrokerSettings(file, changed, {}))] == ["INSIDE", "OUTSIDE"]


def test_what_does_nothing_is_told_of_once_and_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    file = {"num.io.threads": "9", "num.network.threads": "3", "socket.send.buffer.bytes": "5", "num.partitions": "2"}
    configs = DynamicConfigs(file, BrokerId(1))
    with caplog.at_level(logging.WARNING):
        configs.log_what_does_nothing()
        configs.log_what_does_nothing()
    (line,) = caplog.messages
    assert "num.io.threads, num.network.threads (a node is one process with one event loop" in line
    assert "socket.send.buffer.bytes (the buffers" in line
    assert "num.partitions" not in line


def test_whoever_follows_is_told_of_what_is_in_force_and_of_each_change() -> None:
    told: list[tuple[int | None, int, str | None]] = []

    class Follower:
        def on_settings(self, old: SettingsInForce | None, new: SettingsInForce) -> None:
            before = None if old is None else old.broker[MAX_CONNECTIONS]
            told.append((before, new.broker[MAX_CONNECTIONS], new.topic_configs("flights").get("segment.ms")))

    image = MetadataImage.empty()
    configs = DynamicConfigs({"max.connections": "5"}, BrokerId(1))
    configs.follow(Follower())
    configs.on_image_changed(MetadataDelta(image), image)
    for resource, name, value in (
        (ALL_BROKERS, "max.connections", "6"),
        (ResourceKey(ResourceType.TOPIC, "flights"), "segment.ms", "7"),
    ):
        delta = MetadataDelta(image)
        delta.replay(ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value))
        image = delta.apply(Offset(0))
        configs.on_image_changed(delta, image)
    assert told == [(None, 5, None), (5, 6, None), (6, 6, "7")]
    assert configs.in_force.broker[MAX_CONNECTIONS] == 6


def test_a_rate_in_the_file_counts_from_the_start() -> None:
    limits: list[Limit] = []

    class Follower:
        def on_settings(self, old: SettingsInForce | None, new: SettingsInForce) -> None:
            limits.append(moves_limit(new.broker))

    DynamicConfigs({"replica.alter.log.dirs.io.max.bytes.per.second": "7"}, BrokerId(1)).follow(Follower())
    assert limits == [Limit(7)]
