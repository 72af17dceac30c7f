"""What `/metrics` shows of the coordinators: groups and how far they lag, share groups, transactions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily, Metric

from tidelog.coordinator.groups.consumer.group import ConsumerGroupState
from tidelog.coordinator.groups.group import GroupState
from tidelog.coordinator.transactions import TransactionState
from tidelog.server.groups.group_lags import MeasuredLags
from tidelog.server.observe.metric_families import counter, gauge, gauges
from tidelog.server.settings.metrics import OTHER_TOPICS
from tidelog.server.transport.turns import in_turns

if TYPE_CHECKING:
    from tidelog.server.observe.observed_node import ObservedNode

SHOWN_STATES = (
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
)
LATE_MS = 300_000
"""Beyond transaction.max.timeout.ms: then no coordinator ends a transaction any more, or its markers do not come."""


def about_groups(node: ObservedNode) -> Iterator[Metric]:
    serving = loading = members = offsets = consumer_members = 0
    states = {state.value: 0 for state in GroupState}
    consumer_states = {state.value: 0 for state in ConsumerGroupState}
    for one in node.groups.here:
        if one.refusal is not None:
            loading += 1
            continue
        serving += 1
        offsets += one.coordinator.offsets_count
        for group in one.coordinator.groups.values():
            states[group.state.value] += 1
            members += len(group.members)
        for consumer_group in one.coordinator.consumer_groups.groups.values():
            consumer_states[consumer_group.state.value] += 1
            consumer_members += len(consumer_group.subscriptions)
    yield gauges(
        "tidelog_group_coordinators",
        "Partitions of __consumer_offsets that this node leads.",
        "state",
        (("serving", serving), ("refusing", loading)),
    )
    yield gauges("tidelog_groups", "Classic groups that are coordinated here.", "state", states.items())
    yield gauge("tidelog_group_members", "Members of the classic groups that are coordinated here.", members)
    yield gauges(
        "tidelog_consumer_groups",
        "Groups of the consumer protocol that are coordinated here.",
        "state",
        consumer_states.items(),
    )
    yield gauge(
        "tidelog_consumer_group_members",
        "Members of the groups of the consumer protocol that are coordinated here.",
        consumer_members,
    )
    yield gauge("tidelog_group_offsets", "Committed offsets that are kept here.", offsets)
    yield gauge(
        "tidelog_group_memory_bytes",
        "About the memory of the groups that are coordinated here.",
        node.groups.memory_bytes,
    )


def about_lags(node: ObservedNode) -> Iterator[Metric]:
    """What is not known has no sample."""
    labels = ["group", "topic"]
    records = GaugeMetricFamily("tidelog_group_lag_records", "Records that a group has not read.", labels=labels)
    seconds = GaugeMetricFamily("tidelog_group_lag_seconds", "How old what it reads next is.", labels=labels)
    measured = MeasuredLags() if node.group_lags is None else node.group_lags.measured
    for pair, lag in measured.by_topic.items():
        if lag.records is not None:
            records.add_metric(pair, lag.records)
        if lag.seconds is not None:
            seconds.add_metric(pair, lag.seconds)
    if measured.others_count:
        records.add_metric([OTHER_TOPICS] * 2, measured.others_records)
        seconds.add_metric([OTHER_TOPICS] * 2, measured.others_seconds)
    yield from (records, seconds)
    yield gauge("tidelog_group_lags_left_out", "Pairs that have no lag of their own.", measured.others_count)
    yield gauges(
        "tidelog_group_lag_unknown_partitions",
        "Partitions that groups read, and whose lag is not known.",
        "what",
        (("records", measured.unknown_records), ("seconds", measured.unknown_seconds)),
    )


def about_share_groups(node: ObservedNode) -> Iterator[Metric]:
    fetching = node.share_fetching
    groups = [
        group
        for one in node.groups.here
        if one.refusal is None
        for group in one.coordinator.share_groups.groups.values()
    ]
    with_members = sum(bool(group.subscriptions) for group in groups)
    yield gauges(
        "tidelog_share_groups",
        "Share groups that are coordinated here.",
        "state",
        (("Stable", with_members), ("Empty", len(groups) - with_members)),
    )
    yield gauge(
        "tidelog_share_group_members",
        "Members of the share groups that are coordinated here.",
        sum(len(group.subscriptions) for group in groups),
    )
    yield gauge(
        "tidelog_share_partitions", "Partitions led here that a share group reads, group by group.", len(fetching)
    )
    yield gauge("tidelog_share_sessions", "Members of share groups that fetch from here.", len(fetching.sessions))
    yield counter(
        "tidelog_share_forgotten_records",
        "Delivered to share groups, and taken back by truncations.",
        fetching.forgotten_records,
    )


# Transactions.


async def about_transactions(node: ObservedNode) -> AsyncIterator[Metric]:
    serving = refusing = markers = 0
    states = dict.fromkeys(SHOWN_STATES, 0)
    for one in node.transactions.here:
        if one.refusal is not None:
            refusing += 1
            continue
        serving += 1
        markers += one.coordinator.markers_waiting
        for transaction in one.coordinator.transactions.values():
            states[transaction.state] += 1
    yield gauges(
        "tidelog_transaction_coordinators",
        "Partitions of __transaction_state that this node leads.",
        "state",
        (("serving", serving), ("refusing", refusing)),
    )
    yield gauges(
        "tidelog_transactions",
        "Transactional ids that are coordinated here.",
        "state",
        ((state.label, count) for state, count in states.items()),
    )
    yield gauge(
        "tidelog_transaction_memory_bytes",
        "About the memory of the transactional ids that are coordinated here.",
        node.transactions.memory_bytes,
    )
    yield gauge("tidelog_transaction_markers_waiting", "Markers that are not known to be written.", markers)
    facts = node.transactions.facts
    yield counter(
        "tidelog_transactions_timed_out",
        "Transactions that were aborted because they were open too long.",
        facts.timed_out,
    )
    yield counter(
        "tidelog_transactions_fenced", "Transactions that were aborted, and their producers fenced.", facts.fenced
    )
    yield counter(
        "tidelog_transactions_with_lost_records", "Transactions that an unclean election took records from.", facts.lost
    )
    unstable = late = 0
    oldest_ms = node.clock.wall_ms() - node.transactions.timeout_ms_max - LATE_MS
    async for partition in in_turns(node.broker.partitions):
        if partition.replica is not None:
            unstable += partition.last_stable_offset < partition.high_watermark
            started_ms = partition.log.producers.oldest_transaction_started_ms
            late += started_ms is not None and started_ms < oldest_ms
    yield gauge("tidelog_partitions_unstable", "Led, with records of transactions that are not decided.", unstable)
    yield gauge("tidelog_partitions_with_late_transactions", "Led, with a transaction that is open for too long.", late)


# Disks.
