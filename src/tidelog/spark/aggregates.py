"""Sums and counts over a table that heals, which heal with it: the groups are computed anew whose rows changed.

What changed since the last time is seen from the files of the two versions: those that came, and those that went. Each
group with a row in one of them is computed from all rows that there are now, so nothing is added to what was, and
nothing has to be taken off it.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from tidelog.base.errors import ConfigError
from tidelog.spark.delta import CommitFailedError, NewFile, TableFolder, TableSnapshot, all_nullable
from tidelog.spark.healing import COMMIT_TRIES_MAX, FORMAT, FORMAT_PROPERTY, check_ours
from tidelog.spark.healing_errors import HealingError
from tidelog.spark.table_files import WRITTEN, row_writer
from tidelog.spark.table_reading import frame_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("tidelog.spark")
DEFINITION_PROPERTY = "tidelog.aggregate"


def healed_aggregate(
    rows: str | os.PathLike[str],
    table: str | os.PathLike[str],
    *,
    keys: Sequence[str],
    aggregates: Mapping[str, str],
    storage_options: Mapping[str, str] | None = None,
) -> HealedAggregate:
    """A table of groups that follows a table of `healing_writer`. Call what is returned whenever it should catch up.

        totals = healed_aggregate("/data/orders", "/data/totals", keys=["customer"],
                                  aggregates={"orders": "count(*)", "cents": "sum(cents)"})
        totals(spark)

    Take sums of whole numbers and decimals, counts, minima and maxima: these do not depend on the order of rows, as
    sums of floating-point numbers do.

    Args:
        rows: the table that healing_writer writes.
        table: where the groups are, or are to be.
        keys: columns of `rows`. A null is a value like any other.
        aggregates: a column for each, and its expression in SQL.
        storage_options: of deltalake.

    Raises:
        ConfigError: no key or no aggregate is given.
    """
    if not keys or not aggregates:
        raise ConfigError("healed_aggregate: one key and one aggregate at least are expected")
    return HealedAggregate(
        TableFolder.at(rows, storage_options), TableFolder.at(table, storage_options), tuple(keys), dict(aggregates)
    )


@dataclass(frozen=True)
class HealedAggregate:
    """`healed_aggregate` makes it. Calling it brings the table of groups to what the table of rows holds now."""

    rows: TableFolder
    table: TableFolder
    keys: Sequence[str]
    aggregates: Mapping[str, str]

    def __call__(self, spark: SparkSession) -> int:
        """Catch up. Returns how many groups were computed.

        Raises:
            HealingError: one of the tables is not what it should be; nothing was changed.
        """
        for _ in range(COMMIT_TRIES_MAX):
            source = self.rows.open()
            if source is None:
                return 0
            check_ours(source)
            target = self.table.open()
            try:
                return self._catch_up(spark, source, target)
            except CommitFailedError as error:
                logger.info("%s was changed meanwhile: %s", self.table.uri, error)
        raise HealingError(
            "TABLE_CHANGED", f"{self.table.uri}: somebody else changed it {COMMIT_TRIES_MAX} times meanwhile; try again"
        )

    def _catch_up(self, spark: SparkSession, source: TableSnapshot, target: TableSnapshot | None) -> int:
        app_id = f"tidelog/rows/{source.table_id}"
        seen = None if target is None else target.transaction_version(app_id)
        if target is not None:
            self._check(target)
            if seen == source.version:
                return 0
        everything = frame_of(spark, source, source.files())
        changed = None if seen is None else self._changed_keys(spark, source, seen)
        if target is None:
            from pyspark.sql.pandas.types import to_arrow_schema

            schema = to_arrow_schema(all_nullable(self._groups(everything).schema), timezone="UTC")
            properties = {FORMAT_PROPERTY: FORMAT, DEFINITION_PROPERTY: self._definition()}
            target = self.table.create(
                schema, properties, f"Groups of {self.rows.uri} by tidelog.spark.healed_aggregate"
            )
        old = target.files()
        writer = row_writer(self.table, None, list(target.column_types()))

        def write(frame: DataFrame) -> list[NewFile]:
            return [NewFile(*row) for row in frame.mapInArrow(writer, WRITTEN).collect()]

        if changed is None:
            computed = write(self._groups(everything))
            kept: list[NewFile] = []
        else:
            computed = write(self._groups(self._matching(everything, changed, "left_semi")))
            kept = write(self._matching(frame_of(spark, target, old), changed, "left_anti"))
        target.commit([*computed, *kept], old, transaction=(app_id, source.version))
        return sum(file.row_count for file in computed)

    def _changed_keys(self, spark: SparkSession, source: TableSnapshot, seen: int) -> DataFrame | None:
        """The keys of all rows in files that came or went since a version; None if that cannot be told any more."""
        try:
            before = self.rows.open(seen)
        except HealingError:  # its log was cleaned away
            before = None
        if before is not None:
            then, now = ({file.path: file for file in snapshot.files()} for snapshot in (before, source))
            gone = [file for path, file in then.items() if path not in now]
            if source.has_files(gone):
                came = [file for path, file in now.items() if path not in then]
                return frame_of(spark, source, [*gone, *came]).select(*self.keys).distinct()
        logger.info("%s: all groups are computed anew, since version %d was cleaned away", self.table.uri, seen)
        return None

    def _groups(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as f

        return rows.groupBy(*self.keys).agg(*(f.expr(text).alias(name) for name, text in self.aggregates.items()))

    def _matching(self, frame: DataFrame, keys: DataFrame, how: str) -> DataFrame:
        conditions = [frame[key].eqNullSafe(keys[key]) for key in self.keys]
        return frame.join(keys, reduce(lambda one, other: one & other, conditions), how)

    def _check(self, target: TableSnapshot) -> None:
        check_ours(target)
        if target.properties.get(DEFINITION_PROPERTY) != self._definition():
            raise HealingError(
                "TABLE_NOT_OURS",
                f"{self.table.uri} holds other groups ({target.properties.get(DEFINITION_PROPERTY)}) than are asked "
                f"for ({self._definition()}): give another path",
            )

    def _definition(self) -> str:
        return json.dumps({"keys": list(self.keys), "aggregates": dict(self.aggregates)})
