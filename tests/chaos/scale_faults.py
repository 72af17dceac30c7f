"""Nodes are killed while hundreds of topics are made, written to and read.

`CHAOS_TOPICS` says how many; the default makes a round short.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from chaos.fault import Fault, Hurt, Stage
from chaos.many_topics import ManyTopics
from chaos.play import REPLICAS

TOPICS = int(os.environ.get("CHAOS_TOPICS", "100"))
KILLS = 3


def kill_among_many_topics(stage: Stage) -> Iterator[str]:
    """One node after the other, with `kill -9`, among hundreds of topics that are made, written to and read."""
    name = f"many-{stage.dice.randrange(1 << 30)}"
    topics = ManyTopics(stage.cluster, name, TOPICS, replication_factor=REPLICAS)
    topics.start()
    for number in range(1, KILLS + 1):
        topics.until_done(TOPICS * number // (KILLS + 1))
        node = stage.victim()
        node.kill()
        yield f"{node} among {topics.done} topics"
        node.start()
    topics.check()
    topics.delete()


FAULTS = (
    Fault(
        kind="kill -9 among many topics",
        strike=kill_among_many_topics,
        hurts=Hurt.PROCESS,
        seconds=(0.0, 8.0),
        is_mixed=False,
        is_restart=True,
    ),
)
