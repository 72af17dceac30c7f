"""A group whose members are killed beside the load of a round: whoever dies, the others read what it did not."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

from chaos.in_background import InBackground
from chaos.nodes import ChaosCluster
from support.fixtures.waiting import wait_until
from support.load.group_load import Group
from support.load.group_members.told import PROTOCOLS

CLIENTS = "confluent", "tidelog"
STRATEGY = "range"
MEMBERS = 2
PAUSE_SECONDS = 0.5
KILLED_EVERY_SECONDS = 10.0
"""One of the members, on the average; another one joins at once."""
ENDED_MAX = 12
"""Members may end where their client cannot go on, and others take over; but not for ever."""
READ_SECONDS_MAX = 120.0


class DyingGroup:
    """Members of one group, each a process that commits as it reads. It has a thread.

    Args:
        dice: says whose consumers the members are, which protocol the group has, and who is killed when.
        home: where what the members say is kept.

    Attributes:
        killed: how many members were.
    """

    def __init__(self, cluster: ChaosCluster, dice: random.Random, topic: str, partitions: int, home: Path) -> None:
        self._group = Group(
            dice.choice(CLIENTS),
            STRATEGY,
            False,
            topic,
            cluster.bootstrap,
            home,
            partitions=partitions,
            protocol=dice.choice(PROTOCOLS),
        )
        self._dice = random.Random(dice.random())
        self.killed = 0
        self._ended_alone = 0
        self._background = InBackground(self._go_on, PAUSE_SECONDS)

    def start(self) -> None:
        """Returns when the members have joined and read something."""
        for _ in range(MEMBERS):
            self._group.join()
        wait_until(lambda: any(self._group.read().values()), self._story, seconds=READ_SECONDS_MAX)
        self._background.start()

    def check(self, ends: Mapping[int, int]) -> None:
        """Wait until the members have read everything before these ends.

        Raises:
            AssertionError: they have not; some records were given to nobody.
        """
        self._background.check()

        def has_read() -> bool:
            self._replace_ended()
            return self._group.has_read(ends)

        wait_until(has_read, self._story, seconds=READ_SECONDS_MAX)
        self._group.close()

    def close(self) -> None:
        """End all, be it checked or not."""
        self._background.end()
        self._group.close()

    def _go_on(self) -> None:
        if self._dice.random() < PAUSE_SECONDS / KILLED_EVERY_SECONDS:
            self._group.kill(self._dice.choice(self._group.members))
            self._group.join()
            self.killed += 1
        self._replace_ended()

    def _replace_ended(self) -> None:
        for member in [one for one in self._group.members if one.has_ended]:
            self._ended_alone += 1
            assert self._ended_alone <= ENDED_MAX, f"every member ends: {self._story()}"
            self._group.kill(member)
            self._group.join()

    def _story(self) -> str:
        """Who has what, and where the reading stands."""
        ends = {partition: max(counts, default=-1) + 1 for partition, counts in self._group.read().items()}
        lines = [
            f"{one.said_path.name}: owns {one.owned}, {one.lines()[-3:]}, {one.errors()[-2_000:]}"
            for one in self._group.members
        ]
        return "\n".join(
            [
                f"a {self._group.protocol} group of {self._group.client}, {self.killed} members killed,"
                f" has read up to {ends}",
                *lines,
            ]
        )
