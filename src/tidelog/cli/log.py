"""`tidelog log dump`: what is in the files of a log."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.base.errors import CorruptLogError
from tidelog.base.ids import CLUSTER_METADATA
from tidelog.cli.command import UsageError, argument, log_level_option, option, output_option
from tidelog.cli.output import Row, Rows, Section, Sections

if TYPE_CHECKING:
    from tidelog.log.dump import Dump

TABLE_COLUMNS = {
    "batches": (
        "base_offset", "last_offset", "record_count", "leader_epoch", "max_timestamp", "compression", "producer_id",
        "is_transactional", "is_control", "position", "size_bytes", "crc_is_right", "problem",
    ),
    "records": ("offset", "leader_epoch", "timestamp", "key", "value", "headers", "control", "position", "problem"),
    "metadata records": ("offset", "leader_epoch", "timestamp", "control", "metadata", "position", "problem"),
}  # fmt: skip
"""What fits on a screen; JSON has all there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpLog:
    """Show what is in PATH: a file of a log, or the directory of a partition. Nothing is changed.

    Reads segments, indexes, snapshots of producers and of metadata, checkpoints and properties, those of Apache Kafka
    too. The node may be running. Ends with status 1 if something is not as it should be; the last row of that file
    says what.

    Examples:

        tidelog log dump tidelog-data/node-1/greetings-0
        tidelog log dump tidelog-data/node-1/greetings-0/00000000000000000000.log --records --output json
    """

    path: str = argument(metavar="PATH")
    records: bool = option("--records", is_flag=True, help="Each record of a segment, instead of each batch.")
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Sections:
        if not os.path.exists(self.path):
            raise UsageError(f"{self.path}: there is no such file or directory")
        from tidelog.io.disk import RealDisk
        from tidelog.log.dump import dump

        return Sections(self._sections(dump(RealDisk(), self.path.rstrip("/") or "/", records=self.records)))

    def _sections(self, files: Iterator[Dump]) -> Iterator[Section]:
        damaged: list[str] = []
        is_empty = True
        for found in files:
            is_empty = False
            kind = found.kind
            rows: Iterator[Row] = found.rows
            is_metadata = f"/{CLUSTER_METADATA}/" in f"/{found.path}" or found.path.endswith(".checkpoint")
            if kind == "records" and is_metadata:
                kind, rows = "metadata records", _with_metadata(rows)
            yield Section(
                f"{found.path} ({kind})",
                {"file": found.path, "kind": kind},
                Rows(_watched(found.path, rows, damaged), columns=TABLE_COLUMNS.get(kind), nothing="(empty)"),
            )
        if is_empty:
            raise UsageError(
                f"{self.path}: no file of a log is in it; name the directory of a partition, such as "
                "tidelog-data/node-1/greetings-0"
            )
        if damaged:
            raise CorruptLogError(
                f"{damaged[0]}: not as it should be; its rows say where"
                + (f" (and {len(damaged) - 1} more files)" if len(damaged) > 1 else "")
            )


def _with_metadata(rows: Iterator[Row]) -> Iterator[Row]:
    """Records of the metadata log, with what they say. The bytes of those with secrets are left out."""
    from tidelog.metadata.records import decode_record, has_secret

    for row in rows:
        value = row.get("value")
        if not isinstance(value, bytes) or row.get("control") is not None:
            yield row
            continue
        try:
            record = decode_record(value)
            shown = None if has_secret(record) else value
            yield {**row, "value": shown, "metadata": repr(record)}
        except CorruptLogError as error:
            yield {**row, "problem": str(error)}


def _watched(path: str, rows: Iterator[Row], damaged: list[str]) -> Iterator[Row]:
    """The rows of a file; adds it to `damaged` once if one tells of a problem."""
    for row in rows:
        if ("problem" in row or row.get("crc_is_right") is False) and path not in damaged:
            damaged.append(path)
        yield row
