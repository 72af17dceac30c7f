"""Listeners for `spark.streams.addListener`: they pass losses on, and commit what was read to a consumer group.

They work in a session of Spark's own and over Spark Connect. Spark calls them after the batch, on a thread of its
own; what goes wrong in them never ends a query.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from tidelog.base.errors import TidelogError
from tidelog.base.ids import TopicPartition
from tidelog.spark.progress import SourceLag, ends_of, lag, losses_of, query_of
from tidelog.spark.query_losses import QueryLoss, losses_of_error
from tidelog.spark.tags import LOG_TRUNCATION, find_tag

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from tidelog import Admin, CommittedOffset

logger = logging.getLogger("tidelog.spark")

COMMIT_MS_MAX = 10_000
"""How long a commit may hold up the session's other listeners."""


class _Listener(StreamingQueryListener):
    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing is known yet."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing was read."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """The query ended."""


class LossListener(_Listener):
    """Calls `on_loss` with each loss of each query of the session.

    A loss comes once the batch that made up for it is done, or when it stopped the query; then its `batch_id` is
    None. A batch that runs again after a crash tells its losses again. Whatever `on_loss` raises is logged.

    Args:
        on_loss: is given a `QueryLoss`.
        on_lag: is given a `SourceLag` for each source, at every batch.
    """

    def __init__(
        self, on_loss: Callable[[QueryLoss], object], *, on_lag: Callable[[SourceLag], object] | None = None
    ) -> None:
        self._on_loss = on_loss
        self._on_lag = on_lag
        self._names: dict[str, str | None] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Spark names the query here, and not when it ends."""
        self._names[str(event.id)] = event.name

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A batch is done."""
        for loss in _unless_it_fails(losses_of(event.progress)):
            _call(self._on_loss, loss)
        if self._on_lag is not None:
            for one in lag(event.progress):
                _call(self._on_lag, one)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """The query ended, perhaps by a loss."""
        query_id = str(event.id)
        name = self._names.pop(query_id, None)
        said = None if event.exception is None else find_tag(event.exception, LOG_TRUNCATION)
        if said is not None:
            for loss in _unless_it_fails(losses_of_error(said.details, query_id=query_id, query_name=name)):
                _call(self._on_loss, loss)


class GroupCommitter(_Listener):
    """Commits where a query stands to a consumer group after every batch, with leader epochs.

    Tools that watch the lag of groups then see the query. Spark does not read these offsets: its checkpoint counts.
    A commit that fails is logged and made up for by the next. The group must have no members. If two sources of a
    query read the same partition, the lower offset is committed.

    Args:
        group_id: the group; one that is not there begins to be.
        bootstrap_servers: as in `kafka.bootstrap.servers`.
        query: the name or the id of the query. None for all queries of the session, which then must read different
            partitions.
        **options: of `tidelog.Admin`, such as `client_id`, or those of TLS and SASL.
    """

    def __init__(self, group_id: str, bootstrap_servers: str, *, query: str | None = None, **options: Any) -> None:
        self._group_id = group_id
        self._query = query
        self._options = {
            "bootstrap_servers": bootstrap_servers,
            "client_id": "tidelog-spark-committer",
            "default_api_timeout_ms": COMMIT_MS_MAX,
            **options,
        }
        self._admin: Admin | None = None
        self._committed: dict[TopicPartition, CommittedOffset] = {}

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A batch is done."""
        from tidelog import Admin, CommittedOffset

        if self._query is not None and self._query not in query_of(event.progress):
            return
        offsets: dict[TopicPartition, CommittedOffset] = {}
        for _, end in ends_of(event.progress):
            for key, at in end.positions.items():
                one = CommittedOffset(at.offset, None if at.unread else at.leader_epoch)
                if key not in offsets or one.offset < offsets[key].offset:
                    offsets[key] = one
        due = {key: one for key, one in offsets.items() if self._committed.get(key) != one}
        if not due:
            return
        try:
            if self._admin is None:
                self._admin = Admin(**self._options)
            self._admin.alter_group_offsets(self._group_id, due)
        except TidelogError as error:
            logger.warning(
                "group %s: the offsets of batch %s were not committed: %s",
                self._group_id,
                event.progress["batchId"],
                error,
            )
            return
        self._committed |= due

    def close(self) -> None:
        """Close the connection to the brokers; to be called after `removeListener`."""
        admin, self._admin = self._admin, None
        if admin is not None:
            with suppress(TidelogError):
                admin.close()


def _unless_it_fails(found: Iterator[QueryLoss]) -> list[QueryLoss]:
    try:
        return list(found)
    except (KeyError, TypeError, ValueError) as error:  # what another release wrote
        logger.warning("a report of Spark cannot be read: %s: %s", type(error).__name__, error)
        return []


def _call(callback: Callable[[Any], object], value: object) -> None:
    try:
        callback(value)
    except Exception:
        logger.exception("a listener's callback failed with %s", value)
