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

    Examples:

        tidelog features upgrade --feature metadata.version=21
        tidelog features upgrade --feature metadata.version=21 --dry-run
    """

    feature: tuple[tuple[str, str], ...] = option(
        "--feature", type=KeyValue(), multiple=True, metavar="NAME=LEVEL", help="What to raise. May be repeated."
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

    Level 0 is to be without the feature.

    Example:

        tidelog features downgrade --feature metadata.version=20
    """

    feature: tuple[tuple[str, str], ...] = option(
        "--feature", type=KeyValue(), multiple=True, metavar="NAME=LEVEL", help="What to lower. May be repeated."
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
    updates = _updates(command.feature, upgrade_type)
    with open_admin(command.bootstrap, command.timeout, command.log_level) as admin:
        admin.update_features(updates, validate_only=command.dry_run)
        if command.dry_run:
            return Rows([{"feature": name, "level": each.level, "done": False} for name, each in updates.items()])
        found = admin.describe_features()
    return Rows([_row(found[name]) for name in updates if name in found], nothing="done")


def _updates(features: tuple[tuple[str, str], ...], upgrade_type: UpgradeType) -> dict[str, FeatureUpdate]:
    from tidelog.client.admin.cluster_descriptions import FeatureUpdate

    if not features:
        raise UsageError("nothing is to be changed: say --feature NAME=LEVEL, such as --feature metadata.version=21")
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
