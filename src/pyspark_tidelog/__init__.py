"""Registers the format `tidelog` by being installed: Spark looks for modules `pyspark_*` with a DefaultSource."""

from __future__ import annotations

from tidelog.spark.source import TidelogSource as DefaultSource

__all__ = ["DefaultSource"]
