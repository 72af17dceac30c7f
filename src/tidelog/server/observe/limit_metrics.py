"""What `/metrics` shows of limits: how much of each is used, how much there may be, how often it was met.

A row for each setting, whatever it limits: docs/limits.md says what happens at it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from tidelog.metadata.configs import broker as keys
from tidelog.metadata.configs import coordinators as coordinator_keys
from tidelog.metadata.configs import limits
from tidelog.metadata.configs.share_coordinators import SHARE_COORDINATOR_MEMORY_BYTES
from tidelog.metadata.configs.share_groups import GROUP_SHARE_MAX_SHARE_SESSIONS
from tidelog.server.observe.metric_families import counters, gauges
from tidelog.server.transport.connections import Refused

if TYPE_CHECKING:
    from tidelog.server.observe.observed_node import ObservedNode


class Limit(NamedTuple):
    """One limit, now.

    Attributes:
        used: in the unit of the setting; None for a budget of each peer, which nobody adds up.
        refused: how often it was met since the process began; None where `tidelog_request_errors` alone tells.
    """

    setting: str
    used: float | None
    most: float
    refused: int | None


def about_limits(node: ObservedNode) -> Iterator[Metric]:
    used = GaugeMetricFamily("tidelog_limit_used", "How much of a limit is used.", labels=["setting"])
    most = GaugeMetricFamily("tidelog_limit_max", "The limit.", labels=["setting"])
    refused = CounterMetricFamily("tidelog_limit_refusals", "How often a limit was met.", labels=["setting"])
    for one in _limits(node):
        most.add_metric([one.setting], one.most)
        if one.used is not None:
            used.add_metric([one.setting], one.used)
        if one.refused is not None:
            refused.add_metric([one.setting], one.refused)
    yield from (used, most, refused)
    peers = node.connections.peers
    yield gauges(
        "tidelog_limit_peers",
        "Peers that are remembered, because they used some of what each may.",
        "setting",
        (
            (limits.MAX_FAILED_AUTHENTICATIONS_PER_IP.name, len(peers.failed_logins.budgets)),
            (limits.MAX_AUTO_CREATED_TOPICS_PER_IP.name, len(peers.auto_created_topics)),
        ),
    )


def about_quotas(node: ObservedNode) -> Iterator[Metric]:
    throttled = node.connections.quotas.throttled
    yield counters(
        "tidelog_quota_throttled_requests",
        "Requests whose sender was held back by a quota.",
        ["quota"],
        (([key], one.count) for key, one in throttled.items()),
    )
    yield counters(
        "tidelog_quota_throttle_seconds",
        "For how long, as they were told.",
        ["quota"],
        (([key], one.sum_ms / 1_000) for key, one in throttled.items()),
    )
    yield gauges(
        "tidelog_quota_entities",
        "Users and client ids whose use of a quota is remembered.",
        "quota",
        node.connections.quotas.entity_counts().items(),
    )


def _limits(node: ObservedNode) -> Iterator[Limit]:
    settings, image, connections = node.broker_settings, node.image, node.connections
    peers = connections.peers
    yield Limit(keys.MAX_CONNECTIONS.name, connections.counted, connections.limits.connections_max, None)
    yield Limit(
        keys.MAX_CONNECTIONS_PER_IP.name,
        connections.of_one_ip_max,
        connections.limits.per_ip_max,
        connections.refused[Refused.PER_IP],
    )
    logins, topics = peers.failed_logins.budgets, peers.auto_created_topics
    yield Limit(limits.MAX_FAILED_AUTHENTICATIONS_PER_IP.name, None, logins.count_max, logins.refused)
    yield Limit(limits.MAX_AUTO_CREATED_TOPICS_PER_IP.name, None, topics.count_max, topics.refused)
    producers = node.broker.producers
    yield Limit(limits.MAX_PRODUCER_IDS.name, producers.count, producers.count_max, producers.forgotten)
    clients, nodes = (node.listeners.memory[one] for one in ("clients", "nodes"))
    for setting, share in (
        (keys.QUEUED_MAX_REQUEST_BYTES, clients.requests),
        (keys.INTER_NODE_QUEUED_MAX_REQUEST_BYTES, nodes.requests),
        (keys.QUEUED_MAX_RESPONSE_BYTES, clients.answers),
    ):
        yield Limit(setting.name, share.used_bytes, share.limit_bytes, share.closed_count)
    sessions = node.fetch_sessions
    yield Limit(
        keys.MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS.name, len(sessions), sessions.slots, sessions.without_room
    )
    yield Limit(
        keys.MAX_INCREMENTAL_FETCH_SESSION_CACHE_PARTITIONS.name,
        sessions.partition_count,
        sessions.partitions_max,
        None,
    )
    shared = node.share_fetching.sessions
    yield Limit(GROUP_SHARE_MAX_SHARE_SESSIONS.name, len(shared), shared.count_max, shared.refused)
    for setting, memory in (
        (coordinator_keys.GROUP_COORDINATOR_MEMORY_BYTES, node.groups.memory),
        (coordinator_keys.GROUP_OFFSETS_MEMORY_BYTES, node.groups.offsets_memory),
        (coordinator_keys.TRANSACTION_COORDINATOR_MEMORY_BYTES, node.transactions.memory),
        (SHARE_COORDINATOR_MEMORY_BYTES, node.share_states.memory),
    ):
        yield Limit(setting.name, memory.used_bytes, memory.limit_bytes, memory.refused)
    for key, count in (
        (limits.MAX_PARTITIONS, sum(len(topic.partitions) for topic in image.topics_by_id.values())),
        (limits.MAX_CONFIGURED_RESOURCES, len(image.configs)),
        (limits.MAX_ACLS, len(image.acls)),
        (limits.MAX_CLIENT_QUOTAS, len(image.client_quotas)),
        (limits.MAX_SCRAM_CREDENTIALS, len(image.scram_credentials)),
        (limits.MAX_DELEGATION_TOKENS, len(image.delegation_tokens)),
    ):
        yield Limit(key.name, count, settings[key], None)
