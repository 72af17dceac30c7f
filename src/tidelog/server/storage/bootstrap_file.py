"""`bootstrap.checkpoint`: the levels of features that a new cluster begins at, as `storage format` was told.

It lies in the directory of the metadata log, in the format of a snapshot, as Kafka's does. The first controller that
ever becomes active goes by it; from then on the metadata says the levels.

Kafka: `BootstrapDirectory`, `BootstrapMetadata`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.base.ports import Disk
from tidelog.metadata.features import METADATA_VERSION, METADATA_VERSION_FEATURE, METADATA_VERSION_MIN
from tidelog.metadata.records.cluster import FeatureLevelRecord
from tidelog.quorum.values import SnapshotId
from tidelog.server.storage.metadata_snapshots import Snapshot, format_snapshot, parse_snapshot

BOOTSTRAP_FILE = "bootstrap.checkpoint"
NOTHING = SnapshotId(Offset(0), LeaderEpoch(0))

logger = logging.getLogger("tidelog.server.metadata_files")


def write_bootstrap_file(disk: Disk, directory: str, levels: Mapping[str, int], *, now_ms: int) -> None:
    """Return once it would survive a loss of power."""
    records = tuple(FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items())
    disk.write_atomically(f"{directory}/{BOOTSTRAP_FILE}", format_snapshot(Snapshot(NOTHING, records, None, now_ms)))


def read_bootstrap_level(disk: Disk, directory: str) -> int:
    """The level of `metadata.version` to begin at; the highest of this release where the file does not say.

    Raises:
        CorruptLogError: it is damaged.
    """
    path = f"{directory}/{BOOTSTRAP_FILE}"
    if not disk.exists(path):
        return METADATA_VERSION
    for record in parse_snapshot(disk.read_bytes(path), NOTHING, path=path).records:
        if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION_FEATURE:
            if METADATA_VERSION_MIN <= record.feature_level <= METADATA_VERSION:
                return record.feature_level
            logger.warning(
                "%s: this release does not work at metadata.version %s; a new cluster begins at %s",
                *(path, record.feature_level, METADATA_VERSION),
            )
    return METADATA_VERSION
