"""Finalized features: what every node of the cluster is sure to understand, and how that changes.

Levels go up when an operator says so, and every broker that is registered can work at the new one. They go down only
if that is asked for: safely where the records of both levels are the same, else with the loss of what the lower one
cannot say.

Kafka: `FeatureControlManager`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import PartitionEpoch
from tidelog.controller.leaders import is_active_in
from tidelog.controller.partition_changes import arrived, change_record, with_isr
from tidelog.controller.partition_scan import PartitionScan
from tidelog.controller.topic_rules import TopicRules
from tidelog.controller.values import (
    NO_CONTROLLERS,
    ControllerSettings,
    FeatureToUpdate,
    FirstMetadata,
    QuorumControllers,
    UpdatedFeature,
    UpgradeType,
)
from tidelog.journal import Decision, LongDecision
from tidelog.metadata.configs.min_insync import ALL_BROKERS, MIN_INSYNC
from tidelog.metadata.draft import MetadataDraft
from tidelog.metadata.features import (
    ELIGIBLE_LEADERS_SAID_SINCE,
    ELIGIBLE_LEADERS_SINCE,
    ELIGIBLE_LEADERS_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION_FEATURE,
    METADATA_VERSION_MIN,
    SUPPORTED_FEATURES,
    changes_metadata,
    first_levels,
    is_not_served,
    knows_directories,
    knows_eligible_leaders,
    knows_transactions,
    level_in_force,
    level_name,
    metadata_version,
    unmet_need,
    why_unsupported,
)
from tidelog.metadata.image import MetadataView, PartitionImage
from tidelog.metadata.records.cluster import ConfigRecord, FeatureLevelRecord


def decide_bootstrap(
    metadata: MetadataView, settings: ControllerSettings, first: FirstMetadata | None = None
) -> Decision[None]:
    """What a controller that becomes active adds to the metadata, where that does not say it yet.

    The levels of a new log, and what else it begins with; and `min.insync.replicas` if its file sets it: leaders and
    controllers have to go by the same.

    Args:
        first: for a new log; None for the levels that this release begins at, and nothing else.
    """
    records: list[object] = []
    if METADATA_VERSION_FEATURE not in metadata.features:
        begun = FirstMetadata(first_levels({})) if first is None else first
        records += (FeatureLevelRecord(name=name, feature_level=level) for name, level in begun.levels.items())
        records += begun.records
    min_insync = settings.broker.static.get(MIN_INSYNC)
    if min_insync is not None and MIN_INSYNC not in metadata.configs.get(ALL_BROKERS, {}):
        kind, name = ALL_BROKERS
        records.append(ConfigRecord(resource_type=kind, resource_name=name, name=MIN_INSYNC, value=min_insync))
    return Decision(tuple(records), None)


def decide_update_features(
    metadata: MetadataView,
    settings: ControllerSettings,
    updates: Sequence[FeatureToUpdate],
    *,
    validate_only: bool,
    controllers: QuorumControllers = NO_CONTROLLERS,
) -> LongDecision[tuple[UpdatedFeature, ...]]:
    """Set the levels of features, all of them or none. The results are in the order of the request.

    A level and what it says of partitions count as a whole, however many those are: what was rewritten for a level that
    is not in force yet would be unsettled at the one that is, and the other way round. That is one record for each
    partition that holds what the other level cannot say: whose eligible leaders are known, who is in sync though it is
    away, and at the lowest levels whose directories are known. An operator orders it, seldom, and sees to it that all
    brokers are there and in sync, which leaves few but for the directories.

    Of `kraft.version` it is only said whether it may be raised: the quorum does that, in its own records.
    """
    features = {**metadata.features, KRAFT_VERSION: controllers.kraft_version}
    counts = Counter(update.name for update in updates)
    wanted = {update.name: update.level for update in updates}
    refused: dict[str, KafkaError] = {}
    for update in updates:
        try:
            if counts[update.name] > 1:
                raise refusal(Code.INVALID_REQUEST, f"the request names {update.name} more than once")
            if _check(metadata, features, update, wanted):
                _check_controllers(metadata, settings, update, controllers)
        except KafkaError as error:
            refused[update.name] = error
    records = () if refused else _level_records(metadata.features, updates)
    levels = {**metadata.features, **{record.name: record.feature_level for record in records}}
    unmet = unmet_need(levels)
    if unmet is not None and not refused:
        name = unmet[0] if unmet[0] in counts else METADATA_VERSION_FEATURE
        refused[name] = refusal(Code.INVALID_UPDATE_VERSION, unmet[1])
    if refused:
        return LongDecision(iter(()), tuple(_not_updated(update, refused) for update in updates))
    updated = tuple(UpdatedFeature(one.name, Code.NONE, _why_it_stays(features, one, wanted)) for one in updates)
    if validate_only:
        return LongDecision(iter(()), updated)
    is_divisible = knows_transactions(metadata.features) and knows_transactions(levels)
    return LongDecision(_changes(metadata, settings, levels, records), updated, is_divisible)


def _level_records(features: Mapping[str, int], updates: Sequence[FeatureToUpdate]) -> tuple[FeatureLevelRecord, ...]:
    """What is to be said of levels, `metadata.version` first: what that has no words for goes with it.

    Eligible leaders are a feature of their own. Where it was never said, `metadata.version` gives them; from the level
    on that all nodes know the feature at, the metadata says so.
    """
    named = {update.name: update.level for update in updates}
    wanted = {one.name: one.level for one in updates if one.name != KRAFT_VERSION and not _stays(features, one, named)}
    said = features.get(ELIGIBLE_LEADERS_VERSION)
    level = wanted.get(METADATA_VERSION_FEATURE, metadata_version(features))
    if level < ELIGIBLE_LEADERS_SINCE:
        if said is not None:
            wanted.setdefault(ELIGIBLE_LEADERS_VERSION, 0)
    elif said is None:
        is_lowered = any(one.name == ELIGIBLE_LEADERS_VERSION and _is_downgrade(one) for one in updates)
        if level >= ELIGIBLE_LEADERS_SAID_SINCE and not is_lowered:
            wanted[ELIGIBLE_LEADERS_VERSION] = 1
        elif not is_lowered and not wanted.get(ELIGIBLE_LEADERS_VERSION):
            wanted.pop(ELIGIBLE_LEADERS_VERSION, None)
    known = {ELIGIBLE_LEADERS_VERSION: -1, **features} if level >= ELIGIBLE_LEADERS_SINCE else features
    return tuple(
        FeatureLevelRecord(name=name, feature_level=wanted[name])
        for name in sorted(wanted, key=lambda name: name != METADATA_VERSION_FEATURE)
        if wanted[name] != known.get(name, 0)
    )


def _is_downgrade(update: FeatureToUpdate) -> bool:
    return update.upgrade_type != UpgradeType.UPGRADE


def _changes(
    metadata: MetadataView,
    settings: ControllerSettings,
    levels: Mapping[str, int],
    records: tuple[FeatureLevelRecord, ...],
) -> Iterator[tuple[object, ...]]:
    """The records, in portions; each is the same whether those before it are in `metadata` already or not."""
    before = dict(metadata.features)
    yield from _losses(metadata, settings, before, levels)
    if records:
        yield records
    yield from _gains(metadata, settings, before, levels, records)


def _rewritten(
    metadata: MetadataView,
    settings: ControllerSettings,
    rewrite: Callable[[str, PartitionImage], PartitionImage | None],
) -> Iterator[tuple[object, ...]]:
    """Portions of the partitions that `rewrite` changes, by their topics' names; it returns None for all others."""
    scan = PartitionScan(metadata)
    while not scan.is_done:
        records: list[object] = []
        for name, topic_id, index, before in scan.portion(metadata, settings.partition_changes_max):
            after = rewrite(name, before)
            if after is not None:
                records.append(change_record(topic_id, index, before, after))
                if len(records) == settings.partition_changes_max:
                    break
        yield tuple(records)


