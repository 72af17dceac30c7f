"""Releases and levels under load: nodes are upgraded and taken back one by one, and `metadata.version` follows."""

from __future__ import annotations

from collections.abc import Iterator

from chaos.fault import Fault, Hurt, Stage
from support.nodes.cluster import ClusterNode
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.cluster_descriptions import FeatureUpdate
from tidelog.metadata.features import METADATA_VERSION, METADATA_VERSION_FEATURE, METADATA_VERSION_MIN

OLD_RELEASES = (METADATA_VERSION_MIN, 16, 17, 20, 22, 24, 27, METADATA_VERSION - 1)
"""The highest level that each of them can work at: before and after those that bring something (features.py)."""
_PROGRAM = """
import tidelog.metadata.features as features
features.SUPPORTED_FEATURES |= {{features.METADATA_VERSION_FEATURE: ({lowest}, {highest})}}
from tidelog.cli.app import main
main()
"""


def roll(stage: Stage) -> Iterator[str]:
    """All nodes to an older release, one by one; then to ours again, with second thoughts; then the level goes up."""
    old, dice = stage.dice.choice(OLD_RELEASES), stage.dice
    _set_level(stage, old)
    nodes = list(stage.cluster.nodes.values())
    for node in dice.sample(nodes, len(nodes)):
        _install(stage, node, old)
    yield f"all run a release of level {old}"
    wavering = dice.choice(nodes)
    _install(stage, wavering, None)
    yield f"{wavering} runs ours"
    _install(stage, wavering, old)
    for node in dice.sample(nodes, len(nodes)):
        _install(stage, node, None)
        yield f"{node} runs ours"
    between = range(old + 1, METADATA_VERSION)
    for level in [*sorted(dice.sample(between, min(2, len(between)))), METADATA_VERSION]:
        _set_level(stage, level)
        yield f"level {level}"


def change_level(stage: Stage) -> Iterator[str]:
    """The level goes down, though metadata is lost by it, and up again, while all run ours."""
    for level in (stage.dice.randrange(METADATA_VERSION_MIN, METADATA_VERSION), METADATA_VERSION):
        _set_level(stage, level)
        yield f"level {level}"


def kill_at_lower_level(stage: Stage) -> Iterator[str]:
    """A node is killed while the cluster works at a lower level, and comes back to a higher one."""
    level = stage.dice.choice(OLD_RELEASES)
    _set_level(stage, level)
    stage.go_on()
    node = stage.victim()
    node.kill()
    yield f"{node}, at level {level}"
    stage.go_on()
    _set_level(stage, METADATA_VERSION)
    node.start()


def _install(stage: Stage, node: ClusterNode, highest: int | None) -> None:
    """Stop it, let it run a release of that level (None: ours) and wait until all is in sync, as an operator does."""
    node.stop()
    node.program = None if highest is None else _PROGRAM.format(lowest=METADATA_VERSION_MIN, highest=highest)
    stage.go_on()
    node.start()
    stage.until_in_sync()


def _set_level(stage: Stage, level: int) -> None:
    with Admin(stage.cluster.bootstrap) as admin:
        now = admin.describe_features()[METADATA_VERSION_FEATURE].level
        assert now is not None
        if level != now:
            update = FeatureUpdate(level, "upgrade" if level > now else "unsafe downgrade")
            admin.update_features({METADATA_VERSION_FEATURE: update})


FAULTS = tuple(
    Fault(kind=kind, strike=strike, hurts=Hurt.OPERATOR, seconds=seconds, is_mixed=False)
    for kind, strike, seconds in (
        ("rolling upgrade", roll, (0.0, 1.0)),
        ("metadata level changes", change_level, (0.0, 3.0)),
        ("kill -9 between metadata levels", kill_at_lower_level, (0.0, 6.0)),
    )
)
