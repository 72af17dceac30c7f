"""How much the metadata may hold of one kind: every node has all of it in memory, and in its snapshots.

Kafka has no such limits. What is there already may be above a limit that was lowered, and stays.
"""

from __future__ import annotations

from tidelog.base.errors import Code, refusal
from tidelog.controller.values import ControllerSettings
from tidelog.metadata.configs.key import ConfigKey
from tidelog.metadata.image import MetadataView


class Room:
    """What is left for one decision.

    Args:
        key: the setting that says how many there may be.
        used: how many there are.
    """

    def __init__(self, metadata: MetadataView, settings: ControllerSettings, key: ConfigKey[int], used: int) -> None:
        self._key = key
        self._count_max = settings.broker_settings(metadata)[key]
        self._left = self._count_max - used

    def take(self, count: int = 1) -> None:
        """There will be so many more. Raises POLICY_VIOLATION: that is too many, and nothing is taken."""
        if count > self._left:
            raise refusal(
                Code.POLICY_VIOLATION,
                f"there may be {self._count_max} in the cluster, and {max(self._left, 0)} are left ({self._key.name})",
            )
        self._left -= count
