"""The second act: whoever holds what was acknowledged is away, and an operator would rather have a leader than wait.

```
           node C, the leader         node A, the controller       node B
           kill -9
                                      leads                        in sync        the ledger goes on: both acknowledge
                                      its disk is torn away        leads
           starts again: it is stale  still votes                  kill -9        nobody is left who may lead
           `tidelog elect --type unclean`
           leads, and is written to                                               new records at the old offsets
                                                                   starts again, truncates, follows
                                      disk back, starts again, truncates, follows
```
Two of three voters live, but for the moment in which C starts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tidelog.base.errors import KafkaError, NetworkError, TidelogError
from tidelog.demo import ledger
from tidelog.demo.balance import LostRange
from tidelog.demo.commands import as_typed, run_command
from tidelog.demo.evidence import ReplicaLog, read_replica
from tidelog.demo.killer import Narrator
from tidelog.demo.ledger import Ledger, partition_of
from tidelog.demo.ledger_copy import LedgerCopy
from tidelog.demo.nodes import DemoCluster

if TYPE_CHECKING:
    from tidelog import Admin
    from tidelog.base.losses import Loss
    from tidelog.client.admin.descriptions import PartitionDescription

ACKNOWLEDGED, OVERWRITTEN, HEALED = "acknowledged", "overwritten", "healed"
STEP_SECONDS_MAX = 120.0
LOOK_PAUSE_SECONDS = 0.05
RECORDS_TO_LOSE = 600
RECORDS_BEYOND = 200
"""How far the new records reach beyond the end of the old: an offset alone looks well then."""


class StoryFailedError(TidelogError):
    """The cluster did not become what the next step needs. Says what was waited for, and what it was instead."""


class Cast(NamedTuple):
    """The parts of the nodes.

    Attributes:
        partition: of the ledger.
        stale: its leader, and the first of its replicas; killed first, and elected in the end.
        torn: the active controller, and the next to lead; its disk fails.
        killed: the third.
    """

    partition: int
    stale: int
    torn: int
    killed: int


@dataclass
class Stages:
    """What the replicas of one partition held, by the files, each at several moments.

    Attributes:
        cast: the partition and the nodes.
        replicas: the moments, in words and in order; for each the log of every node.
    """

    cast: Cast
    replicas: dict[str, dict[int, ReplicaLog]] = field(default_factory=dict)

    def parts_at(self) -> int | None:
        """The first offset at which what was acknowledged parts from what is in the log in the end."""
        acknowledged = self.replicas[ACKNOWLEDGED][self.cast.killed]
        return acknowledged.parts_from(self.replicas[HEALED][self.cast.stale])


class UncleanElectionAct:
    """Plays the act. Everything is healed in the end."""

    def __init__(
        self, cluster: DemoCluster, admin: Admin, numbers: Ledger, copy: LedgerCopy, narrator: Narrator
    ) -> None:
        self._cluster = cluster
        self._admin = admin
        self._numbers = numbers
        self._copy = copy
        self._say = narrator.say
        self.stages = Stages(Cast(-1, -1, -1, -1))

    def play(self) -> Stages:
        """The whole of it, but for what the readers make of it: that is `read_again`.

        Raises:
            StoryFailedError: a step did not come about.
            TidelogError: a node, a command, the ledger or the query failed.
        """
        cast = self._find_cast()
        self.stages = Stages(cast)
        self._lose_the_leader(cast)
        self._lose_the_others(cast)
        self._look(ACKNOWLEDGED)
        self._elect(cast)
        self._overwrite(cast)
        self._look(OVERWRITTEN)
        self._bring_back(cast)
        return self.stages

    def _find_cast(self) -> Cast:
        """Give the leaderships back after the outages, and find the partition in which the controller is second."""
        run_command("elect", "--type", "preferred", "--all", "--bootstrap", self._cluster.bootstrap)
        controller = self._admin.describe_quorum().leader_id
        found = [Cast(index, *order) for index, order in ledger.REPLICAS.items() if order[1] == controller]
        if not found:
            raise StoryFailedError(f"the active controller is {controller}, which is none of the nodes")
        cast = found[0]
        self._wait(
            cast,
            lambda of: of.leader == cast.stale and len(of.isr) == len(of.replicas),
            f"node {cast.stale} leads, and all are in sync",
        )
        return cast

    def _lose_the_leader(self, cast: Cast) -> None:
        """What comes now, the first leader misses."""
        name = partition_of(cast.partition)
        before = self._numbers.acknowledged_in(cast.partition)
        self._numbers.records_per_turn = ledger.RECORDS_PER_TURN_IN_A_HURRY
        self._numbers.go_on()
        self._cluster.kill(cast.stale)
        self._say(f"kill -9: node {cast.stale}, the leader of {name}, is gone, and stays away for a while")
        self._wait(cast, lambda of: of.leader == cast.torn, f"node {cast.torn} leads")
        self._wait_until(
            lambda: self._numbers.acknowledged_in(cast.partition) >= before + RECORDS_TO_LOSE,
            f"{RECORDS_TO_LOSE} records of {name} are acknowledged without node {cast.stale}",
        )
        self._numbers.hold()
        self._say(
            f"nodes {cast.torn} and {cast.killed} acknowledged "
            f"{self._numbers.acknowledged_in(cast.partition) - before:,} more records of {name}; all clients rest"
        )
        self._copy.run()
        self._say(f"a Spark query has copied the ledger: {len(self._copy.rows()):,} rows; its checkpoint waits")

    def _lose_the_others(self, cast: Cast) -> None:
        name = partition_of(cast.partition)
        disk = self._cluster.disk_of(cast.torn, name)
        self._cluster.tear_away(disk)
        self._say(f"{disk.name} is torn away from node {cast.torn}, which leads {name} and the metadata quorum")
        self._wait(cast, lambda of: of.leader == cast.killed, f"node {cast.killed} leads")
        self._cluster.kill(cast.killed)
        self._say(f"kill -9: node {cast.killed}, the last that was in sync, is gone")
        self._cluster.start_again(cast.stale)
        self._wait(
            cast,
            lambda of: of.leader is None and cast.stale not in of.offline_replicas,
            f"nobody leads, and node {cast.stale} is alive",
        )
        voters = f"nodes {cast.stale} and {cast.torn} are two of three voters: the metadata quorum is alive"
        self._say(f"node {cast.stale} is back, and stale; nobody may lead {name}; {voters}")

    def _elect(self, cast: Cast) -> None:
        name = partition_of(cast.partition)
        command = ("elect", "--type", "unclean", "--yes", "--topic", ledger.TOPIC, "--partition", str(cast.partition))
        self._say(f"the operator types: {as_typed(*command, '--bootstrap', self._cluster.bootstrap)}")
        run_command(*command, "--bootstrap", self._cluster.bootstrap)
        self._wait(cast, lambda of: of.leader == cast.stale, f"node {cast.stale} leads")
        self._say(f"node {cast.stale} leads {name} with what it has")

    def _overwrite(self, cast: Cast) -> None:
        name = partition_of(cast.partition)
        lost_end = self.stages.replicas[ACKNOWLEDGED][cast.killed].end_offset
        self._numbers.go_on()
        self._wait_until(lambda: bool(self._numbers.told_producer), "the producer is told of what is gone")
        for told in self._numbers.told_producer:
            self._say(f"the producer is told that acknowledged records are gone: {told}")
        self._wait_until(
            lambda: read_replica(self._cluster.log_of(cast.stale, name)).end_offset >= lost_end + RECORDS_BEYOND,
            f"new records of {name} reach beyond offset {lost_end:,}",
        )
        self._say(f"new records stand at the old offsets, and beyond {lost_end:,}, where the old ones ended")

    def _bring_back(self, cast: Cast) -> None:
        self._numbers.records_per_turn = ledger.RECORDS_PER_TURN
        self._cluster.start_again(cast.killed)
        self._wait(cast, lambda of: cast.killed in of.isr, f"node {cast.killed} is in sync")
        disk = self._cluster.torn_disk_of(cast.torn)
        self._cluster.stop(cast.torn)
        self._cluster.put_back(disk)
        self._cluster.start_again(cast.torn)
        self._wait(cast, lambda of: len(of.isr) == len(of.replicas), "all are in sync")
        self._say(f"node {cast.killed}, and node {cast.torn} with its disk, came back, truncated and follow")

    def look_at_all(self) -> dict[int, list[ReplicaLog]]:
        """The logs of all partitions, by the files, the first replica first. Nothing may be written meanwhile.

        Followers have a while to become as their leaders are.
        """
        deadline = time.monotonic() + STEP_SECONDS_MAX
        while True:
            found = {
                index: [read_replica(self._cluster.log_of(node, partition_of(index))) for node in replicas]
                for index, replicas in ledger.REPLICAS.items()
            }
            if all(one == of[0] for of in found.values() for one in of) or time.monotonic() > deadline:
                return found
            time.sleep(LOOK_PAUSE_SECONDS)

    def look_at_the_end(self) -> dict[int, list[ReplicaLog]]:
        """As `look_at_all`; it is the last of the stages."""
        found, partition = self.look_at_all(), self.stages.cast.partition
        self.stages.replicas[HEALED] = dict(zip(ledger.REPLICAS[partition], found[partition], strict=True))
        return found

    def read_account(self) -> list[LostRange]:
        """What the cluster itself says of it, once every replica has told what was cut off it.

        Raises:
            StoryFailedError: a replica has not told.
        """
        topic, partition = ledger.TOPIC, self.stages.cast.partition
        found: list[Loss] = []

        def look() -> bool:
            account = self._admin.describe_losses([topic])
            found[:] = [loss for loss in account.losses if loss.partition == partition]
            return bool(found) and not any(loss.is_open for loss in found)

        self._wait_until(look, "every replica has told the account of losses what was cut off it")
        for loss in found:
            self._say(f"the operator types: {as_typed('losses', 'describe', loss.name)}")
            for one in loss.cut:
                self._say(
                    f"loss {loss.name}: offsets {one.cut_from:,} to {(one.end_offset or 0) - 1:,} were cut off node "
                    f"{one.broker_id}, which keeps {one.kept_size_bytes:,} bytes of them"
                )
        return [
            LostRange(loss.partition, one.cut_from, one.end_offset)
            for loss in found
            for one in loss.cut
            if one.cut_from is not None and one.end_offset is not None
        ]

    def read_again(self) -> list[LostRange]:
        """The Spark query runs again: it says what is gone, and heals its table when it is told to go on."""
        told = self._copy.run()
        if not told:
            self._say("the Spark query passed over what is gone WITHOUT A WORD")
            return told
        for one in told:
            self._say(f"the Spark query stops and says that it had read what is gone: {one}")
        self._copy.run(on_truncation="rewind")
        self._say(
            f"the query went on with onTruncation=rewind: its table withdrew the {self._copy.withdrawn_count():,} rows "
            "of what is gone, and read on from there, in one commit"
        )
        return told

    def _look(self, moment: str) -> None:
        partition = partition_of(self.stages.cast.partition)
        self.stages.replicas[moment] = {
            node: read_replica(self._cluster.log_of(node, partition))
            for node in ledger.REPLICAS[self.stages.cast.partition]
        }

    def _wait(self, cast: Cast, is_so: Callable[[PartitionDescription], bool], what: str) -> None:
        seen: list[object] = ["nothing yet"]

        def look() -> bool:
            try:
                of = self._admin.describe_topics([ledger.TOPIC])[ledger.TOPIC].partitions[cast.partition]
            except (KafkaError, NetworkError) as error:  # the next look will tell
                seen[0] = error
                return False
            seen[0] = of
            return is_so(of)

        self._wait_until(look, lambda: f"{what}; it is {seen[0]}")

    @staticmethod
    def _wait_until(is_so: Callable[[], bool], what: str | Callable[[], str]) -> None:
        deadline = time.monotonic() + STEP_SECONDS_MAX
        while not is_so():
            if time.monotonic() > deadline:
                raise StoryFailedError(
                    f"within {STEP_SECONDS_MAX:.0f} s it did not come about that "
                    f"{what if isinstance(what, str) else what()}"
                )
            time.sleep(LOOK_PAUSE_SECONDS)
