"""A share group (KIP-932) of Java's consumers beside the load of a round, whose members are killed.

Whoever dies, the others are given what it did not accept; and what was accepted is given to nobody again.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

from chaos.in_background import InBackground
from chaos.nodes import ChaosCluster
from support.clients.java_classes import compiled
from support.clients.kafka_peer import java_command
from support.fixtures.waiting import wait_until
from support.load.group_load import Member
from tidelog.base.errors import Code, KafkaError, TidelogError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.client.admin.admin import Admin

GROUP = "sharers"
SOURCE = Path(__file__).parents[1] / "support" / "load" / "group_members" / "ShareMember.java"
MEMBERS = 2
PAUSE_SECONDS = 0.5
KILLED_EVERY_SECONDS = 15.0
READ_SECONDS_MAX = 120.0
ASK_MS_MAX = 5_000
ENDED_MAX = 12

Offsets = dict[int, set[int]]


class ShareGroup:
    """Its members, each a JVM. It has a thread.

    Args:
        dice: says who is killed when.
        home: what the members say lies in a folder of it.

    Attributes:
        killed: how many members were.
    """

    def __init__(self, cluster: ChaosCluster, dice: random.Random, topic: str, partitions: int, home: Path) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partitions = partitions
        self._home = home / "share-group"
        self._home.mkdir()
        self._dice = random.Random(dice.random())
        self._members: list[Member] = []
        self._gone: list[Member] = []
        self._accepted_before: dict[Member, Offsets] = {}  # before each of them began
        self._ended_alone = 0
        self.killed = 0
        self._background = InBackground(self._go_on, PAUSE_SECONDS)

    def start(self) -> None:
        """Returns when something was accepted."""
        wait_until(self._begins, "the members of the round before are gone", seconds=READ_SECONDS_MAX)
        for _ in range(MEMBERS):
            self._join()
        wait_until(lambda: any(self._told("accepted").values()), self._story, seconds=READ_SECONDS_MAX)
        self._background.start()

    def _begins(self) -> bool:
        """Have the group begin at the start. False: members that were killed are in it until their sessions end."""
        start = {TopicPartition(self._topic, PartitionIndex(one)): 0 for one in range(self._partitions)}
        with Admin(self._cluster.bootstrap) as admin:
            try:
                admin.alter_share_group_offsets(GROUP, start)
            except KafkaError as error:
                if error.code is not Code.NON_EMPTY_GROUP:
                    raise
                return False
        return True

    def check(self, ends: Mapping[int, int]) -> None:
        """Wait until all before these ends is settled.

        Raises:
            AssertionError: it is not; or a record was given to nobody; or one was given again that was accepted.
        """
        self._background.check()
        for member in list(self._members):  # with all that it was given and has not accepted
            self._kill(member)
        self._check_accepted()
        self._join()

        def is_settled() -> bool:
            self._replace_ended()
            return self._positions() == dict(ends)

        wait_until(is_settled, self._story, seconds=READ_SECONDS_MAX)
        read = self._told("read")
        missing = {one: sorted(set(range(end)) - read[one])[:5] for one, end in ends.items()}
        assert not any(missing.values()), f"were given to nobody, by partition: {missing}\n{self._story()}"
        self._check_accepted()
        self.close()

    def close(self) -> None:
        """End all, be it checked or not."""
        self._background.end()
        for member in list(self._members):
            self._kill(member)

    def _join(self) -> None:
        said_path = self._home / f"member-{len(self._members) + len(self._gone)}.txt"
        arguments = ["ShareMember", self._cluster.bootstrap, self._topic, GROUP]
        accepted = self._told("accepted")
        member = Member(java_command(arguments, classes=compiled(SOURCE)), said_path)
        self._accepted_before[member] = accepted
        self._members.append(member)

    def _kill(self, member: Member) -> None:
        self._members.remove(member)
        self._gone.append(member)
        member.kill()

    def _go_on(self) -> None:
        if self._dice.random() < PAUSE_SECONDS / KILLED_EVERY_SECONDS:
            self._kill(self._dice.choice(self._members))
            self._join()
            self.killed += 1
        self._replace_ended()

    def _replace_ended(self) -> None:
        for member in [one for one in self._members if one.has_ended]:
            self._ended_alone += 1
            assert self._ended_alone <= ENDED_MAX, f"every member ends: {self._story()}"
            self._kill(member)
            self._join()

    def _check_accepted(self) -> None:
        again = {one.said_path.name: found for one in (*self._members, *self._gone) if (found := self._again(one))}
        assert not again, f"were accepted, and given again: {again}\n{self._story()}"

    def _again(self, member: Member) -> list[str]:
        """What a member was given that it had accepted, or that others had before it began."""
        accepted = {partition: set(offsets) for partition, offsets in self._accepted_before[member].items()}
        again = []
        for words in member.lines():
            if words[0] not in ("read", "accepted"):
                continue
            partition, offsets = int(words[1]), range(int(words[2]), int(words[3]) + 1)
            if words[0] == "accepted":
                accepted[partition].update(offsets)
            elif found := accepted[partition].intersection(offsets):
                again.append(f"partition {partition}, {len(found)} from {min(found)} to {max(found)}")
        return again

    def _told(self, what: str) -> Offsets:
        """The offsets of which any member said this, by partition."""
        told: Offsets = {one: set() for one in range(self._partitions)}
        for member in (*self._members, *self._gone):
            for partition, offsets in member.told(what):
                told[partition].update(offsets)
        return told

    def _positions(self) -> dict[int, int]:
        """Before them all is settled."""
        try:
            with Admin(self._cluster.bootstrap, default_api_timeout_ms=ASK_MS_MAX) as admin:
                places = admin.list_share_group_offsets(GROUP)
        except TidelogError:
            return {}
        return {one.partition: place.start_offset for one, place in places.items()}

    def _story(self) -> str:
        lines = [f"{one.said_path.name}: {one.lines()[-3:]}, {one.errors()[-2_000:]}" for one in self._members]
        accepted = {partition: len(offsets) for partition, offsets in self._told("accepted").items()}
        return "\n".join([f"positions {self._positions()}, accepted {accepted}, {self.killed} members killed", *lines])
