"""docs/spark-unclean-election.md: one unclean election beside Spark's own connector, and its page tells the truth."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.clients.kafka_peer import SPARK_JARS, missing_peers

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'tidelog[spark-local]'")
pytest.importorskip("deltalake", reason="deltalake is not installed: pip install 'tidelog[spark-delta]'")

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "spark-unclean-election.md"
SECONDS_MAX = 600
PACKAGES = '{"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0"}'
"""What a reader's Spark fetches. The tests take what `make peers` fetched."""
ON_TIDELOG = """
cluster = Cluster()
cluster.start()
"""
ON_KAFKA = f"""
import sys
from pathlib import Path

sys.path.insert(0, {str(TESTS)!r})
from support.clients.kafka_unclean_election import KafkaUncleanElection


class OnKafka(KafkaUncleanElection):
    def truncate(self, topic: str, records: int) -> None:
        self.lose(topic)


cluster = OnKafka(Path("brokers").absolute())
cluster.__enter__()
"""
LAST_PLACED = 'place(f"old {number}" for number in range(50, 100))'


def replaced(program: str, old: str, new: str) -> str:
    assert program.count(old) == 1, old
    return program.replace(old, new)


@pytest.mark.timeout(SECONDS_MAX)
@pytest.mark.parametrize("brokers", ["tidelog", pytest.param("kafka", marks=pytest.mark.slow)])
def test_the_page_prints_what_it_says(brokers: str, tmp_path: Path) -> None:
    if (reason := missing_peers(jars=SPARK_JARS)) is not None:
        pytest.skip(reason)
    page = PAGE.read_text(encoding="utf-8")
    program = "\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    said = "".join(re.findall(r"```text\n(.*?)```", page, re.DOTALL))
    jars = {"spark.jars": ",".join(str(jar) for jar in SPARK_JARS.glob("*.jar"))}
    program = replaced(program, PACKAGES, repr(jars))
    if brokers == "kafka":
        if (reason := missing_peers()) is not None:
            pytest.skip(reason)
        program = replaced(program, ON_TIDELOG, ON_KAFKA)
        program = replaced(program, LAST_PLACED, f'cluster.begin_loss("orders")\n{LAST_PLACED}')
        (tmp_path / "brokers").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4_000:]
    assert done.stdout == said
