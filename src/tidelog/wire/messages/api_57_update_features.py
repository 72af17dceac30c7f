"""UpdateFeatures (key 57): raise or lower the level of features that the whole cluster runs with (KIP-584).

Version 1 can try without doing, and tells safe downgrades from unsafe ones, 2 answers for all at once: either every
update was made or none. All are flexible.
"""

from __future__ import annotations

from tidelog.wire.schema import array, boolean, field, int8, int16, int32, message, string, struct

UPGRADE = 1
SAFE_DOWNGRADE = 2
UNSAFE_DOWNGRADE = 3
"""Whether the level may go down, and whether metadata may be lost by it."""


@struct
class FeatureUpdateKey:
    """The level that one feature shall have."""

    feature: str = field(string, doc="The feature, as `metadata.version`.")
    max_version_level: int = field(int16, doc="The level; below 1: without the feature.")
    allow_downgrade: bool = field(boolean, versions="0", default=False, doc="Whether it may go down (version 0).")
    upgrade_type: int = field(int8, versions="1+", default=UPGRADE, doc="1: up only; 2: down, safely; 3: down.")


@message(api_key=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest:
    """Set the levels of features."""

    timeout_ms: int = field(int32, default=60_000, doc="How long to wait for it.")
    feature_updates: list[FeatureUpdateKey] = field(array(FeatureUpdateKey), doc="The features, each once.")
    validate_only: bool = field(boolean, versions="1+", default=False, doc="Whether only to say what would happen.")


@struct
class UpdatableFeatureResult:
    """What became of one feature."""

    feature: str = field(string, doc="The feature.")
    error_code: int = field(int16, default=0, doc="0 if it has the level that was asked for.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="Why it has not.")


@message(api_key=57, versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    """Whether the levels are set."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="Why nothing was done.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="Likewise, in words.")
    results: list[UpdatableFeatureResult] = field(
        array(UpdatableFeatureResult), versions="0-1", default_factory=list, ignorable=True, doc="Per feature."
    )
