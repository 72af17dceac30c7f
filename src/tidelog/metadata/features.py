"""Features: what a node can work at. Which level is in force, the metadata says (`MetadataImage.features`).

The level of `metadata.version` says which records may be in the metadata log, and which requests brokers send to each
other: those that every node of the cluster knows. It is raised by an operator once all nodes run a release that does.
The other features each gate one thing, on top of that. `METADATA_VERSIONS` and `FEATURE_LEVELS` are the table of what
each level of each of them brings.

Whatever is older than the lowest level is always on: the leader epochs of KIP-101, 279 and 320 among others. KIP-1166
has no gate in the metadata quorum, whose nodes use the version of Fetch that both know: they cannot learn of a level
before they have replicated it. Brokers that replicate data go by the level.

Kafka: `MetadataVersion`, `Feature`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

METADATA_VERSION_FEATURE = "metadata.version"
TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
ELIGIBLE_LEADERS_VERSION = "eligible.leader.replicas.version"
KRAFT_VERSION = "kraft.version"
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"


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
        MetadataVersion(11, "3.5-IV2", True, "SCRAM users (KIP-900)"),
        MetadataVersion(12, "3.6-IV0"),
        MetadataVersion(13, "3.6-IV1", True, "transactions of the metadata log (KIP-868)"),
        MetadataVersion(14, "3.6-IV2", True, "delegation tokens (KIP-48)"),
        MetadataVersion(15, "3.7-IV0", True),
        MetadataVersion(16, "3.7-IV1"),
        MetadataVersion(17, "3.7-IV2", True, "log directories of brokers and replicas (KIP-858)"),
        MetadataVersion(18, "3.7-IV3"),
        MetadataVersion(19, "3.7-IV4", False, "replicas fetch with version 16"),
        MetadataVersion(20, "3.8-IV0"),
        MetadataVersion(21, "3.9-IV0", False, "replicas fetch with version 17; kraft.version 1 for new clusters"),
        MetadataVersion(22, "4.0-IV0", False, "group.version 1 for new clusters"),
        MetadataVersion(23, "4.0-IV1", True, "eligible leader replicas (KIP-966), unless their own feature says no"),
        MetadataVersion(24, "4.0-IV2", False, "transaction.version 2 for new clusters"),
        MetadataVersion(25, "4.0-IV3"),
        MetadataVersion(26, "4.1-IV0", False, "eligible.leader.replicas.version 1 for new clusters"),
        MetadataVersion(27, "4.1-IV1", False, "replicas fetch with version 18, which has KIP-1166's field"),
        MetadataVersion(28, "4.2-IV0", False, "eligible.leader.replicas.version is said; controllers (KIP-919) too"),
        MetadataVersion(29, "4.2-IV1"),
        MetadataVersion(30, "4.3-IV0", True, "committed offsets name their topic by its id (OffsetCommitValue 4)"),
    )
}
METADATA_VERSION_MIN = min(METADATA_VERSIONS)
"""Below it fetches of replicas do not tell the broker epoch, and nobody could join an ISR (rule 5). Kafka's is 7."""
METADATA_VERSION = max(METADATA_VERSIONS)
"""What a new cluster begins with."""

SHARE_VERSION_SERVED = 1
"""The level from which on the requests of share groups are served (KIP-932)."""

SCRAM_SINCE = 11
TRANSACTIONS_SINCE = 13
"""The metadata.version from which on the metadata log may hold transactions (KIP-868)."""
DELEGATION_TOKENS_SINCE = 14
"""Likewise, delegation tokens (KIP-48)."""
CONTROLLERS_SINCE = 28
"""The metadata.version from which on the metadata says which controllers registered (KIP-919). Kafka's is 15; releases
of Tidelog that cannot read that record support levels up to 27. Below, the active controller alone knows of them."""
DIRECTORIES_SINCE = 17
ELIGIBLE_LEADERS_SINCE = 23
ELIGIBLE_LEADERS_SAID_SINCE = 28
"""Releases that have no feature for eligible leaders support no such level: from here on the metadata says it."""
TOPICS_OF_OFFSETS_SINCE = 30
FETCH_VERSIONS = ((27, 18), (21, 17), (19, 16), (METADATA_VERSION_MIN, 15))


class FeatureLevel(NamedTuple):
    """A level above 0 of another feature than `metadata.version`.

    Attributes:
        begins_at: the metadata.version from which on a new cluster begins with it, and a release stands for it.
        needs: the lowest metadata.version that it works with.
        is_served: whether this release works at it.
        brings: what is done from it on.
    """

    name: str
    level: int
    begins_at: int
    needs: int
    is_served: bool
    brings: str


FEATURE_LEVELS = (
    FeatureLevel(TRANSACTION_VERSION, 1, 24, 0, True, "tagged fields in the values of the coordinator's log"),
    FeatureLevel(TRANSACTION_VERSION, 2, 24, 0, True, "a producer epoch for each transaction (KIP-890), at clients"),
    FeatureLevel(GROUP_VERSION, 1, 22, 0, True, "the requests of the consumer protocol (KIP-848)"),
    FeatureLevel(ELIGIBLE_LEADERS_VERSION, 1, 26, ELIGIBLE_LEADERS_SINCE, True, "eligible leader replicas (KIP-966)"),
    FeatureLevel(KRAFT_VERSION, 1, 21, 0, True, "the voters stand in the metadata log, and change there (KIP-853)"),
    FeatureLevel(SHARE_VERSION, 1, 28, 0, True, "share groups (KIP-932)"),
    FeatureLevel(STREAMS_VERSION, 1, 29, 0, False, "groups of Kafka Streams (KIP-1071)"),
)
"""Of Kafka's features. Its tools name them all when they ask for a release, so each is known, if at level 0 alone. One
that is not served is never finalized: a client changes what it does by that (Java its transactions).

`kraft.version` is what the metadata log itself says of its voters, and no record of the controller.
"""


