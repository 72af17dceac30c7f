"""A real cluster in a test, with faults to inject. `docs/testing.md` tells how; the pytest plugin is `plugin`."""

from __future__ import annotations

TYPE_CHECKING = False  # as in `tidelog`: pytest imports this package for every run of everybody who has it installed
if TYPE_CHECKING:
    from tidelog.testing.cluster import Cluster, ClusterFactory
    from tidelog.testing.errors import ClusterFailedError, ClusterUsageError
    from tidelog.testing.links import CLIENTS
    from tidelog.testing.node import Node
    from tidelog.testing.truncation import LostRecords

__all__ = ["CLIENTS", "Cluster", "ClusterFactory", "ClusterFailedError", "ClusterUsageError", "LostRecords", "Node"]

_HOMES = {
    "CLIENTS": "links",
    "Cluster": "cluster",
    "ClusterFactory": "cluster",
    "LostRecords": "truncation",
    "Node": "node",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'tidelog.testing' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"tidelog.testing.{_HOMES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
