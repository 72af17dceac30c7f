"""The first act: Spark writes and reads while nodes are killed, and nothing is lost."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tidelog.base.errors import KafkaError, NetworkError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.demo.killer import Killer
from tidelog.demo.nodes import DemoCluster
from tidelog.demo.pipeline import PARTITIONS, TOPIC, DelaysQuery, write_flights
from tidelog.demo.report import RunLog
from tidelog.demo.surroundings import again_and_again

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog import Admin

STANDSTILL_SECONDS_MAX = 180.0


class ProgressListener(Protocol):
    """Hears how far the demo is: the command that runs it shows that to people."""

    def say(self, text: str) -> None: ...
    def begin(self, step: str, total: int) -> None: ...
    def advance(self, done: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Outages:
    """What both steps of it work with."""

    cluster: DemoCluster
    admin: Admin
    log: RunLog
    listener: ProgressListener
    total: int

    def fill(self, spark: SparkSession, flights: Path) -> None:
        """Spark writes; a third of the way a leader is killed."""
        killer = Killer(self.cluster, self.log, self.listener)
        self.listener.begin(f"Spark writes {self.total:,} flights to the topic {TOPIC}", self.total)

        def look() -> None:
            with suppress(KafkaError, NetworkError):  # the next look will tell
                written = self._written()
                self.log.written.append((self.log.seconds(), written))
                if written * 3 >= self.total and not killer.has_struck:
                    leader = self.admin.describe_topics([TOPIC])[TOPIC].partitions[0].leader
                    if leader is not None:
                        killer.strike(f"the leader of {TOPIC}-0", leader)
                self.listener.advance(written)

        with again_and_again(look):
            write_flights(spark, flights, self.cluster.bootstrap)
        self.log.written.append((self.log.seconds(), self._written()))
        self.listener.advance(self.total)
        killer.join()

    def read(self, query: DelaysQuery) -> None:
        """Spark reads; half way the active controller is killed."""
        killer = Killer(self.cluster, self.log, self.listener)

        def on_progress(records: int) -> None:
            self.log.progress.append((self.log.seconds(), records))
            self.listener.advance(records)

        self.listener.begin("A streaming query sums up delays by carrier and day", self.total)
        self.log.query_began_at = self.log.seconds()
        query.start()
        query.run_until(self.total // 2, seconds_max=STANDSTILL_SECONDS_MAX, on_progress=on_progress)
        leader = self.admin.describe_quorum().leader_id
        if leader is not None:
            killer.strike("the active controller", leader)
        query.run_until(self.total, seconds_max=STANDSTILL_SECONDS_MAX, on_progress=on_progress)
        killer.join()
        if query.restarts:
            self.listener.say(
                f"the query failed on an outage and was started from its checkpoint {query.restarts} times"
            )
        else:
            self.listener.say(
                "the query lived through both outages; the longest that it took to plan a batch: "
                f"{query.planning_seconds_max:.1f} s"
            )

    def _written(self) -> int:
        partitions = [TopicPartition(TOPIC, PartitionIndex(index)) for index in range(PARTITIONS)]
        ends = self.admin.list_offsets(dict.fromkeys(partitions, "latest"))
        return sum(end.offset for end in ends.values() if end is not None)
