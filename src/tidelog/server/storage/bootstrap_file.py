"""`bootstrap.checkpoint`: what a new cluster begins with, as `storage format` was told: levels of features, and users.

It lies in the directory of the metadata log, in the format of a snapshot, as Kafka's does. The first controller that
ever becomes active goes by it; from then on the metadata says all that.

Kafka: `BootstrapDirectory`, `BootstrapMetadata`.
"""

from __future__ import annotations

import logging

from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.base.ports import Disk
from tidelog.controller.values import FirstMetadata
from tidelog.metadata.features import SUPPORTED_FEATURES, first_levels
from tidelog.metadata.records.cluster import FeatureLevelRecord
from tidelog.metadata.records.scram_credentials import UserScramCredentialRecord
from tidelog.quorum.values import SnapshotId
from tidelog.server.storage.metadata_snapshots import Snapshot, format_snapshot, parse_snapshot

BOOTSTRAP_FILE = "bootstrap.checkpoint"
NOTHING = SnapshotId(Offset(0), LeaderEpoch(0))

logger = logging.getLogger("tidelog.server.metadata_files")


def write_bootstrap_file(disk: Disk, directory: str, first: FirstMetadata, *, now_ms: int) -> None:
    """Return once it would survive a loss of power."""
    levels = (FeatureLevelRecord(name=name, feature_level=level) for name, level in first.levels.items())
    records = (*levels, *first.records)
    disk.write_atomically(f"{directory}/{BOOTSTRAP_FILE}", format_snapshot(Snapshot(NOTHING, records, None, now_ms)))


def read_first_metadata(disk: Disk, directory: str) -> FirstMetadata:
    """What a new cluster begins with: what the file says, and the levels of this release where it says none.

    Raises:
        CorruptLogError: it is damaged.
    """
    path = f"{directory}/{BOOTSTRAP_FILE}"
    if not disk.exists(path):
        return FirstMetadata(first_levels({}))
    told: dict[str, int] = {}
    others: list[object] = []
    for record in parse_snapshot(disk.read_bytes(path), NOTHING, path=path).records:
        if not isinstance(record, FeatureLevelRecord):
            if isinstance(record, UserScramCredentialRecord):
                others.append(record)
            continue
        name, level = record.name, record.feature_level
        lowest, highest = SUPPORTED_FEATURES.get(name, (0, 0))
        if level and not lowest <= level <= highest:
            logger.warning("%s: this release does not work at %s %s; a new cluster begins without", path, name, level)
        else:
            told[name] = level
    return FirstMetadata(first_levels(told), tuple(others))
