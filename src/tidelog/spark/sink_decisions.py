"""What an exactly-once sink has decided, and what follows from it for whoever writes next. Pure.

A sink's state is one record of a compacted topic. Tasks write in transactions that they leave open. A batch is decided
when the state names the transactions that count; only then are they committed. Three rules follow:

- A batch that is decided is never written again. Whoever finds its transactions open commits them.
- A run (one start of a query) joins before it writes. From then on, an older run can decide nothing: it is fenced.
- A query with another id is refused, for it would count its batches from 0 anew. `sinkReset` gives the old one up.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from tidelog.base.errors import TidelogError

VERSION = 1
RUNS_MAX = 32
"""Runs that a state remembers. A run that is older than all of them would be taken for a new one."""


class SinkFencedError(TidelogError):
    """A newer run of the query writes to this sink. The text starts with `[SINK_FENCED]`."""


class SinkOtherQueryError(TidelogError):
    """The sink belongs to another query: its checkpoint was deleted, or the `sinkId` is used twice.

    The text starts with `[SINK_OTHER_QUERY]`.
    """


class SinkCommitExpiredError(TidelogError):
    """A batch was decided, and the brokers have aborted transactions of it.

    The text starts with `[SINK_COMMIT_EXPIRED]`.
    """


class SinkNotPreparedError(TidelogError):
    """The brokers aborted transactions of a batch before it was decided. Nothing of it is visible.

    The text starts with `[SINK_NOT_PREPARED]`.
    """


class SinkAheadError(TidelogError):
    """The sink has written later batches than its query knows of: the checkpoint is an older one.

    The text starts with `[SINK_AHEAD]`.
    """


class SinkStateError(TidelogError):
    """The record of a sink's decisions is gone, or is not one that this sink wrote. Says what to do."""


class Writing(NamedTuple):
    """Who writes what.

    Attributes:
        query_id: of the streaming query, the same over restarts; of a batch write, its `txnId`.
        run_id: of this start of it.
        batch_id: of the micro-batch; 0 of a batch write.
    """

    query_id: str
    run_id: str
    batch_id: int