def _highest(name: str, *, metadata_version: int | None = None, is_served: bool = True) -> int:
    """The highest level of a feature, as of a level of `metadata.version`, and where that is asked, here."""
    return max(
        (
            one.level
            for one in FEATURE_LEVELS
            if one.name == name
            and (one.is_served or not is_served)
            and (metadata_version is None or one.begins_at <= metadata_version)
        ),
        default=0,
    )


TRANSACTION_VERSION_MAX = _highest(TRANSACTION_VERSION)
GROUP_VERSION_MAX = _highest(GROUP_VERSION)

FeatureRange = tuple[str, int, int]
"""The name of a feature, and the lowest and the highest level that a node can work at."""

SUPPORTED_FEATURES: Mapping[str, tuple[int, int]] = {
    METADATA_VERSION_FEATURE: (METADATA_VERSION_MIN, METADATA_VERSION),
    **{one.name: (0, _highest(one.name)) for one in FEATURE_LEVELS},
}
"""Each feature's lowest and highest level here."""


def metadata_version(features: Mapping[str, int]) -> int:
    """The level in force. A log that names none was begun by this release, which has yet to say so."""
    return features.get(METADATA_VERSION_FEATURE, METADATA_VERSION)


def first_levels(told: Mapping[str, int]) -> dict[str, int]:
    """The levels that a new cluster begins at, for its metadata; who votes is not said there (`kraft.version`).

    Args:
        told: what its operator said of some of them; 0 for a feature that is to stay off.
    """
    level = told.get(METADATA_VERSION_FEATURE, METADATA_VERSION)
    levels = {**release_levels(level), **told}
    levels.pop(KRAFT_VERSION, None)
    if level < ELIGIBLE_LEADERS_SINCE and not levels.get(ELIGIBLE_LEADERS_VERSION):
        levels.pop(ELIGIBLE_LEADERS_VERSION, None)
    return {name: level for name, level in levels.items() if level or name == ELIGIBLE_LEADERS_VERSION}


def release_levels(level: int) -> dict[str, int]:
    """The levels of all features that a release of this metadata.version stands for, as far as they are served.

    Those at level 0 are left out. Kafka: `Feature.defaultLevel`.
    """
    names = dict.fromkeys(one.name for one in FEATURE_LEVELS)
    highest = {name: _highest(name, metadata_version=level) for name in names}
    return {METADATA_VERSION_FEATURE: level, **{name: level for name, level in highest.items() if level}}


def unmet_need(levels: Mapping[str, int]) -> tuple[str, str] | None:
    """A feature that these levels of metadata.version do not suffice for, and why, as a sentence."""
    version = metadata_version(levels)
    for one in FEATURE_LEVELS:
        if levels.get(one.name, 0) >= one.level and version < one.needs:
            needed, found = (level_name(METADATA_VERSION_FEATURE, each) for each in (one.needs, version))
            return one.name, (
                f"{one.name} {one.level} needs metadata.version {needed} or above, and that would be {found}: raise "
                f"it too, or set {one.name} to 0"
            )
    return None


def knows_directories(features: Mapping[str, int]) -> bool:
    """Whether records may name log directories (KIP-858)."""
    return metadata_version(features) >= DIRECTORIES_SINCE


def knows_eligible_leaders(features: Mapping[str, int]) -> bool:
    """Whether records may name eligible leader replicas (KIP-966). Without, an ISR keeps its last member.

    Where `eligible.leader.replicas.version` was never said, metadata.version says it alone: releases that know nothing
    of the feature go by that.
    """
    return metadata_version(features) >= ELIGIBLE_LEADERS_SINCE and features.get(ELIGIBLE_LEADERS_VERSION, 1) > 0


def level_in_force(features: Mapping[str, int], name: str) -> int:
    """The level that the cluster works at, be it said or not."""
    if name == ELIGIBLE_LEADERS_VERSION:
        return int(knows_eligible_leaders(features))
    return features.get(name, 0)


def is_not_served(name: str, level: int) -> bool:
    """Whether Kafka has this level of a feature, and this release does not."""
    return _highest(name) < level <= _highest(name, is_served=False)


def knows_topics_of_offsets(features: Mapping[str, int]) -> bool:
    """Whether the record of a committed offset names the topic by its id, too."""
    return metadata_version(features) >= TOPICS_OF_OFFSETS_SINCE


def knows_controllers(features: Mapping[str, int]) -> bool:
    """Whether records may tell of controllers that registered (KIP-919)."""
    return features.get(METADATA_VERSION_FEATURE, 0) >= CONTROLLERS_SINCE


def replica_fetch_version(features: Mapping[str, int]) -> int:
    """The version of Fetch with which brokers replicate data from each other."""
    level = metadata_version(features)
    return next(version for since, version in FETCH_VERSIONS if level >= since)


def knows_transactions(features: Mapping[str, int]) -> bool:
    """Whether the metadata log may hold transactions (KIP-868)."""
    return features.get(METADATA_VERSION_FEATURE, 0) >= TRANSACTIONS_SINCE


def knows_delegation_tokens(features: Mapping[str, int]) -> bool:
    """Whether the metadata log may hold delegation tokens."""
    return features.get(METADATA_VERSION_FEATURE, 0) >= DELEGATION_TOKENS_SINCE


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
