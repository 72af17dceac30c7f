"""Features: what a node can work at. Which level is in force, the metadata says (`MetadataImage.features`).

The level of `metadata.version` says which records may be in the metadata log, and which requests brokers send to each
other: those that every node of the cluster knows. It is raised by an operator once all nodes run a release that does.

Whatever is older than the lowest level is always on: the leader epochs of KIP-101, 279 and 320 among others. KIP-1166
has no gate in the metadata quorum, whose nodes use the version of Fetch that both know: they cannot learn of a level
before they have replicated it. Brokers that replicate data go by the level.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

METADATA_VERSION_FEATURE = "metadata.version"
TRANSACTION_VERSION = "transaction.version"


class MetadataVersion(NamedTuple):
    """A level of `metadata.version`.

    Attributes:
        name: the release of Kafka that has it, and which of its levels it is.
        changes_metadata: records are written from here on that nodes of the level below do not know.
        brings: what of it is used here; nothing for the others, which are there to be counted.
    """

    level: int
    name: str
    changes_metadata: bool = False
    brings: str = ""


METADATA_VERSIONS: Mapping[int, MetadataVersion] = {
    version.level: version
    for version in (
        MetadataVersion(10, "3.5-IV1", True, "controlled shutdown (KIP-841), broker epochs in fetches (KIP-903)"),
        MetadataVersion(11, "3.5-IV2", True),
        MetadataVersion(12, "3.6-IV0"),
        MetadataVersion(13, "3.6-IV1", True, "transactions of the metadata log (KIP-868)"),
        MetadataVersion(14, "3.6-IV2", True),
        MetadataVersion(15, "3.7-IV0", True),
        MetadataVersion(16, "3.7-IV1"),
        MetadataVersion(17, "3.7-IV2", True, "log directories of brokers and replicas (KIP-858)"),
        MetadataVersion(18, "3.7-IV3"),
        MetadataVersion(19, "3.7-IV4"),
        MetadataVersion(20, "3.8-IV0"),
        MetadataVersion(21, "3.9-IV0"),
        MetadataVersion(22, "4.0-IV0"),
        MetadataVersion(23, "4.0-IV1", True, "eligible leader replicas (KIP-966)"),
        MetadataVersion(24, "4.0-IV2"),
        MetadataVersion(25, "4.0-IV3"),
        MetadataVersion(26, "4.1-IV0"),
        MetadataVersion(27, "4.1-IV1", False, "replicas fetch with version 18, which has KIP-1166's field"),
    )
}
METADATA_VERSION_MIN = min(METADATA_VERSIONS)
"""Below it fetches of replicas do not tell the broker epoch, and nobody could join an ISR (rule 5). Kafka's is 7."""
METADATA_VERSION = max(METADATA_VERSIONS)
"""What a new cluster begins with."""

TRANSACTION_VERSION_MAX = 2
"""1: the coordinator's log has tagged fields. 2: each transaction has a producer epoch of its own (KIP-890). A
client of version 2 looks at the level; the coordinator goes by the version of its requests."""

GROUP_VERSION = "group.version"
GROUP_VERSION_MAX = 1
"""1: the requests of the consumer protocol are served (KIP-848). """

TRANSACTIONS_SINCE = 13
"""The metadata.version from which on the metadata log may hold transactions (KIP-868)."""
DIRECTORIES_SINCE = 17
TRANSACTION_VERSION_SINCE = 22
"""The metadata.version from which on a new cluster begins at the highest transaction.version, as Kafka 4.0 does."""
GROUP_VERSION_SINCE = 22
"""Likewise of group.version."""
ELIGIBLE_LEADERS_SINCE = 23
FETCH_VERSIONS = ((27, 18), (21, 17), (19, 16), (METADATA_VERSION_MIN, 15))

FeatureRange = tuple[str, int, int]
"""The name of a feature, and the lowest and the highest level that a node can work at."""

NOT_SERVED_FEATURES = (
    "eligible.leader.replicas.version",
    "kraft.version",
    "share.version",
    "streams.version",
)
"""Kafka's others. Its tools name them all when they ask for a release, so each is known, at level 0. None is ever
finalized: a client changes what it does by that (Java its transactions)."""

