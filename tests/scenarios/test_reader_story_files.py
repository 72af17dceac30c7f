"""What a story of clients cannot say is refused with its line and what is possible."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.datadriven import StoryError, blocks, check_file
from support.old_reader_rules import OLD_READER_RULES
from support.stories import player_of


def check(tmp_path: Path, text: str) -> None:
    path = tmp_path / "story.txt"
    path.write_text(text)
    check_file(path, player_of(path), is_rewriting=False)


@pytest.mark.parametrize(
    ("commands", "message"),
    [
        ("explode", r"story.txt:1: 'explode': a story begins with one of: cluster, topic"),
        ("topic A\nexplode", r"story.txt:2: 'explode': no such command. Possible are: topic BROKER.*read \[COUNT\]"),
        ("topic A\ntopic B", "story.txt:2: 'topic B': there is one topic in a story"),
        ("topic", "it is used as: topic BROKER"),
        ("topic A\nelect B", "story.txt:2: 'elect B': there is no such broker"),
        ("topic A\nelect", "it is used as: elect BROKER"),
        ("topic A\nread", "story.txt:2: 'read': there is no consumer yet: consumer"),
        ("topic A\nconsumer policy=never", "it is used as: consumer .policy=none"),
        ("topic A\nconsumer\nread some", "story.txt:3: 'read some': it is used as: read"),
        ("topic A\nconsumer\nresume", "no position was stored"),
        ("topic A\nwrite m1 m2 m3 m4 m5\nconsumer\nfetch\nfetch\nfetch", "it is used as: fetch"),
        ("topic A B\nproduce m1\ncopy B\nproduce m2\nelect B\nproduce m3 m4", "the producer was told of a loss"),
    ],
)
def test_what_clients_cannot_do_is_named(tmp_path: Path, commands: str, message: str) -> None:
    with pytest.raises(StoryError, match=message):
        check(tmp_path, f"{commands}\n----\n")


def test_every_replaced_rule_of_clients_has_a_story_of_its_own() -> None:
    told = [list(blocks(path)) for path in Path(__file__).parent.glob("*.txt")]
    rules = [story[-1][0][0].options["rule"] for story in told if story[0][0][0].name == "topic"]
    assert sorted(rules) == sorted(OLD_READER_RULES)


def test_a_replay_of_clients_that_breaks_nothing_proves_nothing(tmp_path: Path) -> None:
    story = "topic A\nwrite m1\nconsumer\nread\n----\nA leader epoch=0  [m1@0]\nreader at=1  has [m1@0]\n\n"
    with pytest.raises(StoryError, match="proves nothing about ours"):
        check(tmp_path, f"{story}replay rule=no-validation\n----\n")
    with pytest.raises(StoryError, match=r"no such rule\. There are: no-validation, "):
        check(tmp_path, f"{story}replay rule=none\n----\n")
