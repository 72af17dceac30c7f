"""Bugs planted in what brokers know of users and rights, while whole clusters run; and how many seeds it takes.

As a program it prints the table, in some minutes:
`PYTHONPATH=tests python tests/support/old_rules/planted_in_security_runs.py [NAME...]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from support.old_rules.planted import Patch, print_planted, run_cluster, seek
from support.old_rules.planted_bugs import Found
from tidelog.metadata import MetadataDelta, MetadataImage
from tidelog.security.acl_index import AclIndex
from tidelog.server.api.tokens import TokenGate
from tidelog.server.broker.access_rules import AccessRules
from tidelog.server.node import Node
from tidelog.sim.faults.faults import Fault
from tidelog.sim.runs.cluster_plan import ClusterPlan
from tidelog.sim.runs.security_plan import SecurityPlan
from tidelog.sim.runs.workload import WorkloadPlan
from tidelog.wire.api import ApiKey

SEEDS_MAX = 10
MINUTES = 0.15
CLIENTS = WorkloadPlan(
    producers=0, consumers=0, interval_ms=50, replication_factor=3, min_insync_replicas=2, syncs_each=False
)
PLAN = ClusterPlan(clients=CLIENTS, session_ms=1_000, lag_ms_max=1_000, fetch_timeout_ms=500, checkpoint_ms=60_000)
SECURITY = SecurityPlan(operators=3, interval_ms=100, readers=2)
KILLS = tuple(Fault("controller killed", at_ms, lasts_ms=700) for at_ms in (2_000, 4_500))
ISOLATIONS = tuple(Fault("controller isolated", at_ms, lasts_ms=3_000) for at_ms in (500, 4_000))


@dataclass(frozen=True)
class PlantedInSecurity:
    """One bug.

    Attributes:
        rule: that it breaks.
        words: what is done wrong.
        invariants: one of which is found broken.
        faults: that it takes.
    """

    rule: str
    words: str
    plant: Patch
    invariants: frozenset[str]
    faults: tuple[Fault, ...] = ISOLATIONS


def _gate_without(**fields: Any) -> Patch:
    """What a gate knows when it is made, but for that."""
    init = TokenGate.__init__

    def plant(patch: pytest.MonkeyPatch) -> None:
        def made(self: TokenGate, *args: Any, **kwargs: Any) -> None:
            init(self, *args, **kwargs)
            for name, weaken in fields.items():
                setattr(self, name, weaken(getattr(self, name)))

        patch.setattr(TokenGate, "__init__", made)

    return plant


def _rules_of_the_image_before(patch: pytest.MonkeyPatch) -> None:
    on_image_changed = AccessRules.on_image_changed
    before: WeakKeyDictionary[AccessRules, AclIndex] = WeakKeyDictionary()

    def late(self: AccessRules, delta: MetadataDelta, image: MetadataImage) -> None:
        on_image_changed(self, delta, image)
        known, before[self] = before.get(self), self._index
        if known is not None and self._authorizer.index is not None:
            self._authorizer.index = known

    patch.setattr(AccessRules, "on_image_changed", late)


async def _at_once(*_: object) -> None:
    """Wait for nothing."""


def _without_logins(denials: dict[int, object]) -> dict[int, object]:
    return {key: denied for key, denied in denials.items() if key != ApiKey.SASL_AUTHENTICATE}


WRITES_AND_RIGHTS = frozenset({"OwnWritesSeen", "RevokedStaysDenied"})
PLANTED: Mapping[str, PlantedInSecurity] = {
    "reads-from-the-past": PlantedInSecurity(
        "KIP-1243 T3",
        "A broker answers whatever the client has seen elsewhere.",
        lambda patch: patch.setattr(TokenGate, "is_reached", lambda *_: True),
        WRITES_AND_RIGHTS | {"MetadataNeverGoesBack"},
    ),
    "answered-at-once": PlantedInSecurity(
        "KIP-1243 T4",
        "A change is answered before the client's broker knows of it.",
        lambda patch: patch.setattr(Node, "caught_up", _at_once),
        WRITES_AND_RIGHTS,
    ),
    "rights-from-the-past": PlantedInSecurity(
        "KIP-1243 T15",
        "With an authorizer only those requests wait that wait without one.",
        _gate_without(_authorized=lambda _: frozenset()),
        WRITES_AND_RIGHTS,
    ),
    "logins-from-the-past": PlantedInSecurity(
        "KIP-1243 T16",
        "A login is compared with the users that the broker knows, whatever the client has seen.",
        _gate_without(_denials=_without_logins),
        WRITES_AND_RIGHTS,
    ),
    "rules-come-late": PlantedInSecurity(
        "KIP-1243 T3",
        "The authorizer goes by the access rules of the image before the published one.",
        _rules_of_the_image_before,
        WRITES_AND_RIGHTS,
        (),
    ),
}


def seeds_until_found(bug: PlantedInSecurity, first_seed: int, seeds_max: int) -> Found | None:
    """How many seeds in a row it takes, and what is said then; None where so many do not find it."""
    plan = replace(PLAN, security=SECURITY)
    return seek(bug, lambda seed: run_cluster(plan, bug.faults, seed, MINUTES).recorder.broken, first_seed, seeds_max)


if __name__ == "__main__":
    print_planted(PLANTED, seeds_until_found, SEEDS_MAX)