def _not_updated(update: FeatureToUpdate, refused: dict[str, KafkaError]) -> UpdatedFeature:
    error = refused.get(update.name)
    if error is None:
        others = ", ".join(refused)
        return UpdatedFeature(update.name, Code.FEATURE_UPDATE_FAILED, f"nothing was changed, because of {others}")
    return UpdatedFeature(update.name, error.code, str(error))


def _check(
    metadata: MetadataView, features: Mapping[str, int], update: FeatureToUpdate, wanted: Mapping[str, int]
) -> bool:
    """Whether one level may be set, as far as brokers are concerned. Returns whether that would be a change.

    Args:
        features: the levels now, that of `kraft.version` included.
        wanted: all levels of the request. Where `metadata.version` is among them, a release of Kafka is asked for. That
            stands for levels of all its features: see `_stays`.
    """
    name, level = update.name, update.level
    metadata_level = wanted.get(METADATA_VERSION_FEATURE, metadata_version(features))
    current = level_in_force(features, name)
    shown, now = level_name(name, level), level_name(name, current)
    if name not in SUPPORTED_FEATURES:
        known = ", ".join(SUPPORTED_FEATURES)
        raise refusal(Code.INVALID_UPDATE_VERSION, f"there is no feature {name!r}; there is {known}")
    if update.upgrade_type not in tuple(UpgradeType):
        raise refusal(
            Code.INVALID_UPDATE_VERSION,
            f"{name}: upgrade type {update.upgrade_type} is none of 1 upgrade, 2 safe downgrade, 3 unsafe downgrade",
        )
    if name == ELIGIBLE_LEADERS_VERSION and level < current and metadata_level >= ELIGIBLE_LEADERS_SINCE:
        if update.upgrade_type == UpgradeType.UPGRADE and metadata_level < ELIGIBLE_LEADERS_SAID_SINCE:
            if name not in features:
                return (
                    False  # a release before 4.1 stands for level 0, and its metadata.version gives them all the same
                )
        elif update.upgrade_type != UpgradeType.UPGRADE:
            _check_supported(metadata, name, current)  # who does not know the feature goes by metadata.version
            return True
    elif level == features.get(name, 0) or _stays(features, update, wanted):
        return False
    if name == METADATA_VERSION_FEATURE and level < METADATA_VERSION_MIN:
        lowest = level_name(name, METADATA_VERSION_MIN)
        raise refusal(Code.INVALID_UPDATE_VERSION, f"{name} {level} is below the lowest level, {lowest}")
    if level < current and name == KRAFT_VERSION:
        raise refusal(
            Code.INVALID_UPDATE_VERSION,
            f"{name} is at {now}: the voters stand in the metadata log, and do not go back into the settings",
        )
    if level < current and update.upgrade_type == UpgradeType.UPGRADE:
        raise refusal(
            Code.INVALID_UPDATE_VERSION,
            f"{name} is at {now}: to go down to {shown}, ask for a downgrade",
        )
    if level > current and update.upgrade_type != UpgradeType.UPGRADE:
        raise refusal(Code.INVALID_UPDATE_VERSION, f"{name} is at {now}: {shown} would be an upgrade, no downgrade")
    _check_supported(metadata, name, level)
    if (
        name == METADATA_VERSION_FEATURE
        and update.upgrade_type == UpgradeType.SAFE_DOWNGRADE
        and changes_metadata(level, current)
    ):
        raise refusal(
            Code.INVALID_UPDATE_VERSION,
            f"{name} is at {now}, and its records can say what those of {shown} cannot: "
            "only an unsafe downgrade, which loses that, gets there",
        )
    return True


