"""What `/metrics` shows: every metric with its name, its labels and where it comes from, gathered when somebody asks.

docs/observability.md says what each means; a test holds the two together. How many samples there can be is bounded:
APIs and versions by what is served, error codes by their table, topics by `metrics.topics.max`; metrics of single
partitions are there only with `metrics.partitions.enable`.

Kafka: `JmxReporter`.
"""

from __future__ import annotations

import asyncio
import platform
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.samples import Sample

from tidelog.base.errors import Code
from tidelog.base.version import __version__
from tidelog.records import KERNEL_IS_COMPILED
from tidelog.server.observe.coordinator_metrics import about_groups, about_lags, about_share_groups, about_transactions
from tidelog.server.observe.damage_metrics import about_damages
from tidelog.server.observe.limit_metrics import about_limits, about_quotas
from tidelog.server.observe.metric_families import counter, counters, gauge, gauges
from tidelog.server.quorum.living_voters import known_voters
from tidelog.server.settings.metrics import BUCKET_SHIFT, NodeMetrics, RequestTimes
from tidelog.server.transport.closed import Closed
from tidelog.server.transport.connections import Refused
from tidelog.server.transport.turns import in_turns

if TYPE_CHECKING:
    from tidelog.base.ids import BrokerId
    from tidelog.metadata import MetadataImage
    from tidelog.replica import LeaderReplica
    from tidelog.server.observe.observed_node import ObservedNode
    from tidelog.server.replication.partition import Partition

SHOWN_BUCKETS = 21
"""Up to 69 seconds; longer is +Inf."""
_BOUNDS = [repr((1 << BUCKET_SHIFT + index) / 1e9) for index in range(SHOWN_BUCKETS)]

_process = ProcessCollector(registry=None)


class _Families:
    """Collected families, for the library to write down.

    Args:
        by_partition: those of them with a row for each partition, which are in no order yet.
    """

    def __init__(self, families: list[Metric], by_partition: list[Metric]) -> None:
        self._families = families
        self._by_partition = by_partition

    def sort(self) -> None:
        """Put the partitions in their order, which takes long where there are many."""
        for family in self._by_partition:
            family.samples.sort(key=_partition_of)

    def collect(self) -> Iterable[Metric]:
        return self._families


def _partition_of(sample: Sample) -> tuple[str, int]:
    return sample.labels["topic"], int(sample.labels["partition"])


async def collect(node: ObservedNode, room: Mapping[str, tuple[int, int]]) -> _Families:
    """Everything about a node, in turns: what is counted of each partition is so at about this moment.

    Args:
        room: (total, usable) bytes where each log directory lies, as far as the disks have said.
    """
    metrics = node.metrics
    assert metrics is not None
    families = [
        *_about_node(node),
        *_about_requests(metrics),
        *_about_connections(node),
        *[family async for family in _about_topics(node, metrics)],
        *[family async for family in _about_partitions(node)],
        *about_damages(node),
        *_about_metadata(node),
        *_about_quorum(node),
        *about_groups(node),
        *about_lags(node),
        *about_share_groups(node),
        *[family async for family in about_transactions(node)],
        *about_limits(node),
        *about_quotas(node),
        *_about_disks(node, metrics, room),
        *_about_machine(metrics),
    ]
    by_partition: list[Metric] = []
    if node.config.metrics_partitions_enable:
        by_partition = [family async for family in _about_each_partition(node)]
    return _Families(families + by_partition, by_partition)


def write_down(families: _Families, accepted: str) -> tuple[int, str, bytes]:
    """The page: status, content type, body. To be called on another thread.

    Args:
        accepted: the request's Accept header.
    """
    families.sort()
    encode, content_type = choose_encoder(accepted)
    return 200, content_type, encode(families)


def _add_histogram(family: HistogramMetricFamily, labels: Sequence[str], counts: list[int], sum_ns: int) -> None:
    """Buckets are told by how much lies in or below each."""
    below, buckets = 0, []
    for bound, count in zip(_BOUNDS, counts, strict=False):
        below += count
        buckets.append((bound, float(below)))
    buckets.append(("+Inf", float(sum(counts))))
    family.add_metric(labels, buckets=buckets, sum_value=sum_ns / 1e9)


def _added(rows: Iterable[list[int]]) -> list[int]:
    return [sum(column) for column in zip(*rows, strict=True)]


