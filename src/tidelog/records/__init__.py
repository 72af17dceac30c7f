"""Record batches and the lineage of leader epochs: what a log holds."""

from __future__ import annotations

from tidelog.records._choose import KERNEL_IS_COMPILED
from tidelog.records.batch import (
    BATCH_OVERHEAD,
    BatchBuilder,
    BatchFacts,
    BatchHeader,
    Record,
    as_sent,
    check_crc,
    read_header,
    read_records,
    seal_batch,
    split_batches,
    split_whole_batches,
    stamp,
    validate_batch,
)
from tidelog.records.compression import COMPRESSION_IDS, COMPRESSION_NAMES, compress, decompress
from tidelog.records.control import (
    ControlType,
    control_batch,
    end_transaction_batch,
    leader_change_batch,
    read_control_record,
)
from tidelog.records.lineage import EpochEntry, LeaderEpochLineage

__all__ = [
    "BATCH_OVERHEAD",
    "COMPRESSION_IDS",
    "COMPRESSION_NAMES",
    "KERNEL_IS_COMPILED",
    "BatchBuilder",
    "BatchFacts",
    "BatchHeader",
    "ControlType",
    "EpochEntry",
    "LeaderEpochLineage",
    "Record",
    "as_sent",
    "check_crc",
    "compress",
    "control_batch",
    "decompress",
    "end_transaction_batch",
    "leader_change_batch",
    "read_control_record",
    "read_header",
    "read_records",
    "seal_batch",
    "split_batches",
    "split_whole_batches",
    "stamp",
    "validate_batch",
]
