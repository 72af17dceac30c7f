"""The coordinator of groups: who is in them, who reads what, and how far they have read."""

from tidelog.coordinator.groups.coordinator import GroupCoordinator
from tidelog.coordinator.groups.settings import GroupSettings

__all__ = ["GroupCoordinator", "GroupSettings"]
