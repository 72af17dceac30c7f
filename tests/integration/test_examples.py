"""The programs in `examples/`, as a reader of them starts them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pyarrow.parquet as pq
import pytest

from integration.test_consumers_in_groups import PARTITIONS, RECORDS, fill, found
from support.fixtures.waiting import wait_until
from support.nodes.node import NodeProcess
from tidelog import Admin, Consumer, NewTopic, Producer, TopicPartition

EXAMPLES = Path(__file__).parents[2] / "examples"
SECONDS_MAX = 60


class Program:
    """One that runs."""

    def __init__(self, name: str, log: Path, arguments: tuple[object, ...]) -> None:
        self._log = log
        with log.open("wb") as out:
            command = [sys.executable, "-W", "error", str(EXAMPLES / name), *map(str, arguments)]
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)

    @property
    def said(self) -> str:
        return self._log.read_text()

    def end(self) -> str:
        """Wait for its end, and return all that it said."""
        assert self.process.wait(SECONDS_MAX) == 0, self.said
        return self.said


class Programs:
    """Start them, and end those that do not end by themselves."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack

    def start(self, name: str, *arguments: object) -> Program:
        program = Program(name, self._folder / f"{name}.{uuid4().hex[:4]}.log", arguments)
        self._stack.callback(program.process.wait)
        self._stack.callback(program.process.kill)
        return program


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    with ExitStack() as stack:
        yield Programs(tmp_path, stack)


@pytest.fixture
def topic(shared_node: NodeProcess) -> str:
    name = f"example-{uuid4().hex[:8]}"
    fill(shared_node, name)
    return name


def test_workers_do_each_record_and_stop_when_they_are_asked_to(
    shared_node: NodeProcess, programs: Programs, topic: str
) -> None:
    program = programs.start("worker_group.py", shared_node.bootstrap, topic, topic, "--workers", 2)
    done = re.compile(rf"^worker \d: {topic}-(\d) at (\d+): \1-\2$", re.MULTILINE)
    wait_until(lambda: len(set(done.findall(program.said))) == PARTITIONS * RECORDS, lambda: program.said)
    program.process.send_signal(signal.SIGINT)
    assert program.end().count("is done") == 2
    assert found(shared_node, topic) == dict.fromkeys(range(PARTITIONS), RECORDS)


def test_orders_get_totals_and_what_is_none_is_set_aside(
    shared_node: NodeProcess, programs: Programs, topic: str
) -> None:
    source, target = f"{topic}-orders", f"{topic}-totals"
    with Admin(shared_node.bootstrap) as admin, Producer(shared_node.bootstrap) as producer:
        admin.create_topics([NewTopic(source, 1), NewTopic(target, 1), NewTopic(f"{target}-refused", 1)])
        producer.send(source, json.dumps({"price": 3, "quantity": 4}))
        producer.send(source, "not JSON")
    program = programs.start("async_etl.py", shared_node.bootstrap, source, target, source)
    wait_until(lambda: "2 records" in program.said, lambda: program.said)
    program.process.send_signal(signal.SIGINT)
    program.end()
    with Consumer(shared_node.bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([TopicPartition(target, 0), TopicPartition(f"{target}-refused", 0)], start="earliest")
        written = {record.topic: record for record in consumer.until_end()}
    assert json.loads(written[target].value or b"") == {"price": 3, "quantity": 4, "total": 12}
    assert written[f"{target}-refused"].headers[0][0] == "reason"
    assert found(shared_node, source) == {0: 2}


def test_a_topic_is_in_files_and_goes_on_where_they_end(
    shared_node: NodeProcess, programs: Programs, topic: str, tmp_path: Path
) -> None:
    arguments = (shared_node.bootstrap, topic, topic, tmp_path / "files", "--until-end")
    assert f": {PARTITIONS * RECORDS} rows" in programs.start("kafka_to_parquet.py", *arguments).end()
    fill(shared_node, topic)
    programs.start("kafka_to_parquet.py", *arguments).end()
    tables = [pq.read_table(path) for path in sorted((tmp_path / "files").glob("*.parquet"))]
    assert [table.num_rows for table in tables] == [PARTITIONS * RECORDS, PARTITIONS * RECORDS]


def test_the_end_of_a_topic_is_shown_and_what_comes_then(
    shared_node: NodeProcess, programs: Programs, topic: str
) -> None:
    said = programs.start("tail.py", shared_node.bootstrap, topic, "--last", 2, "--no-follow").end()
    assert sorted(line.split()[1] for line in said.splitlines()) == ["18"] * PARTITIONS + ["19"] * PARTITIONS
    program = programs.start("tail.py", shared_node.bootstrap, topic, "--last", 1)
    wait_until(lambda: len(program.said.splitlines()) == PARTITIONS, lambda: program.said)
    with Producer(shared_node.bootstrap) as producer:
        producer.send(topic, b"news", partition=0)
    wait_until(lambda: "0       20 news" in program.said, lambda: program.said)
    program.process.send_signal(signal.SIGINT)
    program.end()
