"""Explore the small worlds in full, two at a time, and print a table: `make worlds`, or `worlds.py WORD` for some."""

from __future__ import annotations

import multiprocessing
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.exhaustive.small_world import SmallWorld
from support.exhaustive.small_world_search import Explored, explore
from support.exhaustive.small_worlds import FULL, REFUTATIONS
from support.old_rules.replica_rules import OLD_RULES
from support.stories.small_world_story import scenario_of

PROCESSES = 2
HEAD = "| world | size | states | transitions | depth | seconds |\n|---|---|---|---|---|---|"


def explore_one(number: int) -> tuple[int, Explored, str]:
    """One of `FULL`, or beyond those one of `REFUTATIONS`, and the story that refutes it."""
    if number < len(FULL):
        world = FULL[number].world()
        found = explore(world)
        story = (
            scenario_of(world, found, says="Today's rules.") if found.broken and isinstance(world, SmallWorld) else ""
        )
        return number, found, story
    refutation = REFUTATIONS[number - len(FULL)]
    refuted = refutation.world()
    found = explore(refuted, is_traced=True)
    story = scenario_of(refuted, found, says=OLD_RULES[refutation.rule].says) if found.broken else ""
    return number, found, story


def main(words: list[str]) -> int:
    """Returns 1 if something is broken that should not be, or is not that should."""
    names = [f"{size.name} {size.text}" for size in FULL] + [f"refuted {one.rule}" for one in REFUTATIONS]
    chosen = [at for at, name in enumerate(names) if all(word in name for word in words)]
    if not chosen:
        print("no such world. There are:", *names, sep="\n", file=sys.stderr)
        return 2
    wrong, stories = 0, []
    print(HEAD)
    with multiprocessing.Pool(PROCESSES) as pool:
        for number, found, story in pool.imap_unordered(explore_one, chosen):
            if number < len(FULL):
                name, size, is_wrong = FULL[number].name, FULL[number].text, bool(found.broken)
            else:
                refutation = REFUTATIONS[number - len(FULL)]
                name, size = refutation.rule, f"until {refutation.invariant} is broken"
                is_wrong = not found.broken.startswith(refutation.invariant)
            counts = f"{found.states:,} | {found.transitions:,} | {found.depth} | {found.seconds:.1f}"
            print(f"| {name} | {size} | {counts} |" + f" WRONG: {found.broken or 'holds'}" * is_wrong, flush=True)
            wrong += is_wrong
            stories += [story] if story else []
    print("", *stories, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