# The node.


def _about_node(node: ObservedNode) -> Iterator[Metric]:
    build = GaugeMetricFamily("tidelog_build_info", "What runs.", labels=["version", "python", "kernel", "loop"])
    kernel = "compiled" if KERNEL_IS_COMPILED else "interpreted"
    loop = type(asyncio.get_running_loop()).__module__.partition(".")[0]
    build.add_metric([__version__, platform.python_version(), kernel, loop], 1)
    yield build
    yield gauge("tidelog_node_ready", "Whether the node serves, as /ready says.", node.not_ready is None)


# Requests.


def _about_requests(metrics: NodeMetrics) -> Iterator[Metric]:
    by_version = CounterMetricFamily("tidelog_requests", "Requests handled.", labels=["api", "version"])
    unanswered = CounterMetricFamily(
        "tidelog_requests_unanswered", "Requests for which the protocol has no answer.", labels=["api"]
    )
    errors = CounterMetricFamily(
        "tidelog_request_errors", "Error codes in answers, one for each row that has one.", labels=["api", "error"]
    )
    durations = HistogramMetricFamily(
        "tidelog_request_duration_seconds", "How long requests took, by phase.", labels=["api", "phase"]
    )
    for known, versions in metrics.requests.by_api.values():
        codes: defaultdict[int, int] = defaultdict(int)
        for version, times in sorted(versions.items()):
            by_version.add_metric([known.name, str(version)], times.count)
            for code, count in times.errors.items():
                codes[code] += count
        all_times = list(versions.values())
        unanswered.add_metric([known.name], sum(times.unanswered for times in all_times))
        for code, count in sorted(codes.items()):
            errors.add_metric([known.name, _code_name(code)], count)
        _add_durations(durations, known.name, all_times)
    yield by_version
    yield unanswered
    yield errors
    yield durations
    names = {key: known.name for key, (known, _) in metrics.requests.by_api.items()}
    yield gauges(
        "tidelog_requests_waiting",
        "Requests that wait for their answer: fetches for records, joins for members.",
        "api",
        ((names.get(key, key.name), count) for key, count in metrics.requests.waiting.items()),
    )


def _add_durations(family: HistogramMetricFamily, api: str, times: list[RequestTimes]) -> None:
    quick = sum(each.quick for each in times)
    for phase, counts, sum_ns in (
        ("queue", _added(each.queue for each in times), sum(each.queue_ns for each in times)),
        ("handle", _added(each.handle for each in times), sum(each.handle_ns for each in times)),
        ("total", _added(each.total for each in times), sum(each.total_ns for each in times)),
    ):
        counts[0] += quick
        _add_histogram(family, [api, phase], counts, sum_ns)
    waits = [each.wait for each in times]
    if any(any(wait.counts) for wait in waits):
        _add_histogram(family, [api, "wait"], _added(wait.counts for wait in waits), sum(wait.sum_ns for wait in waits))


def _code_name(code: int) -> str:
    try:
        return Code(code).name
    except ValueError:
        return str(code)


# Connections.


def _about_connections(node: ObservedNode) -> Iterator[Metric]:
    connections = node.connections
    by_listener = dict.fromkeys((*node.listeners.names, *(each.listener_name for each in connections.open)), 0)
    for each in connections.open:
        by_listener[each.listener_name] += 1
    yield gauges("tidelog_connections_open", "Open connections.", "listener", by_listener.items())
    yield CounterMetricFamily(
        "tidelog_connections_accepted", "Connections that were accepted.", value=connections.accepted
    )
    yield counters(
        "tidelog_connections_closed",
        "Connections that came to their end.",
        ["reason"],
        (([why.value], connections.closed[why]) for why in Closed),
    )
    yield counters(
        "tidelog_connections_refused",
        "Connections that were closed at once, for a limit.",
        ["reason"],
        (([why.value], connections.refused[why]) for why in Refused),
    )
    limits = connections.limits
    yield gauge("tidelog_connections_max", "The limit of connections of clients.", limits.connections_max)
    yield gauge("tidelog_files_reserved", "Files that no connection may take.", limits.files_in_reserve)
    sessions = node.fetch_sessions
    yield gauge("tidelog_fetch_sessions", "Fetch sessions that are kept.", len(sessions))
    yield gauge("tidelog_fetch_session_partitions", "Partitions that they follow.", sessions.partition_count)
    memory = node.listeners.memory
    used = GaugeMetricFamily(
        "tidelog_connection_memory_bytes",
        "Memory of requests that have come in part, and of answers that were not taken.",
        labels=["connections", "what"],
    )
    limit = GaugeMetricFamily(
        "tidelog_connection_memory_limit_bytes",
        "The most that all connections of a kind may take.",
        labels=["connections", "what"],
    )
    for connections_of, one in memory.items():
        for what, share in one.shares.items():
            used.add_metric([connections_of, what], share.used_bytes)
            limit.add_metric([connections_of, what], share.limit_bytes)
    yield from (used, limit)
    yield gauges(
        "tidelog_connections_waiting_for_memory",
        "Connections that are not read for want of memory.",
        "connections",
        ((of, one.requests.waiting_count) for of, one in memory.items()),
    )


