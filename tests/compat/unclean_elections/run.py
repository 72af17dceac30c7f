"""Six clients in one unclean election: prints who noticed what, as the tables of docs/compatibility.md.

python tests/compat/unclean_elections/run.py [CLIENT ...]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from compat.unclean_elections.clients import CLIENTS
from compat.unclean_elections.story import new_story


def main() -> None:
    clients = []
    for name in sys.argv[1:] or CLIENTS:
        if (reason := CLIENTS[name].missing()) is None:
            clients.append(CLIENTS[name])
        else:
            print(f"{name}: {reason}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="tidelog-") as directory, new_story(clients, Path(directory)) as story:
        short = story.run_short()
        for name, each in short.items():
            print("short", name, each)
        long = story.run_long()
        for name in long.read:
            print("read", name, long.read[name])
            print("resumed", name, long.resumed[name])
            print("written", name, long.written[name])
        print(story.versions)


if __name__ == "__main__":
    main()