class Committable(NamedTuple):
    """The open transaction of a task attempt that Spark has accepted."""

    partition: int
    attempt: int
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class SinkState:
    """What is known of a sink.

    Attributes:
        query_id: that it belongs to.
        run_ids: of the runs that joined, the latest last.
        decided_batch_id: the latest batch that is decided; None before the first.
        decided_run_id: the run whose transactions they are.
        committables: that count. A later batch is decided only after all of them are committed.
    """

    query_id: str
    run_ids: tuple[str, ...]
    decided_batch_id: int | None = None
    decided_run_id: str | None = None
    committables: tuple[Committable, ...] = ()

    def is_decided(self, batch_id: int) -> bool:
        """Whether the batch is written, or will be: nobody writes it again."""
        return self.decided_batch_id is not None and batch_id <= self.decided_batch_id

    def to_json(self) -> str:
        """As the topic holds it."""
        return json.dumps(
            {
                "batch": self.decided_batch_id,
                "query": self.query_id,
                "run": self.decided_run_id,
                "runs": self.run_ids,
                "transactions": self.committables,
                "v": VERSION,
            },
            separators=(",", ":"),
        )

    @staticmethod
    def from_json(text: str | bytes) -> SinkState:
        """The inverse of `to_json`.

        Raises:
            SinkStateError: it is not ours, or of another version.
        """
        try:
            read = json.loads(text)
            if read["v"] != VERSION:
                raise SinkStateError(
                    f"the sink's decisions are of version {read['v']!r}, this is tidelog for version {VERSION}: run the"
                    " tidelog that wrote them, or choose a new sinkId"
                )
            return SinkState(
                str(read["query"]),
                tuple(map(str, read["runs"])),
                read["batch"],
                read["run"],
                tuple(Committable(*map(int, row)) for row in read["transactions"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise SinkStateError(
                f"the sink's decisions hold what it never wrote ({type(error).__name__}: {error}): {text!r:.200}."
                " Somebody else wrote to the topic; choose a new sinkId"
            ) from None


def joined(state: SinkState | None, writing: Writing, *, reset: str | None = None) -> SinkState:
    """The state once the run of `writing` has joined; `state` itself if it joined before.

    Args:
        state: as the topic holds it; None if there is none.
        writing: what is about to be written.
        reset: `sinkReset`. A query id: the decisions of that query are given up for another query. The id of a run:
            the batch that it decided, whose transactions are lost, is written anew.

    Raises:
        SinkFencedError: a newer run has joined.
        SinkOtherQueryError: the sink is another query's.
        SinkAheadError: a later batch is decided. Spark goes on to a batch only after the one before is committed.
    """
    if state is None:
        return SinkState(writing.query_id, (writing.run_id,))
    if state.query_id != writing.query_id:
        if reset != state.query_id:
            raise SinkOtherQueryError(
                f"[SINK_OTHER_QUERY] the sink belongs to query {state.query_id}, which has written batch"
                f" {state.decided_batch_id}; this is batch {writing.batch_id} of query {writing.query_id}. Was its"
                " checkpoint deleted, or is the sinkId used twice? Restore the checkpoint; or take another sinkId; or"
                f" set sinkReset={state.query_id}, and what that query wrote is written again"
            )
        return SinkState(writing.query_id, (writing.run_id,))
    check_run(state, writing)
    if state.decided_batch_id is not None and writing.batch_id < state.decided_batch_id:
        raise SinkAheadError(
            f"[SINK_AHEAD] batch {writing.batch_id} of query {writing.query_id} is to be written, and the sink has"
            f" written batch {state.decided_batch_id} of it: the checkpoint is older than the sink, or a copy of it is"
            " in use. These batches may hold other rows by now, so they are neither skipped nor written. Restore the"
            " latest checkpoint; or take another sinkId, and what they held is written again"
        )
    if state.run_ids[-1] != writing.run_id:
        state = replace(state, run_ids=(*state.run_ids, writing.run_id)[-RUNS_MAX:])
    if state.decided_batch_id == writing.batch_id and reset is not None and reset == state.decided_run_id:
        return replace(state, decided_batch_id=writing.batch_id - 1, decided_run_id=None, committables=())
    return state


def check_run(state: SinkState, writing: Writing) -> None:
    """Raise if another run has taken the sink over.

    Raises:
        SinkFencedError: it has.
        SinkOtherQueryError: a run of another query has, by `sinkReset`.
    """
    if state.query_id != writing.query_id:
        raise SinkOtherQueryError(
            f"[SINK_OTHER_QUERY] query {state.query_id} has taken the sink over from query {writing.query_id}, which"
            " may write no more: stop this one"
        )
    if writing.run_id in state.run_ids[:-1]:
        raise SinkFencedError(
            f"[SINK_FENCED] query {writing.query_id} was started again (run {state.run_ids[-1]}), and this run"
            f" ({writing.run_id}) may write no more: stop it, and leave the other"
        )


def decided(state: SinkState | None, writing: Writing, committables: Iterable[Committable]) -> SinkState:
    """The state once the batch is decided; `state` itself if it was decided before.

    Raises:
        SinkFencedError: another run has joined.
        SinkOtherQueryError: another query has taken the sink over.
        SinkStateError: the run never joined: somebody removed the topic, or its records.
    """
    if state is not None:
        check_run(state, writing)
        if state.is_decided(writing.batch_id):
            return state
    if state is None or state.run_ids[-1] != writing.run_id:
        raise SinkStateError(
            f"the record that run {writing.run_id} of query {writing.query_id} writes to this sink is gone: was the"
            " topic of decisions deleted? Nothing of the batch is visible. Restart the query: it writes the batch again"
        )
    return replace(
        state,
        decided_batch_id=writing.batch_id,
        decided_run_id=writing.run_id,
        committables=tuple(sorted(committables)),
    )


def transactional_id(sink_id: str, run_id: str, partition: int, attempt: int) -> str:
    """That a task attempt writes with. The next batch uses it again, which aborts what was left open.

    A run has ids of its own: a task that an older run left behind cannot fence a newer one.
    """
    return f"{sink_id}/{run_id}/{partition}/{attempt}"


def run_of(sink_id: str, name: str) -> str | None:
    """The run that a transactional id belongs to; None if it is no task of this sink."""
    parts = name.removeprefix(f"{sink_id}/").split("/")
    return parts[0] if name.startswith(f"{sink_id}/") and len(parts) == 3 else None