def _stays(features: Mapping[str, int], update: FeatureToUpdate, wanted: Mapping[str, int]) -> bool:
    """Whether a feature stays as it is though a release of Kafka is asked for that has it at a higher level: it is not
    served, or a downgrade raises nothing.
    """
    name, level = update.name, update.level
    if name == METADATA_VERSION_FEATURE or METADATA_VERSION_FEATURE not in wanted or name not in SUPPORTED_FEATURES:
        return False
    return is_not_served(name, level) or (_is_downgrade(update) and level > level_in_force(features, name))


def _why_it_stays(features: Mapping[str, int], update: FeatureToUpdate, wanted: Mapping[str, int]) -> str | None:
    if not _stays(features, update, wanted):
        return None
    name, current = update.name, level_in_force(features, update.name)
    is_off = is_not_served(name, update.level)
    return f"{name} stays at {current}: " + (
        "this release does not serve it" if is_off else "a downgrade raises nothing"
    )


def _check_supported(metadata: MetadataView, name: str, level: int) -> None:
    """Whether everybody can work at a level: this controller, and all brokers that are registered, fenced ones too."""
    reason = why_unsupported(name, level, SUPPORTED_FEATURES[name])
    if reason is not None:
        raise refusal(Code.INVALID_UPDATE_VERSION, f"{name} {level_name(name, level)}: the active controller {reason}")
    for broker in metadata.brokers.values():
        ranges = {feature: (lowest, highest) for feature, lowest, highest in broker.features}
        reason = why_unsupported(name, level, ranges.get(name))
        if reason is not None:
            raise refusal(
                Code.INVALID_UPDATE_VERSION,
                f"{name} {level_name(name, level)}: broker {broker.broker_id} {reason}; upgrade it, or unregister it",
            )


