"""`tidelog features`: what the whole cluster works at, and what its nodes could work at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.cli.command import (
    KeyValue,
    UsageError,
    bootstrap_option,
    log_level_option,
    open_admin,
    option,
    output_option,
    timeout_option,
)
from tidelog.cli.output import Row, Rows

if TYPE_CHECKING:
    from tidelog.client.admin.cluster_descriptions import FeatureDescription, FeatureUpdate, UpgradeType


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeFeatures:
    """Show the level of each feature that the cluster works at, and those that the asked node could work at.

    Example:

        tidelog features describe
    """

    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        with open_admin(self.bootstrap, self.timeout, self.log_level) as admin:
            return Rows([_row(each) for each in admin.describe_features().values()], nothing="no features")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeFeatures:
    """Raise the level of features, once every node runs a release that knows it.

    The last step of a rolling upgrade: from then on metadata may hold what older releases cannot read.

    A release stands for levels of all features: those that Kafka's release of that name begins with, as far as they are
    served here.

    Examples:

        tidelog features upgrade --release-version 4.3 --dry-run
        tidelog features upgrade --release-version 4.3
        tidelog features upgrade --feature metadata.version=30
    """

    feature: tuple[tuple[str, str], ...] = option(
        "--feature", type=KeyValue(), multiple=True, metavar="NAME=LEVEL", help="What to raise. May be repeated."
    )
    release_version: str | None = option(
        "--release-version", default=None, metavar="RELEASE", help="In place of levels: those of this release."
    )
    dry_run: bool = option("--dry-run", is_flag=True, help="Check, and change nothing.")
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        return _update(self, "upgrade")


@dataclass(frozen=True, slots=True, kw_only=True)
class DowngradeFeatures:
    """Lower the level of features; refused where metadata would be lost by it, but for --unsafe.

    Level 0 is to be without the feature. What a release stands for raises nothing here, and kraft.version stays: see
    `tidelog features upgrade`.

    Examples:

        tidelog features downgrade --release-version 4.1 --unsafe
        tidelog features downgrade --feature metadata.version=27
    """

    feature: tuple[tuple[str, str], ...] = option(
        "--feature", type=KeyValue(), multiple=True, metavar="NAME=LEVEL", help="What to lower. May be repeated."
    )
    release_version: str | None = option(
        "--release-version", default=None, metavar="RELEASE", help="In place of levels: those of this release."
    )
    unsafe: bool = option("--unsafe", is_flag=True, help="Even if metadata is lost by it.")
    dry_run: bool = option("--dry-run", is_flag=True, help="Check, and change nothing.")
    bootstrap: str = bootstrap_option()
    timeout: float = timeout_option()
    output: str = output_option()
    log_level: str = log_level_option()

    def run(self) -> Rows:
        return _update(self, "unsafe downgrade" if self.unsafe else "safe downgrade")


def _update(command: UpgradeFeatures | DowngradeFeatures, upgrade_type: UpgradeType) -> Rows:
    updates = _updates(_levels(command, is_upgrade=upgrade_type == "upgrade"), upgrade_type)
    with open_admin(command.bootstrap, command.timeout, command.log_level) as admin:
        admin.update_features(updates, validate_only=command.dry_run)
        found = admin.describe_features()
    if command.dry_run:
        before = {name: found[name].level if name in found else None for name in updates}
        return Rows(
            [{"feature": name, "from": before[name], "to": one.level, "done": False} for name, one in updates.items()]
        )
    return Rows([_row(found[name]) for name in updates if name in found], nothing="done")


def _levels(command: UpgradeFeatures | DowngradeFeatures, *, is_upgrade: bool) -> tuple[tuple[str, str], ...]:
    """What was typed; for a release, the levels of its features. Raises UsageError."""
    if command.release_version is None:
        return command.feature
    from tidelog.metadata.features import (
        FEATURE_LEVELS,
        KRAFT_VERSION,
        METADATA_VERSION,
        METADATA_VERSIONS,
        metadata_version_named,
        release_levels,
    )

    if command.feature:
        raise UsageError("--feature and --release-version exclude each other: a release stands for all levels")
    level = None if command.release_version.isdecimal() else metadata_version_named(command.release_version)
    if level is None:
        releases = dict.fromkeys(version.name.partition("-")[0] for version in METADATA_VERSIONS.values())
        raise UsageError(
            f"--release-version {command.release_version}: no such release is known here; "
            f"there are {', '.join(releases)}, and levels such as {METADATA_VERSIONS[METADATA_VERSION].name}"
        )
    levels = release_levels(level)
    if not is_upgrade:
        served = (one.name for one in FEATURE_LEVELS if one.is_served)
        levels = {name: one for name, one in {**dict.fromkeys(served, 0), **levels}.items() if name != KRAFT_VERSION}
    return tuple((name, str(one)) for name, one in levels.items())


def _updates(features: tuple[tuple[str, str], ...], upgrade_type: UpgradeType) -> dict[str, FeatureUpdate]:
    from tidelog.client.admin.cluster_descriptions import FeatureUpdate

    if not features:
        raise UsageError(
            "nothing is to be changed: say --feature NAME=LEVEL, such as --feature metadata.version=30, or "
            "--release-version RELEASE, such as 4.3"
        )
    updates: dict[str, FeatureUpdate] = {}
    for name, level in features:
        if name in updates:
            raise UsageError(f"--feature {name} is named more than once: which is meant?")
        if not level.isascii() or not level.isdecimal() or int(level) > 32_767:
            raise UsageError(f"--feature {name}={level}: a level is a number from 0 to 32767")
        updates[name] = FeatureUpdate(int(level), upgrade_type)
    return updates


def _row(feature: FeatureDescription) -> Row:
    lowest, highest = feature.supported or (None, None)
    return {
        "feature": feature.name,
        "level": feature.level,
        "supported_min": lowest,
        "supported_max": highest,
    }