# Topics.


async def _about_topics(node: ObservedNode, metrics: NodeMetrics) -> AsyncIterator[Metric]:
    metrics.topics.keep(node.image.topics_by_name)
    columns: list[defaultdict[str, float]] = [defaultdict(float) for _ in range(5)]
    produced_bytes, produced_batches, appended, deleted, sizes = columns
    async for partition in in_turns(node.broker.partitions):
        label = metrics.topics.label(partition.topic_partition.topic)
        log = partition.log
        produced_bytes[label] += partition.produced_bytes
        produced_batches[label] += partition.produced_batches
        appended[label] += max(log.log_end_offset - partition.opened_end_offset, 0)
        deleted[label] += max(log.log_start_offset - partition.opened_start_offset, 0)
        sizes[label] += log.segments.size_bytes
    image = node.image  # of now: who is not in it has no topic any more
    for name, doc, column in (
        ("tidelog_topic_produced_bytes", "Bytes of batches that producers had appended.", produced_bytes),
        ("tidelog_topic_produced_batches", "Batches that producers had appended.", produced_batches),
        ("tidelog_topic_appended_records", "Offsets that were taken by records.", appended),
        ("tidelog_topic_deleted_records", "Offsets by which log starts moved (retention, DeleteRecords).", deleted),
    ):
        yield counters(name, doc, ["topic"], (([label], value) for label, value in sorted(column.items())))
    yield counters(
        "tidelog_topic_fetched_bytes",
        "Bytes of batches in answers to fetches.",
        ["topic", "reader"],
        (
            ([label, reader], value)
            for reader, by_topic in metrics.requests.fetched.by_reader.items()
            for label, value in sorted(_by_label(by_topic, image, metrics, sizes).items())
        ),
    )
    yield gauges("tidelog_topic_log_size_bytes", "Bytes in the logs of a topic.", "topic", sorted(sizes.items()))
    yield gauge("tidelog_topics", "Topics in the cluster.", len(image.topics_by_name))


def _by_label(
    by_topic: dict[Any, int], image: MetadataImage, metrics: NodeMetrics, labels: Iterable[str]
) -> dict[str, float]:
    """What was counted, 0 for `labels` of which nothing was; what topics that are gone had is forgotten."""
    found = dict.fromkeys(labels, 0.0)
    for key, size_bytes in list(by_topic.items()):
        topic = image.topics_by_name.get(key) if isinstance(key, str) else image.topics_by_id.get(key)
        if topic is None:
            del by_topic[key]
        else:
            label = metrics.topics.label(topic.name)
            found[label] = found.get(label, 0) + size_bytes
    return found


# Partitions.


