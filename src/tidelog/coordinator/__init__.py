"""The coordinator of groups: who is in them, who reads what, and how far they have read."""

from tidelog.coordinator.coordinator import GroupCoordinator
from tidelog.coordinator.memory import GroupMemory
from tidelog.coordinator.settings import GroupSettings

__all__ = ["GroupCoordinator", "GroupMemory", "GroupSettings"]
