"""The list of the replicas in a directory names them all, whatever came and went since it was last written."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.ids import PartitionIndex, TopicId
from tidelog.log.directory import LogDirectory
from tidelog.server.storage.listed_replicas import ListedReplicas

PATH = "/data"
TOPIC_IDS = st.integers(0, 20).map(lambda one: TopicId(UUID(int=one)))
REPLICAS = st.sets(st.tuples(TOPIC_IDS, st.integers(0, 2).map(PartitionIndex)))
STEPS = st.lists(st.tuples(st.sampled_from(["add", "remove", "lost"]), REPLICAS), max_size=8)


@given(STEPS)
def test_the_file_says_what_is_listed_after_each_step(
    steps: list[tuple[str, set[tuple[TopicId, PartitionIndex]]]],
) -> None:
    disk = MemoryDisk()
    disk.make_dirs(PATH)
    directory = LogDirectory.open(disk, PATH)
    listed = ListedReplicas(directory, lambda: ())
    wanted, lost = set[tuple[TopicId, PartitionIndex]](), set[tuple[TopicId, PartitionIndex]]()
    listed.read()
    for step, replicas in steps:
        if step == "add":
            listed.add(replicas)
            wanted |= replicas
        elif step == "remove":
            listed.remove(replicas)
            wanted -= replicas
            lost -= replicas
        else:
            for replica in replicas:
                listed.note_lost(replica)
            wanted |= replicas
            lost |= replicas
        found = directory.read_replica_list()
        assert found is not None
        assert (set(found[0]), set(found[1])) == (wanted, lost)
    assert all(replica in listed for replica in wanted)
