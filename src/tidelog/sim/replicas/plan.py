"""What is drawn for a run before it begins: how large, how patient, how bad."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.log import LogConfig
from tidelog.sim.world.rng import SeededRng


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings of one run.

    Attributes:
        nodes: brokers.
        replication_factor: of each topic.
        topics: how many, of one partition each.
        min_insync_replicas: of each topic.
        log: of each replica's log.
        is_synced: whether every replica syncs what it appends before it says so: then no loss of power loses it.
        session_ms: a broker that is silent for so long is fenced.
        heartbeat_ms: how often brokers are heard.
        lag_ms_max: who has not caught up for so long leaves the ISR.
        fetch_wait_ms: for so long a fetch waits for records.
        fetch_size_bytes: what followers ask for at once; with little, a replica is behind for long.
        checkpoint_ms: how often high watermarks and recovery points are written, and what is due is synced.
        metadata_ms_max: the longest that a broker takes to apply the next batch of metadata.
        allows_unclean: whether the operator lets anybody lead where nobody else may, in the midst of a run.
        unclean_after_ms: for so long there must be no leader before.
        power_losses_max: of how many replicas the power may be lost at a time; with more, the promise ends.
        producers: how many, with what acks.
        produce_ms: between two batches of one producer, at most.
        consumers: how many.
        reads_followers: whether consumers ask followers too.
        answers_tell_state: whether the answer to AlterPartition carries the new state.
    """

    nodes: int
    replication_factor: int
    topics: int
    min_insync_replicas: int
    log: LogConfig
    is_synced: bool
    session_ms: int
    heartbeat_ms: int
    lag_ms_max: int
    fetch_wait_ms: int
    fetch_size_bytes: int
    checkpoint_ms: int
    metadata_ms_max: int
    allows_unclean: bool
    unclean_after_ms: int
    power_losses_max: int
    producers: tuple[int, ...]
    produce_ms: int
    consumers: int
    reads_followers: bool
    answers_tell_state: bool


def draw_plan(rng: SeededRng, nodes: int) -> Plan:
    """What one run goes by."""

    def one_of(*choices: int) -> int:
        return choices[rng.randrange(0, len(choices))]

    factor = min(nodes, one_of(2, 3, 3, 3, 3))
    minimum = one_of(1, 2, 2, 2, factor)
    minimum = min(minimum, factor)
    is_synced = rng.random() < 0.2
    session_ms = one_of(600, 1_500, 3_000)
    log = LogConfig(
        segment_size_bytes=one_of(700, 2_000, 1 << 20),
        index_interval_bytes=one_of(0, 200, 4_096),
        flush_messages=1 if is_synced else (None, 1, 5, 20)[rng.randrange(0, 4)],
        flush_ms=(None, 500, 2_000)[rng.randrange(0, 3)],
    )
    exceeds = rng.random() < 0.1
    return Plan(
        nodes=nodes,
        replication_factor=factor,
        topics=one_of(1, 1, 2),
        min_insync_replicas=minimum,
        log=log,
        is_synced=is_synced,
        session_ms=session_ms,
        heartbeat_ms=session_ms // 5,
        lag_ms_max=one_of(500, 1_500, 4_000),
        fetch_wait_ms=one_of(50, 200, 500),
        fetch_size_bytes=one_of(1, 300, 1_000),
        checkpoint_ms=one_of(200, 1_000, 5_000),
        metadata_ms_max=one_of(2, 20, 200, 800),
        allows_unclean=rng.random() < 0.25,
        unclean_after_ms=one_of(200, 2_000),
        power_losses_max=factor if exceeds or is_synced else minimum - 1,
        producers=tuple(one_of(-1, -1, -1, 1, 0) for _ in range(rng.randrange(1, 4))),
        produce_ms=one_of(40, 100, 300),
        consumers=rng.randrange(1, 4),
        reads_followers=rng.random() < 0.5,
        answers_tell_state=rng.random() < 0.5,
    )