SUPPORTED_FEATURES: Mapping[str, tuple[int, int]] = {
    METADATA_VERSION_FEATURE: (METADATA_VERSION_MIN, METADATA_VERSION),
    TRANSACTION_VERSION: (0, TRANSACTION_VERSION_MAX),
    GROUP_VERSION: (0, GROUP_VERSION_MAX),
    **dict.fromkeys(NOT_SERVED_FEATURES, (0, 0)),
}
"""Each feature's lowest and highest level here."""


def metadata_version(features: Mapping[str, int]) -> int:
    """The level in force. A log that names none was begun by this release, which has yet to say so."""
    return features.get(METADATA_VERSION_FEATURE, METADATA_VERSION)


def first_levels(told: Mapping[str, int]) -> dict[str, int]:
    """The levels that a new cluster begins at.

    Args:
        told: what its operator said of some of them; 0 for a feature that is to stay off.
    """
    level = told.get(METADATA_VERSION_FEATURE, METADATA_VERSION)
    defaults = {METADATA_VERSION_FEATURE: level}
    if level >= TRANSACTION_VERSION_SINCE:
        defaults[TRANSACTION_VERSION] = TRANSACTION_VERSION_MAX
    if level >= GROUP_VERSION_SINCE:
        defaults[GROUP_VERSION] = GROUP_VERSION_MAX
    return {name: level for name, level in {**defaults, **told}.items() if level}


def knows_directories(features: Mapping[str, int]) -> bool:
    """Whether records may name log directories (KIP-858)."""
    return metadata_version(features) >= DIRECTORIES_SINCE


def knows_eligible_leaders(features: Mapping[str, int]) -> bool:
    """Whether records may name eligible leader replicas (KIP-966). Without, an ISR keeps its last member."""
    return metadata_version(features) >= ELIGIBLE_LEADERS_SINCE


def replica_fetch_version(features: Mapping[str, int]) -> int:
    """The version of Fetch with which brokers replicate data from each other."""
    level = metadata_version(features)
    return next(version for since, version in FETCH_VERSIONS if level >= since)


def knows_transactions(features: Mapping[str, int]) -> bool:
    """Whether the metadata log may hold transactions (KIP-868)."""
    return features.get(METADATA_VERSION_FEATURE, 0) >= TRANSACTIONS_SINCE


def changes_metadata(low: int, high: int) -> bool:
    """Whether there are records at level `high` that are unknown at level `low`."""
    return any(METADATA_VERSIONS[level].changes_metadata for level in range(low + 1, high + 1))


def level_name(feature: str, level: int) -> str:
    """As people know it: `27 (4.1-IV1)`; of other features the number alone."""
    known = METADATA_VERSIONS.get(level) if feature == METADATA_VERSION_FEATURE else None
    return str(level) if known is None else f"{level} ({known.name})"


def metadata_version_named(text: str) -> int | None:
    """The level that a person means: its number, its name, or a release, which stands for its last level."""
    if text.isascii() and text.isdecimal():
        return int(text) if int(text) in METADATA_VERSIONS else None
    release = ".".join(text.split(".")[:2])  # patches bring no levels
    return max(
        (one.level for one in METADATA_VERSIONS.values() if text == one.name or one.name.startswith(f"{release}-IV")),
        default=None,
    )


def unsupported(finalized: Mapping[str, int], supported: Iterable[FeatureRange] | None = None) -> str | None:
    """Why a node cannot work in a cluster with these levels; None if it can.

    Args:
        supported: what the node says; None for this one.
    """
    ranges = own_features() if supported is None else supported
    levels = {name: (lowest, highest) for name, lowest, highest in ranges}
    for name, level in finalized.items():
        reason = why_unsupported(name, level, levels.get(name))
        if reason is not None:
            return f"the cluster is at {name} {level_name(name, level)}, and this node {reason}"
    return None


def why_unsupported(name: str, level: int, supported: tuple[int, int] | None) -> str | None:
    """Why a level is not for somebody who supports this range of a feature; as the end of a sentence."""
    if supported is None:
        return f"knows no {name}" if level else None
    lowest, highest = supported
    if lowest <= level <= highest or level == 0 == lowest:
        return None
    if highest == 0:
        return "does not serve it"
    return f"supports {level_name(name, lowest)} to {level_name(name, highest)}"


def own_features() -> tuple[FeatureRange, ...]:
    """What a node of this release registers with."""
    return tuple((name, lowest, highest) for name, (lowest, highest) in SUPPORTED_FEATURES.items())
