"""Checkpoints of either connector are read without Spark, on this machine and elsewhere."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.fixtures.checkpoints import QUERY_ID, WrittenCheckpoint
from support.fixtures.toy_cluster import IDS
from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, TopicPartition
from tidelog.spark import CheckpointError, losses
from tidelog.spark.checkpoint_files import LocalFiles, RemoteFiles, attempted, open_files
from tidelog.spark.checkpoints import Checkpoint
from tidelog.spark.offsets import Loss, ReadPosition, StreamOffset
from tidelog.spark.replay_notes import ReplayNotes

T0 = TopicPartition("t", PartitionIndex(0))
T1 = TopicPartition("t", PartitionIndex(1))
KAFKA = {"t": {"0": 23, "1": 7}}


def at(offset: int, leader_epoch: int = 0) -> ReadPosition:
    return ReadPosition(Offset(offset), LeaderEpoch(leader_epoch))


def end(*offsets: int, begin: Any = None, lost: Any = None) -> dict[str, object]:
    positions = {TopicPartition("t", PartitionIndex(number)): at(offset) for number, offset in enumerate(offsets)}
    return StreamOffset({"t": IDS[0]}, positions, begin or {}, lost or {}).to_json()


REWOUND = end(30, 12, begin={T0: at(15)}, lost={T0: Loss("truncated", at(20, 1), Offset(15), IDS[0])})
EMPTIED = end(30, 40, begin={T1: at(33)}, lost={T1: Loss("retention", at(12), Offset(33), IDS[0])})


def _raise(error: Exception) -> None:
    raise error


@pytest.fixture
def checkpoint(tmp_path: Path) -> WrittenCheckpoint:
    return WrittenCheckpoint(tmp_path / "check point")


def test_losses_are_read_from_the_batches_that_made_up_for_them(checkpoint: WrittenCheckpoint) -> None:
    checkpoint.plan(end(20, 12))
    checkpoint.plan("-", REWOUND, KAFKA)
    checkpoint.plan("-", EMPTIED, KAFKA, is_committed=False)
    place = str(checkpoint.path)
    truncated, emptied = losses(place)
    assert (truncated.topic, truncated.partition, truncated.topic_id) == ("t", 0, IDS[0])
    assert (truncated.cause, truncated.from_offset, truncated.leader_epoch) == ("truncated", 20, 1)
    assert (truncated.divergent_offset, truncated.resumed_offset, truncated.resumed_leader_epoch) == (15, 15, 0)
    assert (truncated.gone_count, truncated.read_again_count, truncated.skipped_count) == (5, 0, 0)
    assert (truncated.batch_id, truncated.source, truncated.query_id) == (1, 1, QUERY_ID)
    assert (emptied.cause, emptied.partition, emptied.batch_id) == ("retention", 1, 2)
    assert (emptied.gone_count, emptied.read_again_count, emptied.skipped_count) == (0, 0, 21)
    # Within foreachBatch: the batch is planned, and not committed.
    assert losses(place, 2) == [emptied]
    assert losses(place, 0) == []


def test_a_source_with_nothing_new_does_not_lose_again(checkpoint: WrittenCheckpoint) -> None:
    """A batch that another source fills, or that Spark runs for the sake of state, repeats the offset before."""
    checkpoint.plan(end(20, 12), KAFKA)
    checkpoint.plan(REWOUND, KAFKA)
    checkpoint.plan(REWOUND, {"t": {"0": 24, "1": 7}})
    checkpoint.plan(REWOUND, {"t": {"0": 25, "1": 7}})
    place = str(checkpoint.path)
    assert [loss.batch_id for loss in losses(place)] == [1]
    assert [len(losses(place, number)) for number in range(4)] == [0, 1, 0, 0]
    (checkpoint.path / "offsets" / "0").unlink()
    assert [loss.batch_id for loss in losses(place)] == [1]  # as far as the checkpoint tells


def test_a_replay_that_could_not_read_all_says_where_it_went_on(checkpoint: WrittenCheckpoint) -> None:
    lost = Loss("retention", at(10), Offset(14), IDS[0], in_replay=True)
    checkpoint.plan(end(30, 12, begin={T0: at(20)}, lost={T0: lost}))
    (loss,) = losses(str(checkpoint.path))
    assert (loss.from_offset, loss.resumed_offset, loss.skipped_count) == (10, 14, 4)


def test_sources_may_have_names(checkpoint: WrittenCheckpoint) -> None:
    checkpoint.plan_by_name({"0": REWOUND, "other": "-"})
    assert [loss.from_offset for loss in losses(str(checkpoint.path))] == [20]


@pytest.mark.parametrize("form", ["file://{}", "file:{}", "{}"])
def test_a_path_may_be_a_uri_as_spark_prints_it(checkpoint: WrittenCheckpoint, form: str) -> None:
    checkpoint.plan(REWOUND)
    place = str(checkpoint.path)
    assert len(losses(form.format(place.replace(" ", "%20") if "file" in form else place))) == 1


def test_no_batch_and_no_checkpoint_are_told_apart(checkpoint: WrittenCheckpoint, tmp_path: Path) -> None:
    place = str(checkpoint.path)
    assert losses(place) == []
    checkpoint.plan(end(1))
    shutil.rmtree(checkpoint.path / "commits")
    assert losses(place) == []
    assert Checkpoint(place).committed() == []
    with pytest.raises(CheckpointError, match=r"holds no batch 7 \(it holds 0 to 0\)"):
        losses(place, 7)
    with pytest.raises(CheckpointError, match=r"there is no checkpoint at .*nowhere"):
        losses(str(tmp_path / "nowhere"))
    with pytest.raises(CheckpointError, match="there is no checkpoint at"):
        losses(str(tmp_path))
    shutil.rmtree(checkpoint.path / "offsets")
    assert losses(place) == []  # it has not planned yet


def test_a_checkpoint_of_spark_s_connector_cannot_know(checkpoint: WrittenCheckpoint) -> None:
    checkpoint.plan(KAFKA)
    for batch_id in (None, 0):
        with pytest.raises(CheckpointError, match="Kafka connector, whose offsets hold no leader epochs"):
            losses(str(checkpoint.path), batch_id)
    checkpoint.plan("12")
    with pytest.raises(CheckpointError, match=r"without a source of format tidelog$"):
        losses(str(checkpoint.path))


def test_a_file_that_is_not_spark_s_is_named(checkpoint: WrittenCheckpoint) -> None:
    checkpoint.plan(end(1))
    (checkpoint.path / "offsets" / "0").write_text("v9\n{}\n")
    with pytest.raises(CheckpointError, match="offsets/0 begins with 'v9'"):
        losses(str(checkpoint.path))


def test_state_is_named_as_a_user_calls_it(checkpoint: WrittenCheckpoint) -> None:
    opened = Checkpoint(str(checkpoint.path))
    assert opened.operators() == []
    checkpoint.add_operator(0, "stateStoreSave")
    checkpoint.add_operator(1, "symmetricHashJoin")
    checkpoint.add_operator(2, "somethingNew")
    checkpoint.add_operator(3)
    assert opened.operators() == [
        "aggregate (state/0)",
        "join of two streams (state/1)",
        "somethingNew (state/2)",
        "an operator (state/3)",
    ]


def test_offsets_of_either_connector_are_starting_offsets(checkpoint: WrittenCheckpoint) -> None:
    checkpoint.plan(end(20, 12), KAFKA, {"logOffset": 3}, "12", {"v": {"0": 5}})
    found = Checkpoint(str(checkpoint.path)).sources(0)
    assert [(one.connector, one.starting_offsets()) for one in found] == [
        ("tidelog", {"t": {"0": 20, "1": 12}}),
        ("kafka", KAFKA),
        ("other", {}),
        ("other", {}),
        ("kafka", {"v": {"0": 5}}),  # a topic of that name
    ]


class TestElsewhere:
    """On a file system of Arrow's."""

    @pytest.fixture
    def fs(self) -> Any:
        return pytest.importorskip("pyarrow.fs", reason="pyarrow is not installed: pip install 'tidelog[spark]'")

    def test_it_is_read_the_same(self, checkpoint: WrittenCheckpoint, fs: Any) -> None:
        checkpoint.plan(REWOUND)
        checkpoint.add_operator(0, "dedupe")
        filesystem = fs.SubTreeFileSystem(str(checkpoint.path.parent), fs.LocalFileSystem())
        assert losses("check point", filesystem=filesystem) == losses(str(checkpoint.path))
        assert losses("check point/", 0, filesystem=filesystem) == losses(str(checkpoint.path))
        assert Checkpoint("check point", filesystem).operators() == ["deduplication (state/0)"]
        with pytest.raises(CheckpointError, match="there is no checkpoint at nowhere"):
            losses("nowhere", filesystem=filesystem)
        with pytest.raises(CheckpointError, match="holds no batch 1"):
            losses("check point", 1, filesystem=filesystem)

    @pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
    def test_hadoop_s_names_of_s3_are_known(self, fs: Any, scheme: str) -> None:
        files = open_files(f"{scheme}://bucket/a/b?region=eu-north-1")
        assert isinstance(files, RemoteFiles)
        assert files._filesystem.type_name == "s3"
        assert files._at("offsets") == "bucket/a/b/offsets"

    def test_what_cannot_be_opened_is_said_with_a_remedy(self, fs: Any) -> None:
        with pytest.raises(CheckpointError, match=r"checkpoint gopher://x/y cannot be read.*filesystem="):
            losses("gopher://x/y")
        with pytest.raises(CheckpointError, match=r"hadoop classpath --glob.*spark="):
            attempted("hdfs://n/x", lambda: _raise(OSError("no libhdfs\n" * 100)))
        arrow = pytest.importorskip("pyarrow")
        with pytest.raises(CheckpointError, match=r"cannot be read: what\. Credentials"):
            attempted("abfss://x/y", lambda: _raise(arrow.lib.ArrowException("what")))

    def test_no_error_shows_the_password_of_a_uri(
        self, checkpoint: WrittenCheckpoint, fs: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place = "s3://key:swordfish@bucket"

        def said(*arguments: Any, **more: Any) -> str:
            with pytest.raises(CheckpointError, match=r"s3://key:\.\.\.@bucket") as error:
                losses(place, *arguments, **more)
            return str(error.value)

        told = [said(filesystem=fs.LocalFileSystem())]  # Arrow's own words have the URI
        monkeypatch.setattr("tidelog.spark.checkpoints.open_files", lambda *_: LocalFiles(str(checkpoint.path)))
        checkpoint.plan(KAFKA)
        told += [said(), said(7)]
        (checkpoint.path / "offsets" / "0").write_text("v9\n{}\n")
        told.append(said())
        shutil.rmtree(checkpoint.path)
        told.append(said())
        assert "swordfish" not in "".join(told)

    def test_this_machine_needs_no_arrow(self) -> None:
        assert isinstance(open_files("/tmp/x"), LocalFiles)
        assert isinstance(open_files("relative/x"), LocalFiles)


@pytest.mark.parametrize("is_remote", [False, True])
def test_files_are_written_as_a_whole_and_removed(tmp_path: Path, is_remote: bool) -> None:
    fs = pytest.importorskip("pyarrow.fs")
    files = RemoteFiles(fs.LocalFileSystem(), str(tmp_path)) if is_remote else LocalFiles(str(tmp_path))
    for text in ("one", "another, longer"):
        files.write("tidelog/replays/a", text)
        assert (files.names("tidelog/replays"), files.text("tidelog/replays/a")) == (["a"], text)
    files.remove("tidelog/replays/a")
    with pytest.raises(FileNotFoundError):
        files.remove("tidelog/replays/a")


def test_a_note_of_a_replay_that_was_damaged_is_refused(tmp_path: Path) -> None:
    notes = ReplayNotes(str(tmp_path))
    loss = Loss("truncated", at(9), Offset(7), IDS[0])
    notes.write(end(9), {T0: (at(9), loss)})
    assert notes.read(end(9)) == {T0: (at(9), loss)}
    assert notes.read(end(8)) == {}
    (file,) = (tmp_path / "tidelog" / "replays").iterdir()
    file.write_text(file.read_text()[:-9])
    with pytest.raises(CheckpointError, match="is no note of a batch that ran again"):
        notes.read(end(9))


def test_a_client_of_spark_connect_reads_without_a_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package pyspark-client brings no py4j; a classic session has loaded it."""
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'tidelog[spark-local]'")
    from pyspark.errors import PySparkException

    from tidelog.spark.checkpoint_files import SparkFiles

    monkeypatch.setitem(sys.modules, "py4j", None)
    monkeypatch.delitem(sys.modules, "py4j.protocol", raising=False)

    class ToySession:
        error: Exception | None = None

        @property
        def read(self) -> Any:
            return self

        def text(self, path: str, *, wholetext: bool) -> Any:
            return SimpleNamespace(collect=lambda: self._collected(path))

        def _collected(self, path: str) -> list[Any]:
            if self.error is not None:
                raise self.error
            return [SimpleNamespace(value=path)]

    session: Any = ToySession()
    files = SparkFiles(session, "s3a://lake/checkpoint")
    assert files.text("metadata") == "s3a://lake/checkpoint/metadata"
    session.error = PySparkException("no such place")
    with pytest.raises(OSError, match="no such place"):
        files.text("metadata")
