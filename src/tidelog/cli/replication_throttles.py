"""Throttles for reassignments: which replicas are held back, and how fast brokers may send and fetch them (KIP-73)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tidelog.base.ids import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin
    from tidelog.client.admin.descriptions import ConfigEntry, ConfigResource
    from tidelog.client.core.replica_plan import Assignment

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"


def throttle(
    admin: Admin, current: Mapping[TopicPartition, tuple[int, ...]], targets: Assignment, bytes_per_second: int
) -> tuple[int, ...]:
    """Hold back what is about to move: to be done before it does.

    Returns:
        Brokers that take part and do not live, so that they cannot be told.
    """
    from tidelog.client.admin.descriptions import ConfigResource

    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    involved = set[int]()
    for partition, target in targets.items():
        held = current.get(partition, ())
        added = [broker for broker in target if broker not in held]
        if not added:
            continue
        leaders.setdefault(partition.topic, []).extend(f"{partition.partition}:{broker}" for broker in held)
        followers.setdefault(partition.topic, []).extend(f"{partition.partition}:{broker}" for broker in added)
        involved.update(held, added)
    live = _live(admin)
    changes: dict[ConfigResource, dict[str, str | None]] = {
        ConfigResource("topic", topic): {LEADERS: ",".join(leaders[topic]), FOLLOWERS: ",".join(followers[topic])}
        for topic in leaders
    }
    for broker in sorted(involved & live):
        changes[ConfigResource("broker", str(broker))] = dict.fromkeys(RATES, str(bytes_per_second))
    if changes:
        admin.alter_configs(changes)
    return tuple(sorted(involved - live))


def lift_throttles(admin: Admin, topics: Iterable[str]) -> list[str]:
    """Take away what `throttle` set, of some topics and then of all brokers that live. Returns whose there was.

    A topic all of whose replicas are throttled (`*`) is so by somebody else's will, and keeps that.
    """
    from tidelog.client.admin.descriptions import ConfigResource

    changes: dict[ConfigResource, dict[str, str | None]] = {}
    for resource, entries in admin.describe_configs([ConfigResource("topic", name) for name in topics]).items():
        own = [name for name in (LEADERS, FOLLOWERS) if _is_set(entries, name, "topic") and entries[name].value != "*"]
        if own:
            changes[resource] = dict.fromkeys(own)
    if not changes:
        return []
    brokers = [ConfigResource("broker", str(broker)) for broker in sorted(_live(admin))]
    for resource, entries in admin.describe_configs(brokers).items():
        own = [name for name in RATES if _is_set(entries, name, "broker")]
        if own:
            changes[resource] = dict.fromkeys(own)
    admin.alter_configs(changes)
    return [f"{resource.type} {resource.name}" for resource in changes]


def _is_set(entries: Mapping[str, ConfigEntry], name: str, of: str) -> bool:
    return name in entries and entries[name].source == f"dynamic {of}"


def _live(admin: Admin) -> set[int]:
    return {each.broker_id for each in admin.describe_cluster().brokers}
