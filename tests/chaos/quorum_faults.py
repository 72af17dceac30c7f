"""What is done to the metadata quorum under load: its voters change, and its nodes begin with snapshots."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import partial

from chaos.fault import Fault, Hurt, Stage
from chaos.nodes import ChaosCluster
from support.fixtures.waiting import wait_until
from support.nodes.cluster import ClusterNode
from tidelog.base.errors import Code, KafkaError, TidelogError
from tidelog.base.ids import CLUSTER_METADATA, BrokerId, parse_uuid
from tidelog.cli.node_directories import owner_of, write_first_metadata
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.cluster_descriptions import Endpoint
from tidelog.client.admin.descriptions import ConfigResource, NewTopic
from tidelog.controller.values import FirstMetadata
from tidelog.quorum.values import ReplicaKey, Voter

VOTERS = 3
SETTLE_SECONDS_MAX = 60.0
CHANGES = 40
SNAPSHOT_BYTES = 4_000
"""A snapshot is made after so many bytes of metadata: every few topics."""


def put_voters_in_the_log(cluster: ChaosCluster) -> None:
    """The first nodes vote at first, as the metadata log says; the others are controllers that may come to vote."""
    voters = [_voter(node) for node in list(cluster.nodes.values())[:VOTERS]]
    servers = ",".join(f"{one.host}:{one.controller_port}" for one in cluster.nodes.values())
    for node in cluster.nodes.values():
        del node.settings["controller.quorum.voters"]
        node.settings["controller.quorum.bootstrap.servers"] = servers
        is_voter = any(voter.key.node_id == node.node_id for voter in voters)
        write_first_metadata(str(node.directory), voters if is_voter else None, FirstMetadata({}))


def change_voters(stage: Stage) -> Iterator[str]:
    """A node that did not vote is let in, and one that did is left out: any, that which leads the quorum too."""
    with Admin(stage.cluster.bootstrap) as admin:
        voters = {voter.node_id for voter in admin.describe_quorum().voters}
        coming = stage.cluster.nodes[stage.dice.choice(sorted(stage.cluster.nodes.keys() - voters))]
        leading = stage.cluster.active_controller()
        going = stage.dice.choice([leading, *(stage.cluster.nodes[one] for one in sorted(voters))])
        for change in stage.dice.sample(["let in", "leave out"], 2):
            if change == "let in":
                _let_in(admin, coming)
                yield f"{coming} votes"
            else:
                _leave_out(admin, going)
                yield f"{going} votes no more{', which led' if going is leading else ''}"
    _check_decides(stage)


def kill_while_voters_change(stage: Stage) -> Iterator[str]:
    """The node that leads the quorum is killed when a voter was just asked to be let in or left out."""
    with Admin(stage.cluster.bootstrap) as admin:
        voters = {voter.node_id for voter in admin.describe_quorum().voters}
        coming = stage.cluster.nodes[stage.dice.choice(sorted(stage.cluster.nodes.keys() - voters))]
        leading = stage.cluster.active_controller()
        _let_in(admin, coming)
        leading.kill()
        yield f"{coming} votes, {leading} is killed"
        going = stage.dice.choice([stage.cluster.nodes[one] for one in sorted(voters)])
        _leave_out(admin, going)
        leading.start()
        yield f"{going} votes no more"
    _check_decides(stage)


def replace_voter(stage: Stage) -> Iterator[str]:
    """A voter loses its disk. What comes back under its id is another voter: that one is left out, this one let in."""
    with Admin(stage.cluster.bootstrap) as admin:
        voters = {voter.node_id: voter for voter in admin.describe_quorum().voters}
        node = stage.cluster.nodes[stage.dice.choice(sorted(voters))]
        node.kill()
        node.lose_disk()
        yield f"{node} is empty"
        stage.go_on()
        old = voters[BrokerId(node.node_id)].directory_id
        assert old is not None
        _until_done(partial(admin.remove_raft_voter, node.node_id, old), Code.VOTER_NOT_FOUND)
        node.start()
        _let_in(admin, node)
        yield f"{node} votes again"
    _check_decides(stage)


def begin_with_snapshot(stage: Stage) -> Iterator[str]:
    """A node loses its disk while the metadata changes and snapshots are made: it has to begin with one of them."""
    node = stage.victim()
    others = [one for one in stage.cluster.nodes.values() if one is not node]
    _change_metadata(stage)
    node.kill()
    node.lose_disk()
    stage.go_on()
    yield f"{node} is empty"
    _change_until_first_is_gone(stage, others)
    node.start()
    yield f"{node} is back"
    _change_metadata(stage)
    _check_knows_all(stage, node)


def restart_among_snapshots(stage: Stage) -> Iterator[str]:
    """A node is killed in the midst of changes of metadata and snapshots of it, and comes back to many of them."""
    node = stage.victim()
    _change_metadata(stage)
    node.kill()
    stage.go_on()
    yield str(node)
    _change_metadata(stage)
    node.start()
    _check_knows_all(stage, node)


def _change_metadata(stage: Stage) -> None:
    """Topics come and go, and settings change; some stay."""
    with Admin(stage.cluster.bootstrap) as admin:
        for number in range(stage.dice.randrange(1, CHANGES)):
            topic = _new_name(stage)
            admin.create_topics([NewTopic(topic, 2, 3)])
            if number % 4:
                admin.delete_topics([topic])
            else:
                retention = str(stage.dice.randrange(10**9, 10**10))
                admin.alter_configs({ConfigResource("topic", topic): {"retention.ms": retention}})


def _change_until_first_is_gone(stage: Stage, nodes: Collection[ClusterNode]) -> None:
    """It takes more than one snapshot until what lies before an older one goes."""

    def is_gone() -> bool:
        _change_metadata(stage)
        return all(map(_begins_later, nodes))

    wait_until(is_gone, lambda: f"{nodes} have let the first metadata go: {stage.cluster.logs()}")


def _begins_later(node: ClusterNode) -> bool:
    """Whether the metadata log of a node has no beginning any more but a snapshot."""
    log = node.directory / str(CLUSTER_METADATA)
    return bool(list(log.glob("*.checkpoint"))) and not (log / f"{0:020}.log").exists()


def _check_knows_all(stage: Stage, node: ClusterNode) -> None:
    """It tells of the same topics as the others, in the end."""

    def topics(bootstrap: str) -> set[str]:
        with suppress(TidelogError), Admin(bootstrap) as admin:
            return {one.name for one in admin.list_topics()}
        return set()

    rest = ",".join(one.bootstrap for one in stage.cluster.nodes.values() if one is not node)
    wait_until(
        lambda: topics(node.bootstrap) == topics(rest) != set(), f"{node} knows all topics", seconds=SETTLE_SECONDS_MAX
    )


def _check_decides(stage: Stage) -> None:
    """The quorum takes a change, and as many vote as before."""
    with Admin(stage.cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(_new_name(stage), 1, 3)])
        _until_done(lambda: _check_count(admin))


def _check_count(admin: Admin) -> None:
    found = admin.describe_quorum()
    assert len(found.voters) == VOTERS, found


def _let_in(admin: Admin, node: ClusterNode) -> None:
    """As an operator does: again while it has not caught up, or nobody can say whether it was done."""
    endpoint = Endpoint(node.settings["controller.listener.names"], node.host, node.controller_port)
    _until_done(lambda: admin.add_raft_voter(node.node_id, _directory_id(node), [endpoint]), Code.DUPLICATE_VOTER)


def _leave_out(admin: Admin, node: ClusterNode) -> None:
    _until_done(lambda: admin.remove_raft_voter(node.node_id, _directory_id(node)), Code.VOTER_NOT_FOUND)


def _until_done(change: Callable[[], None], was_done: Code | None = None) -> None:
    """Ask until it is done, or answered that it was: an answer may get lost, and a leader may be gone."""
    said: list[str] = []

    def is_done() -> bool:
        try:
            change()
        except TidelogError as error:
            said.append(str(error))
            return isinstance(error, KafkaError) and error.code is was_done
        return True

    wait_until(is_done, lambda: str(said[-3:]), seconds=SETTLE_SECONDS_MAX)


def _directory_id(node: ClusterNode) -> str:
    owner = owner_of(str(node.directory))
    assert owner is not None
    assert owner.directory_id
    return owner.directory_id


def _voter(node: ClusterNode) -> Voter:
    endpoint = (node.settings["controller.listener.names"], node.host, node.controller_port)
    return Voter(ReplicaKey(BrokerId(node.node_id), parse_uuid(_directory_id(node))), (endpoint,))


def _new_name(stage: Stage) -> str:
    return f"made-{stage.dice.randrange(1_000_000_000)}"


FAULTS = (
    *(
        Fault(
            kind=kind,
            strike=strike,
            hurts=Hurt.OPERATOR,
            seconds=(0.0, 3.0),
            nodes=VOTERS + 1,
            prepare=put_voters_in_the_log,
            is_mixed=False,
        )
        for kind, strike in (
            ("voters change", change_voters),
            ("kill -9 while voters change", kill_while_voters_change),
            ("voter replaced", replace_voter),
        )
    ),
    *(
        Fault(
            kind=kind,
            strike=strike,
            hurts=Hurt.OPERATOR,
            seconds=(0.0, 3.0),
            config={"metadata.log.max.record.bytes.between.snapshots": str(SNAPSHOT_BYTES)},
            is_mixed=False,
        )
        for kind, strike in (
            ("empty node begins with a snapshot", begin_with_snapshot),
            ("kill -9 among snapshots", restart_among_snapshots),
        )
    ),
)
