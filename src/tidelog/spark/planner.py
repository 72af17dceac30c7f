"""The source's planner: one per streaming query, alive for as long as it runs.

It asks the cluster, lets the pure functions of `plan` and `truncation` decide, and retries what will pass.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from tidelog.base.ids import LeaderEpoch, Offset, TopicPartition
from tidelog.client.core.positions import UNDEFINED_MS_MAX, Questions
from tidelog.spark.checkpoint_files import without_password
from tidelog.spark.checkpoints import TIDELOG, Checkpoint
from tidelog.spark.offsets import CheckpointError, Json, Loss, ReadPosition, StreamOffset
from tidelog.spark.options import SourceOptions
from tidelog.spark.plan import (
    Bound,
    ClusterFacts,
    PlanError,
    Range,
    admit,
    clip,
    is_too_little,
    lag_json,
    moved_text,
    ranges_of,
    split,
)
from tidelog.spark.pushdown import Wanted
from tidelog.spark.replay_notes import ReplayNotes
from tidelog.spark.returns import (
    forgotten,
    forgotten_text,
    returned,
    returned_text,
    set_back,
    still_missing,
    with_unread,
)
from tidelog.spark.truncation import (
    CannotTellError,
    OnTruncation,
    PartitionFacts,
    StatefulRewindError,
    StreamTruncatedError,
    examine,
    is_ahead,
    place,
    resume_offset,
    went_on_text,
)

R = TypeVar("R")
logger = logging.getLogger("tidelog.spark")

IDLE_WAIT_MS_MAX = 100
"""How long planning waits for records when there are none. Longer would hold up the other sources of a query."""


STATE_IS_WRONG_AFTER = frozenset({"truncated", "recreated"})
"""Causes of losses of which the records were counted before."""


FIRST: Json = {"v": 1}
"""Before the first batch."""


class Resumption(NamedTuple):
    """That the query went on after a truncation.

    Attributes:
        loss: where it stood, and where the log parts from what it had read.
        offset: where it went on.
    """

    loss: Loss
    offset: Offset


class PlannedCluster(Protocol):
    """What a planner asks of the cluster. `tidelog.spark.cluster` has the real one."""

    def facts(self, expected: Collection[str] = ()) -> ClusterFacts:
        """Of the selected partitions, now. `expected` names topics that should exist, beside those selected by name."""
        ...

    def offsets_at(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset | None]:
        """The first offset at or after a time in each partition, None if there is no such record."""
        ...

    def ask(self, questions: Mapping[TopicPartition, Questions[R]], facts: ClusterFacts) -> dict[TopicPartition, R]:
        """Have the leaders answer all questions, at the leader epochs of `facts`."""
        ...

    def patiently(self, what: str, work: Callable[[], R]) -> R:
        """Do `work`, again and again while errors are passing ones."""
        ...

    def now_ms(self) -> int: ...

    def pause(self, pause_ms: int) -> None: ...

    def wait_for_records(self, offsets: Mapping[TopicPartition, Offset], wait_ms: int) -> None:
        """Return when one of the partitions has a record at or above its offset, or after `wait_ms`."""
        ...

    def report(self, resumed: Mapping[TopicPartition, Resumption], policy: str) -> None:
        """Let the account of losses know that this reader went on. Where there is no such account, nothing happens."""
        ...

    def close(self) -> None: ...


def _bound_positions(
    bound: Bound,
    options: SourceOptions,
    cluster: PlannedCluster,
    facts: ClusterFacts,
) -> dict[TopicPartition, ReadPosition]:
    """Where reading starts or ends, by the options that say so. Raises as `_bound_offsets`."""
    return _placed(_bound_offsets(bound, options, cluster, facts), cluster, facts)


def _placed(
    offsets: Mapping[TopicPartition, Offset], cluster: PlannedCluster, facts: ClusterFacts
) -> dict[TopicPartition, ReadPosition]:
    return cluster.ask({key: place(offset, facts.partitions[key]) for key, offset in offsets.items()}, facts)


def _bound_offsets(
    bound: Bound,
    options: SourceOptions,
    cluster: PlannedCluster,
    facts: ClusterFacts,
) -> dict[TopicPartition, Offset]:
    """Where reading starts or ends, by the options that say so.

    Raises:
        PlanError: they ask for what is not there.
    """
    missing = options.topics.missing(facts.partitions)
    if missing:
        raise PlanError(f"there is no {', '.join(missing)}: create it first, or correct the option that names it")
    bound.check_partitions(facts.partitions)
    timestamps = {key: at for key in facts.partitions if (at := bound.timestamp_of(key)) is not None}
    found = cluster.offsets_at(timestamps) if timestamps else {}
    offsets = {
        key: bound.resolve(key, now, found.get(key), clamp=options.clamp) for key, now in facts.partitions.items()
    }
    for key, offset in sorted(offsets.items()):
        if bound.is_moved(key, offset):
            logger.warning("%s", moved_text(bound, key, offset, facts.partitions[key]))
    return offsets


def batch_ranges(options: SourceOptions, cluster: PlannedCluster, wanted: Wanted | None = None) -> list[Range]:
    """What a batch query reads, cut into what its tasks read.

    Args:
        options: of the source.
        cluster: where it reads.
        wanted: what the filters of the query leave of it; None for all.
    """
    wanted = wanted or Wanted()

    def plan() -> list[Range]:
        facts = cluster.facts()
        begin = _bound_offsets(options.start, options, cluster, facts)
        end = _bound_offsets(options.end, options, cluster, facts)
        for key in begin:
            if begin[key] > end[key]:
                raise PlanError(
                    f"{key}: {options.start.option} means offset {begin[key]}, which lies after {end[key]}, where "
                    f"{options.end.option} ends"
                )
        timestamps = {} if wanted.from_ms is None else {key: wanted.from_ms for key in begin if wanted.includes(key)}
        left = wanted.narrowed(begin, end, cluster.offsets_at(timestamps) if timestamps else {})
        first = _placed({key: pair[0] for key, pair in left.items()}, cluster, facts)
        last = _placed({key: pair[1] for key, pair in left.items()}, cluster, facts)
        return _split(options, facts, facts.topic_ids, {key: (first[key], last[key]) for key in left})

    return cluster.patiently("plan a batch", plan)


def _split(
    options: SourceOptions,
    facts: ClusterFacts,
    topic_ids: Mapping[str, str | None],
    pairs: Mapping[TopicPartition, tuple[ReadPosition, ReadPosition]],
) -> list[Range]:
    return split(
        [
            Range.between(key, topic_ids.get(key.topic), *pair)._replace(may_have_gaps=key.topic in facts.with_gaps)
            for key, pair in sorted(pairs.items())
        ],
        records_max=options.limits.task_records_max,
        count_min=options.limits.tasks_min,
    )


class StreamPlanner:
    """Plans micro-batches: `next_offset` says where one ends, `ranges` what it reads."""

    def __init__(self, options: SourceOptions, cluster: PlannedCluster) -> None:
        self.options = options
        self.cluster = cluster
        self.last_batch_ms: int | None = None
        self.target: dict[TopicPartition, Offset] | None = None
        self.positions: Mapping[TopicPartition, ReadPosition] = {}
        self.facts: ClusterFacts | None = None
        # The leader epoch at which a position was last found valid: a leader takes nothing back within its epoch.
        self.valid_at: dict[TopicPartition, tuple[ReadPosition, LeaderEpoch | None]] = {}
        # What the last batch could not read of what its offsets say, by where it should have ended. The next one
        # makes up for it, even if the records are back by then (two unclean elections can do that).
        self.cut_short: dict[TopicPartition, tuple[ReadPosition, Loss]] = {}
        # Losses to retention within a batch that ran again, by where it ended: nothing of them is in its offsets, so
        # the next batch's say so.
        self.left_out: dict[TopicPartition, tuple[ReadPosition, Loss]] = {}
        # Both outlive this process where the checkpoint is known: another process may have run the last batch.
        self._notes = None if options.checkpoint is None else ReplayNotes(options.checkpoint.location)
        self._noted: Json | None = None  # the end of the last batch, if there is a note of it
        self._planned: Json | None = None
        self._has_run = False
        self.behind_since_ms: dict[TopicPartition, int] = {}
        self._told: dict[TopicPartition, Loss] = {}
        self._has_found_checkpoint = options.checkpoint is None

    def prepare_available_now(self) -> None:
        """From now on, nothing is read that is not there now (Trigger.AvailableNow)."""
        facts = self.cluster.patiently("look up the latest offsets", self.cluster.facts)
        self.target = {key: now.end_offset for key, now in facts.partitions.items()}

    def next_offset(self, start: Json, record_limit: int | None) -> Json:
        """Where the batch after `start` ends; `start` itself if there is nothing to do.

        Args:
            start: the end of the last batch, or `{"v": 1}`.
            record_limit: records of the batch at most.

        Raises:
            StreamTruncatedError: records are gone that the query stood past, under onTruncation=fail.
            PlanError: the options ask for what is not there.
            CheckpointError: `start` is not ours.
        """
        before = StreamOffset.from_json(start)
        self._find_checkpoint(start)
        self._recall(start)
        self.positions = before.positions
        after = self.cluster.patiently("plan a micro-batch", lambda: self._next(before, record_limit))
        if after is None and self.target is None and before.positions:
            self._wait(before.positions)
            after = self.cluster.patiently("plan a micro-batch", lambda: self._next(before, record_limit))
        if after is None:
            return start
        if after.losses:
            self._go_on(start, after)
        self._tell_more(before, after)
        self.positions = after.positions
        self._planned = after.to_json()
        return self._planned

    def _tell_more(self, before: StreamOffset, after: StreamOffset) -> None:
        """Say in the driver's log what the losses of a batch do not."""
        for key, position in returned(before, self.facts, self.target).items() if self.facts is not None else ():
            if after.begin.get(key) == position:
                self._told.pop(key, None)  # it may be missing again at the same place
                logger.warning("%s", returned_text(key, position))
        for key, (position, loss) in self.left_out.items():
            found = after.losses.get(key)
            if before.positions.get(key) == position and (found is None or found.cause != loss.cause):
                self._tell_left_out(key, loss)
        if gone := forgotten(before, after):
            logger.warning("%s", forgotten_text(gone))

    def _tell_left_out(self, key: TopicPartition, loss: Loss) -> None:
        """What retention removed of a batch that ran again, where the next one tells another loss of the partition."""
        policy = self.options.on_truncation
        logger.warning("%s", went_on_text(key, loss, loss.resume_offset, policy, None, operators=None))

    def _recall(self, start: Json) -> None:
        """What the last batch could not read, where another process ran it."""
        if self._notes is not None and not self._has_run and start != FIRST:
            unread = self._notes.read(start)
            self._noted = start if unread else None
            self.cut_short = {key: noted for key, noted in unread.items() if not noted[1].in_replay}
            self.left_out = {key: noted for key, noted in unread.items() if noted[1].in_replay}
        self._has_run = True

    def _go_on(self, start: Json, after: StreamOffset) -> None:
        """Say that the query goes on after losses: in the driver's log, and to the cluster. Each of them once.

        Raises:
            StatefulRewindError: it is not to go on, since its state counted what is gone.
        """
        facts = self.facts.partitions if self.facts is not None else {}
        counted = {key: loss for key, loss in after.losses.items() if loss.cause in STATE_IS_WRONG_AFTER}
        operators = self._operators(start) if counted else None
        given = self.options.checkpoint
        if operators and given is not None and given.refuses:
            raise StatefulRewindError(counted, facts, checkpoint=without_password(given.location), operators=operators)
        policy = self.options.on_truncation
        resumed: dict[TopicPartition, Resumption] = {}
        for key, loss in sorted(after.losses.items()):
            if self._told.get(key) == loss:
                continue
            self._told[key] = loss
            offset = after.resumed(key)
            logger.warning("%s", went_on_text(key, loss, offset, policy, facts.get(key), operators=operators))
            if loss.cause == "truncated" and offset is not None:
                resumed[key] = Resumption(loss, offset)
        if resumed:
            self.cluster.report(resumed, policy.value)

    def _find_checkpoint(self, start: Json) -> None:
        """A wrong path is found at the start, and not by the first truncation.

        Raises:
            CheckpointError: there is no checkpoint, or it is another query's.
        """
        given = self.options.checkpoint
        if given is not None and given.refuses and not self._has_found_checkpoint:
            checkpoint = Checkpoint(given.location)
            if StreamOffset.from_json(start).topic_ids:
                operators_of(checkpoint, start)
            else:
                checkpoint.planned()
        self._has_found_checkpoint = True

    def _operators(self, start: Json) -> Sequence[str] | None:
        """What keeps state in the query; None if that is not known.

        Raises:
            CheckpointError: the option checkpoint names one that is not this query's, or cannot be read.
        """
        given = self.options.checkpoint
        if given is None:
            return None
        try:
            return operators_of(Checkpoint(given.location), start)
        except CheckpointError as error:
            if given.refuses:
                raise
            logger.warning("option checkpoint: %s", error)
            return None

    def _wait(self, positions: Mapping[TopicPartition, ReadPosition]) -> None:
        partitions = self.facts.partitions if self.facts is not None else {}
        if any(key in partitions and partitions[key].end_offset > at.offset for key, at in positions.items()):
            self.cluster.pause(IDLE_WAIT_MS_MAX)  # there are some, and minOffsetsPerTrigger holds them back
        else:
            offsets = {key: position.offset for key, position in positions.items()}
            self.cluster.wait_for_records(offsets, IDLE_WAIT_MS_MAX)

    def _next(self, before: StreamOffset, record_limit: int | None) -> StreamOffset | None:
        self.facts = facts = self.cluster.facts(before.topic_ids)
        back = returned(before, facts, self.target)
        again = set_back(before, self.cut_short)
        moved = back | again
        standing = before.standing_at(moved, {key.topic: facts.topic_ids[key.topic] for key in back})
        losses = self._losses(standing.positions, standing.topic_ids, facts)
        losses |= self._before_they_were_found(standing, facts)
        cut = {key: loss for key, (at, loss) in self.cut_short.items() if before.positions.get(key) == at}
        losses |= with_unread(losses, cut, {key: before.missing[key] for key in back}, facts)
        if losses and self.options.on_truncation is OnTruncation.FAIL:
            raise StreamTruncatedError(losses, facts.partitions)
        begin = self._new_begins(standing, facts, losses)
        begin |= {key: at for key, at in moved.items() if key in facts.partitions and key not in losses}
        for key, (position, loss) in self.left_out.items():
            if before.positions.get(key) != position:
                continue
            if key not in losses:
                losses[key], begin[key] = loss, position
            elif losses[key].cause == loss.cause:  # that of the batch before goes on behind its end
                losses[key] = losses[key]._replace(position=loss.position)
        positions = {
            key: begin.get(key) or standing.positions[key]
            for key in sorted(facts.partitions)
            if key in begin or key in standing.positions
        }
        latest = {key: facts.partitions[key].end_offset for key in positions}
        if self.target is not None:
            latest = {key: min(end, self.target.get(key, Offset(0))) for key, end in latest.items()}
        ends = admit({key: position.offset for key, position in positions.items()}, latest, record_limit)
        if not begin and not losses and all(ends[key] == positions[key].offset for key in positions):
            return None
        if before.positions and not losses and self._wait_for_more(positions, latest):
            return None
        ended = self.cluster.ask({key: place(ends[key], facts.partitions[key], positions[key]) for key in ends}, facts)
        for key, position in ended.items():
            self.valid_at[key] = position, facts.partitions[key].leader_epoch
        self.last_batch_ms = self.cluster.now_ms()
        topics = {key.topic for key in ended}
        topic_ids = {topic: facts.topic_ids.get(topic) for topic in topics}
        replans = before.replans + 1 if cut else 0
        return StreamOffset(topic_ids, ended, begin, losses, still_missing(before, ended, losses), replans)

    def _wait_for_more(
        self, positions: Mapping[TopicPartition, ReadPosition], latest: Mapping[TopicPartition, Offset]
    ) -> bool:
        if self.target is not None or self.last_batch_ms is None:
            return False
        waiting = sum(max(0, latest[key] - position.offset) for key, position in positions.items())
        limits = self.options.limits
        waited_ms = self.cluster.now_ms() - self.last_batch_ms
        return is_too_little(waiting, limits.batch_records_min, waited_ms, limits.batch_delay_ms_max)

    def _new_begins(
        self, before: StreamOffset, facts: ClusterFacts, losses: Mapping[TopicPartition, Loss]
    ) -> dict[TopicPartition, ReadPosition]:
        """Where the partitions begin of which `before` does not say so: at first, when they are new, after a loss."""
        if not before.topic_ids and not before.losses and not before.missing:
            return _bound_positions(self.options.start, self.options, self.cluster, facts)
        questions = {}
        for key, now in facts.partitions.items():
            if key in losses:
                offset = resume_offset(losses[key], self.options.on_truncation, now)
                assert offset is not None
                questions[key] = place(offset, now)
            elif key not in before.positions and (self.target is None or key in self.target):
                questions[key] = place(now.log_start_offset, now)
        return self.cluster.ask(questions, facts)

    def ranges(self, start: Json, end: Json) -> list[Range]:
        """What the batch between two offsets reads, cut into what its tasks read. The same at every replay.

        What was lost since the offsets were written down is left out (unless onTruncation=fail): the batch after it
        finds the same loss, and begins where this one could not go on.

        Raises:
            StreamTruncatedError: records of the batch are gone, under onTruncation=fail.
            CheckpointError: the offsets are not ours, or do not belong together.
        """
        if start == end:
            return []
        last = StreamOffset.from_json(end)
        pairs = ranges_of(StreamOffset.from_json(start), last)
        if not self.positions:
            self.positions = last.positions

        def plan() -> list[Range]:
            facts = self.cluster.facts(last.topic_ids)
            losses = self._losses({key: pair[1] for key, pair in pairs.items()}, last.topic_ids, facts)
            removed = self._removed(pairs, last.topic_ids, facts, losses)
            losses |= {key: loss for key, loss in removed.items() if losses.get(key, loss).cause == loss.cause}
            if losses and self.options.on_truncation is OnTruncation.FAIL:
                raise StreamTruncatedError(losses, facts.partitions)
            left = dict(pairs)
            self.cut_short, self.left_out = {}, {}
            for key, loss in losses.items():
                logger.warning(
                    "%s: a batch that runs again cannot read all it should (%s); the one after it says what is lost",
                    key,
                    loss.cause,
                )
                left[key] = _what_is_left(*pairs[key], loss, removed.get(key))
                if loss.cause == "missing":
                    self.cut_short[key] = pairs[key][1], loss._replace(position=pairs[key][0])
                elif left[key][1] != pairs[key][1]:
                    self.cut_short[key] = pairs[key][1], loss
                    if key in removed:  # the batch after it has one loss of a partition to tell
                        self._tell_left_out(key, removed[key]._replace(resume_offset=left[key][0].offset))
                elif loss.cause == "retention":
                    self.left_out[key] = pairs[key][1], loss._replace(resume_offset=left[key][0].offset, in_replay=True)
            self._note(start, end)
            return _split(self.options, facts, last.topic_ids, left)

        return self.cluster.patiently("plan the ranges of a micro-batch", plan)

    def _note(self, start: Json, end: Json) -> None:
        self._has_run = True
        if self._notes is None:
            return
        unread = self.cut_short | self.left_out
        is_planned = end == self._planned  # else another process planned it, and may have run it when less was there
        if unread:
            self._notes.write(end, unread)
        elif not is_planned:
            self._notes.remove(end)
        if start != FIRST and (start == self._noted or not is_planned):
            self._notes.remove(start)  # this batch's offsets say it; a later batch may end at the same offset again
        self._noted = end if unread else None
        self._planned = None if unread else self._planned

    def lag(self) -> Json | None:
        """How far the stream was behind when it last planned; None before that."""
        return None if self.facts is None else lag_json(self.positions, self.facts)

    def _losses(
        self,
        positions: Mapping[TopicPartition, ReadPosition],
        topic_ids: Mapping[str, str | None],
        facts: ClusterFacts,
    ) -> dict[TopicPartition, Loss]:
        losses: dict[TopicPartition, Loss] = {}
        questions: dict[TopicPartition, Questions[Loss | None]] = {}
        for key, position in positions.items():
            old_id, new_id = topic_ids.get(key.topic), facts.topic_ids.get(key.topic)
            now = facts.partitions.get(key)
            if now is None:
                losses[key] = Loss("missing", position, None, old_id)
            elif old_id is not None and new_id is not None and old_id != new_id:
                losses[key] = Loss("recreated", position, None, old_id)
            elif now.log_start_offset > position.offset or not self._is_valid(key, position, now):
                self._wait_for_newer_leader(key, position, now)
                questions[key] = examine(position, now)
        for key, loss in self.cluster.ask(questions, facts).items():
            if loss is None:
                self.valid_at[key] = positions[key], facts.partitions[key].leader_epoch
            else:
                losses[key] = loss._replace(topic_id=topic_ids.get(key.topic))
        return losses

    def _before_they_were_found(self, before: StreamOffset, facts: ClusterFacts) -> dict[TopicPartition, Loss]:
        """Losses to retention in partitions that were added to a topic, and emptied before the query found them."""
        return {
            key: Loss("retention", ReadPosition(Offset(0)), now.log_start_offset, before.topic_ids[key.topic])
            for key, now in facts.partitions.items()
            if now.log_start_offset > 0
            and key not in before.positions
            and not self.options.topics.partitions  # assign: the user has added it
            and before.topic_ids.get(key.topic) is not None
            and before.topic_ids[key.topic] == facts.topic_ids.get(key.topic)
            and (self.target is None or key in self.target)
        }

    def _wait_for_newer_leader(self, key: TopicPartition, position: ReadPosition, now: PartitionFacts) -> None:
        """A leader that is older than what was read may be one that was replaced, and has not heard of it.

        Raises:
            CannotTellError: ask again, until it has been so for long: then the records are gone.
        """
        if not is_ahead(position, now):
            self.behind_since_ms.pop(key, None)
            return
        since_ms = self.behind_since_ms.setdefault(key, self.cluster.now_ms())
        if self.cluster.now_ms() - since_ms < UNDEFINED_MS_MAX:
            raise CannotTellError(
                f"{key}: the leader is of epoch {now.leader_epoch}, and what was read of epoch "
                f"{position.leader_epoch}: a newer leader is waited for"
            )

    def _is_valid(self, key: TopicPartition, position: ReadPosition, now: PartitionFacts) -> bool:
        known, leader_epoch = self.valid_at.get(key, (None, None))
        return known == position and leader_epoch is not None and leader_epoch == now.leader_epoch

    def _removed(
        self,
        pairs: Mapping[TopicPartition, tuple[ReadPosition, ReadPosition]],
        topic_ids: Mapping[str, str | None],
        facts: ClusterFacts,
        losses: Mapping[TopicPartition, Loss],
    ) -> dict[TopicPartition, Loss]:
        """Losses to retention of what ranges begin with, or of all that is in them."""
        return {
            key: Loss("retention", begin, now.log_start_offset, topic_ids.get(key.topic))
            for key, (begin, end) in pairs.items()
            if (now := facts.partitions.get(key)) is not None
            and begin.offset < min(end.offset, now.log_start_offset)
            and (key not in losses or losses[key].cause in ("retention", "truncated"))
        }


def operators_of(checkpoint: Checkpoint, start: Json) -> list[str]:
    """What keeps state in the query whose newest batches end at `start`.

    Raises:
        CheckpointError: the checkpoint is of another query, or there is none.
    """
    for number in reversed(checkpoint.planned()[-2:]):
        try:
            ends = [one.stream for one in checkpoint.sources(number) if one.connector == TIDELOG]
        except FileNotFoundError:
            continue
        if StreamOffset.from_json(start) in ends:
            return checkpoint.operators()
    raise CheckpointError(
        f"checkpoint {checkpoint.location} is of another query: its newest batches do not end where this query "
        "stands. Give the path that is this query's checkpointLocation"
    )


def _what_is_left(
    begin: ReadPosition, end: ReadPosition, loss: Loss, removed: Loss | None
) -> tuple[ReadPosition, ReadPosition]:
    if loss.cause == "truncated":
        begin, end = clip(begin, end, loss.resume_offset)
    elif loss.cause != "retention":
        return begin, begin
    if removed is not None and removed.resume_offset is not None and begin.offset < end.offset:
        first = min(max(begin.offset, removed.resume_offset), end.offset)
        return ReadPosition(first, begin.leader_epoch, unread=True), end
    return begin, end