def _check_controllers(
    metadata: MetadataView, settings: ControllerSettings, update: FeatureToUpdate, controllers: QuorumControllers
) -> None:
    """Whether all controllers can work at a level that are no brokers: one of them may be the active one next.

    A controller that left the quorum does not count any more, though nothing takes its registration back.
    """
    name, level = update.name, update.level
    shown = f"{name} {level_name(name, level)}"
    known = {**metadata.controllers, **controllers.registered}
    members = {*controllers.voters, *controllers.others} - {settings.node_id}
    for controller_id in sorted(members & known.keys()):
        ranges = {feature: (lowest, highest) for feature, lowest, highest in known[controller_id].features}
        reason = why_unsupported(name, level, ranges.get(name))
        if reason is not None:
            raise refusal(
                Code.INVALID_UPDATE_VERSION,
                f"{shown}: controller {controller_id} {reason}; upgrade it, or take it out of the metadata quorum",
            )
    unknown = sorted(set(controllers.voters) - {settings.node_id, *known, *metadata.brokers})
    if unknown and level > {**metadata.features, KRAFT_VERSION: controllers.kraft_version}.get(name, 0):
        raise refusal(
            Code.INVALID_UPDATE_VERSION,
            f"{shown}: controller {unknown[0]} votes and has not registered, so what it can work at is not known; "
            "start it with this release, or take it out of the metadata quorum",
        )
    if name == KRAFT_VERSION and controllers.why_not_in_log is not None:
        raise refusal(Code.INVALID_UPDATE_VERSION, controllers.why_not_in_log)


def _losses(
    metadata: MetadataView, settings: ControllerSettings, before: Mapping[str, int], levels: Mapping[str, int]
) -> Iterator[tuple[object, ...]]:
    """The records that take out of the metadata what lower levels have no words for.

    Who is eligible to lead holds all that is committed: where nobody is in sync, the eligible ones are taken to be.
    """
    loses_eligible = knows_eligible_leaders(before) and not knows_eligible_leaders(levels)
    loses_directories = knows_directories(before) and not knows_directories(levels)

    def rewrite(_: str, before: PartitionImage) -> PartitionImage | None:
        after = before
        if loses_eligible:
            after = _without_eligible(after)
        if loses_directories and after.directories:
            after = replace(after, directories=())
        if after is before:
            return None
        return arrived(before, replace(after, partition_epoch=PartitionEpoch(before.partition_epoch + 1)))

    if loses_eligible or loses_directories:
        yield from _rewritten(metadata, settings, rewrite)


def _gains(
    metadata: MetadataView,
    settings: ControllerSettings,
    before: Mapping[str, int],
    levels: Mapping[str, int],
    records: tuple[FeatureLevelRecord, ...],
) -> Iterator[tuple[object, ...]]:
    """The records that say what higher levels have words for.

    Whoever kept its seat in an ISR for want of them, though it is not there, is eligible from then on.
    """
    if knows_eligible_leaders(before) or not knows_eligible_leaders(levels):
        return
    leveled = MetadataDraft(metadata)
    for record in records:
        leveled.apply(record)
    rules, is_active = TopicRules(leveled, settings), is_active_in(metadata)

    def rewrite(name: str, before: PartitionImage) -> PartitionImage | None:
        isr = [broker for broker in before.isr if is_active(broker) or broker == before.leader]
        if len(isr) == len(before.isr):
            return None
        return with_isr(before, isr, min_insync_replicas=rules.min_insync(name))

    yield from _rewritten(metadata, settings, rewrite)


def _without_eligible(partition: PartitionImage) -> PartitionImage:
    eligible = partition.eligible_leader_replicas
    if not eligible and not partition.last_known_eligible_leader_replicas:
        return partition
    return replace(
        partition,
        isr=partition.isr or eligible,
        eligible_leader_replicas=(),
        last_known_eligible_leader_replicas=(),
    )
