"""What is set for a share group, as far as the leaders of partitions go by it.

Kafka: `GroupConfig`, `ShareGroupAutoOffsetResetStrategy`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.metadata.configs import BrokerSettings, ConfigKey, group_values
from tidelog.metadata.configs import share_groups as keys
from tidelog.metadata.configs.groups import within_range
from tidelog.share import ShareSettings

_DURATION = re.compile(r"by_duration:P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
_SECONDS = (86_400, 3_600, 60, 1)


@dataclass(frozen=True, slots=True)
class ShareFetchSettings:
    """Of one group.

    Attributes:
        delivery: how its records are delivered.
        begins_ago_ms: it begins with the records of so long ago; 0: with those that come from now on; None: with the
            earliest.
        is_read_committed: whether it is shown records of committed transactions alone.
        may_renew: whether members may lengthen the time for which they have a record.
    """

    delivery: ShareSettings
    begins_ago_ms: int | None
    is_read_committed: bool
    may_renew: bool


def share_settings(broker: BrokerSettings, own: Mapping[str, str]) -> ShareFetchSettings:
    """What is in force for a group.

    Args:
        own: what was set for it. It was checked when it was; a broker may allow less by now.
    """
    values = group_values(own, broker)

    def allowed(key: ConfigKey[int]) -> int:
        return within_range(broker.__getitem__, key, values[key])

    return ShareFetchSettings(
        ShareSettings(
            delivery_count_max=allowed(keys.SHARE_DELIVERY_COUNT_LIMIT),
            lock_ms=allowed(keys.SHARE_RECORD_LOCK_DURATION_MS),
            records_max=allowed(keys.SHARE_PARTITION_MAX_RECORD_LOCKS),
        ),
        begins_ago_ms(values[keys.SHARE_AUTO_OFFSET_RESET]),
        values[keys.SHARE_ISOLATION_LEVEL] == "read_committed",
        values[keys.SHARE_RENEW_ACKNOWLEDGE_ENABLE],
    )


def begins_ago_ms(reset: str) -> int | None:
    """See `ShareFetchSettings.begins_ago_ms`; by `share.auto.offset.reset`, which was checked."""
    if reset == "earliest":
        return None
    duration = _DURATION.fullmatch(reset)
    if duration is None:
        return 0
    parts = zip(duration.groups(default="0"), _SECONDS, strict=True)
    return int(1000 * sum(float(part) * seconds for part, seconds in parts))