async def _about_partitions(node: ObservedNode) -> AsyncIterator[Metric]:
    led = under_replicated = under_min_isr = at_min_isr = cut_off = moving = left_bytes = lag_max = 0
    partitions = node.broker.partitions
    async for partition in in_turns(partitions):
        replica = partition.replica
        if replica is None:
            continue
        led += 1
        name = partition.topic_partition
        state = node.image.partition(name.topic, name.partition)
        if state is not None:
            under_replicated += not replica.isr.issuperset({*state.replicas} - {*state.adding_replicas})
            moving += bool(state.adding_replicas or state.removing_replicas)
            left_bytes += sum(_bytes_left(partition, replica, broker) for broker in state.adding_replicas)
        in_sync, needed = len(replica.isr), replica.in_sync.size_min
        under_min_isr += in_sync < needed
        at_min_isr += in_sync == needed
        cut_off += replica.silence.is_cut_off
        lag_max = max(lag_max, replica.followers.lag_max(replica.log_end_offset))
    leaderless = unpreferred = 0
    async for topic in in_turns(node.image.topics_by_id.values()):
        for state in topic.partitions:
            leaderless += state.leader is None
            unpreferred += state.leader not in (None, state.replicas[0])
    replication = node.broker.replication
    yield gauge("tidelog_partitions", "Replicas that are online here.", len(partitions))
    yield gauge("tidelog_partitions_led", "Partitions that this node leads.", led)
    yield gauge("tidelog_partitions_offline", "Replicas whose logs failed.", len(node.broker.offline_partitions))
    yield gauge("tidelog_partitions_under_replicated", "Led, with replicas that are not in sync.", under_replicated)
    yield gauge("tidelog_partitions_under_min_isr", "Led, and refusing acks=all for want of replicas.", under_min_isr)
    yield gauge("tidelog_partitions_at_min_isr", "Led, and refusing acks=all if one more leaves.", at_min_isr)
    yield gauge("tidelog_partitions_cut_off", "Led, and refusing acks=all while too few followers fetch.", cut_off)
    yield gauge("tidelog_partitions_leaderless", "Partitions of the cluster that nobody leads.", leaderless)
    yield gauge("tidelog_partitions_unpreferred", "Partitions that their first replica does not lead.", unpreferred)
    yield gauge("tidelog_partitions_reassigning", "Led, and on their way to other brokers.", moving)
    yield gauge("tidelog_reassignment_bytes_left", "What reassignments have to copy from here.", left_bytes)
    yield gauge(
        "tidelog_log_move_bytes_left", "What moves between directories have to copy.", node.broker.moves.bytes_left
    )
    yield gauge("tidelog_replica_lag_records_max", "What the slowest follower of a partition led here lacks.", lag_max)
    shrinks, expands = replication.isr_shrinks, replication.isr_expands
    yield counter("tidelog_isr_shrinks", "Times the in-sync replicas of a partition led here became fewer.", shrinks)
    yield counter("tidelog_isr_expands", "Times they became more.", expands)
    truncated = replication.truncated
    yield counters(
        "tidelog_truncated_records",
        "Records that replicas here removed because the leader does not have them.",
        ["committed"],
        (([text], count) for text, count in zip(("yes", "unknown", "no"), truncated, strict=True)),
    )


def _bytes_left(partition: Partition, replica: LeaderReplica, broker: BrokerId) -> int:
    """About how much a replica that is being added lacks until it is in sync."""
    if broker in replica.isr:
        return 0
    progress = replica.followers.progress.get(broker)
    end_offset = None if progress is None else progress.end_offset
    return partition.log.segments.size_bytes_from(partition.log.log_start_offset if end_offset is None else end_offset)


