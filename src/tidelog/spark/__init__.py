"""The Spark source and sink: a checkpoint that holds leader epochs and topic ids, so that no loss goes unnoticed."""

from __future__ import annotations

TYPE_CHECKING = False  # Spark starts processes that import this package and wait for it: typing is left out
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.aggregates import healed_aggregate
    from tidelog.spark.healing import healing_writer
    from tidelog.spark.listeners import GroupCommitter, LossListener
    from tidelog.spark.offsets import CheckpointError
    from tidelog.spark.progress import SourceLag, lag, with_lag
    from tidelog.spark.query_losses import QueryLoss, losses
    from tidelog.spark.table_audit import audit
    from tidelog.spark.table_reading import read_table
    from tidelog.spark.tags import Tagged, find_tag

__all__ = [
    "CheckpointError",
    "GroupCommitter",
    "LossListener",
    "QueryLoss",
    "SourceLag",
    "Tagged",
    "audit",
    "find_tag",
    "healed_aggregate",
    "healing_writer",
    "lag",
    "losses",
    "read_table",
    "register",
    "with_lag",
]

_HOMES: dict[str, str] = {
    "audit": "table_audit",
    "CheckpointError": "offsets",
    "GroupCommitter": "listeners",
    "LossListener": "listeners",
    "QueryLoss": "query_losses",
    "SourceLag": "progress",
    "Tagged": "tags",
    "find_tag": "tags",
    "healed_aggregate": "aggregates",
    "healing_writer": "healing",
    "lag": "progress",
    "losses": "query_losses",
    "read_table": "table_reading",
    "with_lag": "progress",
}
"""Public names that have a module of their own in this package."""


def register(spark: SparkSession) -> None:
    """Make the format `tidelog` known to a session.

    A session finds it by itself where Python's `site-packages` of its start held tidelog already. This helps where it
    did not: a notebook that installed tidelog after Spark was started, Spark Connect, `--py-files`.
    """
    from tidelog.spark.source import TidelogSource

    spark.dataSource.register(TidelogSource)


def __getattr__(name: str) -> object:
    """Load what is asked for, and no more (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tidelog.spark' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"tidelog.spark.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
