"""What a cluster of `tidelog.testing` raises."""

from __future__ import annotations

from pathlib import Path

from tidelog.base.errors import TidelogError


class ClusterUsageError(TidelogError):
    """What was asked cannot be done as things stand, and nothing was done. Says what to do instead."""


class ClusterFailedError(TidelogError):
    """A node, or the cluster, did not do what it was to do. Carries the end of the logs.

    Attributes:
        log_path: the whole log of the node concerned; of the first node if it is not about one.
    """

    def __init__(self, message: str, log_path: Path) -> None:
        super().__init__(message)
        self.log_path = log_path
