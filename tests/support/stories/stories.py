"""Which kind of story a scenario file tells: its first command says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.stories.datadriven import Command, StoryError, blocks
from support.stories.played_story import PlayedStory
from support.stories.quorum_story import QuorumStory
from support.stories.reader_story import ReaderStory
from support.stories.replica_story import ReplicaStory
from support.stories.security_story import SecurityStory
from support.stories.share_story import ShareStory
from support.stories.stop_story import StopStory
from support.stories.token_story import TokenStory

KINDS: dict[str, type[PlayedStory[Any, Any]]] = {
    "cluster": ReplicaStory,
    "topic": ReaderStory,
    "brokers": StopStory,
    "quorum": QuorumStory,
    "nodes": TokenStory,
    "secured": SecurityStory,
    "share": ShareStory,
}


def player_of(path: Path) -> Callable[[list[Command]], list[str]]:
    """What plays the blocks of a file, from the first to the last."""
    begins_with = f"a story begins with one of: {', '.join(KINDS)}"
    commands, _ = next(blocks(path), ([], []))
    if not commands:
        raise StoryError(f"{path.name}:1: nothing is told here; {begins_with}")
    kind = KINDS.get(commands[0].name)
    if kind is None:
        raise commands[0].refuse(begins_with)
    return kind().play
