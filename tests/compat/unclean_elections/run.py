"""Six clients in one unclean election: prints who noticed what, as the tables of docs/compatibility.md.

python tests/compat/unclean_elections/run.py [--kafka] [CLIENT ...]

--kafka: on two brokers of Apache Kafka, not on three nodes.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from compat.unclean_elections.clients import CLIENTS, Client
from compat.unclean_elections.rows import row_of_producers, row_of_readers, words_of
from compat.unclean_elections.story import CONFIG, OnTidelog, Place, Story, commands_of
from support.clients.kafka_unclean_election import KafkaUncleanElection
from tidelog.testing import Cluster


@contextmanager
def new_place(*, is_kafka: bool, directory: Path) -> Iterator[Place]:
    if is_kafka:
        with KafkaUncleanElection(directory) as kafka:
            yield kafka
    else:
        with Cluster(config=CONFIG) as cluster:
            yield OnTidelog(cluster)


def chosen(names: list[str]) -> list[Client]:
    """Those that can run here; says why the others cannot."""
    found = []
    for client in (CLIENTS[name] for name in names or CLIENTS):
        if (reason := client.missing()) is None:
            found.append(client)
        else:
            print(f"{client.name}: {reason}", file=sys.stderr)
    return found


def main() -> None:
    names = [name for name in sys.argv[1:] if name != "--kafka"]
    with tempfile.TemporaryDirectory(prefix="tidelog-") as made:
        directory = Path(made)
        commands = commands_of(chosen(names), directory)
        with new_place(is_kafka="--kafka" in sys.argv, directory=directory) as place:
            story = Story(place, commands, directory)
            short, long = story.run("short", commits=False), story.run("long", commits=True)
    print("| client | reader, log ends at 80 | reader, log ends at 130 | reader from its commit, log ends at 130 |")
    print("|---|---|---|---|")
    for name in commands:
        print(row_of_readers(name, story.versions[name], short, long))
    print("\n| client | words |")
    print("|---|---|")
    for name in commands:
        print(words_of(name, short, long))
    print("\n| client | some records lost | all records lost, log ends at 80 | all records lost, log ends at 130 |")
    print("|---|---|---|---|")
    for name in commands:
        print(row_of_producers(name, story.versions[name], short, long))


if __name__ == "__main__":
    main()
