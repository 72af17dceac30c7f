"""Which version of an API two peers speak: the highest that both know."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.base.errors import UnsupportedVersionError
from tidelog.wire import api


class PeerVersions:
    """What a broker said that it serves.

    Args:
        peer: how to name it in errors.
        ranges: by API key, the lowest and highest version, both inclusive.
        features: the levels that the cluster has finalized, by name (KIP-584).
    """

    __slots__ = ("_chosen", "features", "peer", "ranges")

    def __init__(
        self, peer: str, ranges: Mapping[int, tuple[int, int]], features: Mapping[str, int] | None = None
    ) -> None:
        self.peer = peer
        self.ranges = dict(ranges)
        self.features = dict(features or {})
        self._chosen: dict[int, int] = {}

    def serves(self, api_key: int, version: int) -> bool:
        """Whether the peer serves this version."""
        low, high = self.ranges.get(api_key, (0, -1))
        return low <= version <= high

    def version(self, api_key: int, *, min_version: int = 0, max_version: int | None = None) -> int:
        """The highest version that the peer serves and we have, within the caller's limits.

        Raises:
            UnsupportedVersionError: there is none. Names the API, its versions there and here, and what to do.
        """
        if min_version == 0 and max_version is None:
            chosen = self._chosen.get(api_key)
            if chosen is None:
                chosen = self._chosen[api_key] = self._choose(api_key, 0, None)
            return chosen
        return self._choose(api_key, min_version, max_version)

    def _choose(self, api_key: int, min_version: int, max_version: int | None) -> int:
        ours = api(api_key)
        low = max(ours.min_version, min_version)
        high = ours.max_version if max_version is None else min(ours.max_version, max_version)
        theirs = self.ranges.get(api_key)
        if theirs is None:
            raise UnsupportedVersionError(
                f"{self.peer} does not serve {ours.name} (API key {api_key}), which is needed here:"
                " is it a broker, and not too old?"
            )
        if min(high, theirs[1]) < max(low, theirs[0]):
            age = "old" if theirs[1] < low else "new"
            raise UnsupportedVersionError(
                f"{self.peer} is too {age}: it serves {ours.name} in versions {theirs[0]}-{theirs[1]},"
                f" and versions {low}-{high} are needed here"
            )
        return min(high, theirs[1])