async def _about_each_partition(node: ObservedNode) -> AsyncIterator[Metric]:
    def rows(name: str, doc: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(name, doc, labels=["topic", "partition"])

    size = rows("tidelog_partition_log_size_bytes", "Bytes in the log.")
    segments = rows("tidelog_partition_segments", "Segments of the log.")
    start = rows("tidelog_partition_log_start_offset", "The first offset.")
    end = rows("tidelog_partition_log_end_offset", "The offset after the last.")
    high_watermark = rows("tidelog_partition_high_watermark", "The offset after the last committed one.")
    last_stable = rows("tidelog_partition_last_stable_offset", "Where readers of committed transactions stop.")
    isr = rows("tidelog_partition_isr", "Replicas in sync, where this node leads.")

    async for partition in in_turns(node.broker.partitions):
        labels = [partition.topic_partition.topic, str(partition.topic_partition.partition)]
        log = partition.log
        size.add_metric(labels, log.segments.size_bytes)
        segments.add_metric(labels, len(log.segments.base_offsets))
        start.add_metric(labels, log.log_start_offset)
        end.add_metric(labels, log.log_end_offset)
        high_watermark.add_metric(labels, partition.high_watermark)
        if partition.replica is not None:
            isr.add_metric(labels, len(partition.replica.isr))
            last_stable.add_metric(labels, partition.last_stable_offset)
    for family in (size, segments, start, end, high_watermark, last_stable, isr):
        yield family


# The cluster's metadata.


def _about_metadata(node: ObservedNode) -> Iterator[Metric]:
    last_offset = node.image.last_offset
    applied_end = 0 if last_offset is None else last_offset + 1
    yield gauge("tidelog_metadata_applied_offset", "The offset after the last metadata applied here.", applied_end)
    controller = node.active_controller
    epoch = None if controller is None else controller.leader_epoch
    committed_end = applied_end if controller is None else controller.journal.committed_end_offset
    yield gauge(
        "tidelog_metadata_lag_records", "Metadata committed and not yet applied here.", committed_end - applied_end
    )
    yield gauge("tidelog_controller_active", "Whether this node's controller leads the cluster.", epoch is not None)
    yield gauge("tidelog_controller_epoch", "The leader epoch of the metadata log.", -1 if epoch is None else epoch)
    yield counter(
        "tidelog_unclean_leader_elections",
        "Elections of leaders that may lack committed records, by this controller while it was active.",
        node.unclean_elections,
    )
    yield from _about_losses(node.image)
    yield gauge("tidelog_brokers", "Brokers in the metadata that are not fenced.", _active_brokers(node))


def _about_losses(image: MetadataImage) -> Iterator[Metric]:
    """The account of losses, as this node's metadata has it."""
    is_open = image.open_loss_count
    losses = GaugeMetricFamily(
        "tidelog_losses", "Entries of the account of losses: open while a replica is awaited.", labels=["state"]
    )
    losses.add_metric(["open"], is_open)
    losses.add_metric(["closed"], len(image.losses) - is_open)
    yield losses
    yield gauge(
        "tidelog_losses_unacknowledged",
        "Entries of the account of losses that no operator has acknowledged.",
        image.unacknowledged_loss_count,
    )


def _about_quorum(node: ObservedNode) -> Iterator[Metric]:
    """What this node does not know has no sample."""
    voters = GaugeMetricFamily("tidelog_quorum_voters", "Voters of the metadata quorum.")
    living = GaugeMetricFamily("tidelog_quorum_voters_living", "Voters that fetch from this leader, or answer.")
    lag = GaugeMetricFamily("tidelog_quorum_voter_lag_records", "Metadata that a voter lacks.", labels=["voter"])
    quorum = None if node.member is None else node.member.quorum
    if quorum is not None:
        ids, alive = known_voters(quorum), quorum.living_voters
        if ids is not None:
            voters.add_metric([], len(ids))
        if alive is not None:
            living.add_metric([], len(alive))
        described = quorum.describe().voters
        ends = {one.key.node_id: one.log_end_offset for one in described if one.log_end_offset is not None}
        for voter, end_offset in ends.items():
            lag.add_metric([str(voter)], max(ends.get(quorum.node_id, end_offset) - end_offset, 0))
    yield from (voters, living, lag)


def _active_brokers(node: ObservedNode) -> int:
    return sum(not broker.is_fenced for broker in node.image.brokers.values())


# Groups.


def _about_disks(node: ObservedNode, metrics: NodeMetrics, room: Mapping[str, tuple[int, int]]) -> Iterator[Metric]:
    files = node.files
    online = [(held.path, float(held.failure is None)) for held in files.directories]
    yield gauges(
        "tidelog_log_directory_online",
        "Whether a log directory is in use.",
        "directory",
        [*online, *((path, 0.0) for path in files.left_out)],
    )
    total = {path: float(sizes[0]) for path, sizes in room.items()}
    usable = {path: float(sizes[1]) for path, sizes in room.items()}
    yield gauges("tidelog_log_directory_total_bytes", "Where a log directory lies.", "directory", total.items())
    yield gauges("tidelog_log_directory_usable_bytes", "Of these, what is free.", "directory", usable.items())
    syncs = HistogramMetricFamily("tidelog_disk_sync_duration_seconds", "How long the disk took to sync a file.")
    _add_histogram(syncs, [], metrics.disk.syncs.counts, metrics.disk.syncs.sum_ns)
    yield syncs


# The machine.


def _about_machine(metrics: NodeMetrics) -> Iterator[Metric]:
    lag = HistogramMetricFamily("tidelog_event_loop_lag_seconds", "How late the event loop came to what was due.")
    _add_histogram(lag, [], metrics.loop_lag.counts, metrics.loop_lag.sum_ns)
    yield lag
    yield from _process.collect()
