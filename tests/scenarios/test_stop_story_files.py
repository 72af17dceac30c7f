"""What a story of StopReplica cannot say is refused with its line and what is possible."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.datadriven import StoryError, check_file
from support.stories import player_of


def check(tmp_path: Path, text: str) -> None:
    path = tmp_path / "story.txt"
    path.write_text(text)
    check_file(path, player_of(path), is_rewriting=False)


@pytest.mark.parametrize(
    ("commands", "message"),
    [
        ("brokers A\nexplode", r"story.txt:2: 'explode': no such command. Possible are: brokers BROKER.*push BROKER"),
        ("brokers A\nbrokers B", "story.txt:2: 'brokers B': the brokers of a story are named once"),
        ("brokers", "it is used as: brokers BROKER"),
        ("brokers A1", "brokers are single letters"),
        ("brokers A\ncreate t", "it is used as: create TOPIC on=BROKER"),
        ("brokers A\ncreate t on=AB", "there is no broker B"),
        ("brokers A\ncreate t on=A\ncreate t on=A", "story.txt:3: 'create t on=A': there is such a topic"),
        ("brokers A\nassign t on=A", "there is no such topic"),
        ("brokers A\ncreate t on=A\nassign t on=A tells=all", "it is used as: assign TOPIC on=BROKER"),
        ("brokers A\npush", "it is used as: push BROKER"),
        ("brokers A\npush B", "there is no broker B"),
    ],
)
def test_what_cannot_be_ordered_is_named(tmp_path: Path, commands: str, message: str) -> None:
    with pytest.raises(StoryError, match=message):
        check(tmp_path, f"{commands}\n----\n")


def test_a_replay_of_orders_that_breaks_nothing_proves_nothing(tmp_path: Path) -> None:
    story = "brokers A\ncreate t on=A\nlearn A\n----\nA knows 1  t#1 epoch=0 serves\n\n"
    with pytest.raises(StoryError, match="proves nothing about ours"):
        check(tmp_path, f"{story}replay rule=without-epochs\n----\n")
    with pytest.raises(StoryError, match=r"no such rule\. There are: without-epochs, "):
        check(tmp_path, f"{story}replay rule=none\n----\n")
