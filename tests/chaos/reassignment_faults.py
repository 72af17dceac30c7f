"""Partitions move between nodes under load: throttled or not, given up, past the death of a node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from chaos.fault import Fault, Hurt, Stage
from chaos.play import REPLICAS
from support.fixtures.waiting import wait_until
from tidelog.base.errors import Code, TidelogError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.descriptions import ConfigResource

NODES = 4
"""One more than replicas, so that there is a place to move to."""
SETTLE_SECONDS_MAX = 120.0
THROTTLES = (20_000, 200_000, 2_000_000)
GIVEN_UP = 0.6
ALL_BROKERS = ConfigResource("broker", "")
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
THROTTLED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")

_Moves = Mapping[TopicPartition, Sequence[int] | None]


def move(stage: Stage) -> Iterator[str]:
    """All partitions, to other replicas in another order, leaders too."""
    moves = _moves(stage)
    _order(stage, moves)
    yield _told(moves)
    _until_moved(stage)
    _prefer(stage)


def move_throttled(stage: Stage) -> Iterator[str]:
    """All partitions, held up to few bytes a second on both sides; then as fast as they can."""
    moves, rate = _moves(stage), stage.dice.choice(THROTTLES)
    _throttle(stage, rate)
    _order(stage, moves)
    yield f"{_told(moves)}, {rate} bytes/s"
    _lift_throttle(stage)
    _until_moved(stage)
    _prefer(stage)


def give_up(stage: Stage) -> Iterator[str]:
    """Some are given up while they move, and stay where they were; some are sent elsewhere."""
    moves, other = _moves(stage), _moves(stage)
    _throttle(stage, min(THROTTLES))
    _order(stage, moves)
    yield _told(moves)
    changed = {one: None if stage.dice.random() < GIVEN_UP else replicas for one, replicas in other.items()}
    _order(stage, changed)
    yield f"instead {_told(changed)}"
    _lift_throttle(stage)
    _until_moved(stage)


def kill_while_moving(stage: Stage) -> Iterator[str]:
    """A node is killed while partitions move: any, that which leads, or decides, or is moved to."""
    moves, node = _moves(stage), stage.victim()
    _throttle(stage, stage.dice.choice(THROTTLES))
    _order(stage, moves)
    node.kill()
    yield f"{_told(moves)}; {node} is killed"
    _lift_throttle(stage)
    node.start()
    _until_moved(stage)
    _prefer(stage)


def _throttle(stage: Stage, bytes_per_second: int) -> None:
    """Of every broker, for all replicas of the topic."""
    topic = ConfigResource("topic", stage.topic)
    with Admin(stage.cluster.bootstrap) as admin:
        admin.alter_configs(
            {topic: dict.fromkeys(THROTTLED, "*"), ALL_BROKERS: dict.fromkeys(RATES, str(bytes_per_second))}
        )


def _lift_throttle(stage: Stage) -> None:
    topic = ConfigResource("topic", stage.topic)
    with Admin(stage.cluster.bootstrap) as admin:
        admin.alter_configs({topic: dict.fromkeys(THROTTLED), ALL_BROKERS: dict.fromkeys(RATES)})


def _moves(stage: Stage) -> dict[TopicPartition, Sequence[int] | None]:
    ids = sorted(stage.cluster.nodes)
    return {
        TopicPartition(stage.topic, PartitionIndex(index)): stage.dice.sample(ids, REPLICAS)
        for index in range(stage.partitions)
    }


def _order(stage: Stage, moves: _Moves) -> None:
    with Admin(stage.cluster.bootstrap) as admin:
        for partition, outcome in admin.alter_partition_reassignments(moves).items():
            error = outcome.error
            assert error is None or error.code is Code.NO_REASSIGNMENT_IN_PROGRESS, f"{partition}: {error}"


def _until_moved(stage: Stage) -> None:
    """Nothing moves any more, and each partition has as many replicas as before."""

    def is_so() -> bool:
        try:
            with Admin(stage.cluster.bootstrap) as admin:
                return not admin.list_partition_reassignments()
        except TidelogError:
            return False

    wait_until(is_so, lambda: f"all have moved: {stage.cluster.logs()}", seconds=SETTLE_SECONDS_MAX)


def _prefer(stage: Stage) -> None:
    with Admin(stage.cluster.bootstrap) as admin:
        admin.elect_leaders("preferred")


def _told(moves: _Moves) -> str:
    return ", ".join(
        f"{partition.partition} to {list(replicas) if replicas else 'stay'}" for partition, replicas in moves.items()
    )


FAULTS = tuple(
    Fault(kind=kind, strike=strike, hurts=Hurt.OPERATOR, seconds=seconds, nodes=NODES, is_mixed=False)
    for kind, strike, seconds in (
        ("reassignment", move, (0.0, 3.0)),
        ("reassignment throttled", move_throttled, (1.0, 8.0)),
        ("reassignment given up", give_up, (0.0, 1.0)),
        ("kill -9 while partitions move", kill_while_moving, (0.0, 6.0)),
    )
)
