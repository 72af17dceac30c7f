"""What a scenario file cannot say is refused with its line and what is possible; what it says wrongly is seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.datadriven import StoryError, check_file
from support.stories import player_of
from support.story import Story

STORY = """# A story.

cluster A B
produce A m1
settle
----
A leader   epoch=0  [m1@0 |]
B follower epoch=0  [m1@0 |]
"""


def check(tmp_path: Path, text: str, *, is_rewriting: bool = False) -> str:
    path = tmp_path / "story.txt"
    path.write_text(text)
    check_file(path, Story().play, is_rewriting=is_rewriting)
    return path.read_text()


def test_a_story_that_goes_otherwise_fails_and_can_be_written_anew(tmp_path: Path) -> None:
    check(tmp_path, STORY)
    wrong = STORY.replace("B follower epoch=0  [m1@0 |]", "B follower epoch=0  [| m1@0]")
    with pytest.raises(AssertionError, match=r"story\.txt:3"):
        check(tmp_path, wrong)
    assert check(tmp_path, wrong, is_rewriting=True) == STORY


@pytest.mark.parametrize(
    ("commands", "message"),
    [
        ("cluster A B\nexplode A", r"story.txt:2: 'explode A': no such command. Possible are: .*crash BROKER"),
        ("cluster A B\nproduce B m1", "story.txt:2: 'produce B m1': that broker does not believe that it leads"),
        ("cluster A B\ncrash C", "story.txt:2: 'crash C': there is no broker C. There are: A B"),
        ("cluster A B\nelect A unaware=Z", "there is no broker Z. There are: A B"),
        ("cluster A B\ncrash", "it is used as: crash BROKER"),
        ("cluster A B\ncrash A B", "it is used as: crash BROKER"),
        ("cluster A B\ncrash A unclean", "it is used as: crash BROKER"),
        ("cluster A B\nsettle now", "it is used as: settle"),
        ("cluster A B\nproduce A", "it is used as: produce LEADER VALUE"),
        ("cluster A B\nproduce A m1 ack=all", r"it is used as: produce LEADER VALUE... \[acks=all\]"),
        ("cluster A B\nproduce A m1 acks=some", r"it is used as: produce LEADER VALUE... \[acks=all\]"),
        ("cluster A B\nelect B uncleanly", r"it is used as: elect BROKER \[unclean\]"),
        ("cluster A B\npower-loss A", "it is used as: power-loss BROKER keeps=N"),
        ("cluster A B\npower-loss A keeps=all", "it is used as: power-loss BROKER keeps=N"),
        ("cluster A B\npower-loss A keeps=1", "it has 0 records"),
        ("cluster A C", "brokers are the first letters: A B"),
        ("crash A", "a story begins with: cluster A B"),
        ("cluster A B\nfetch A", "A has no fetch on its way"),
        ("cluster A B\nlate B", "it has one fetch on its way, and no older one: fetch FOLLOWER"),
        ("cluster A B\ngrant A", "it has no proposal on its way: fetch FOLLOWER proposal=held"),
        ("cluster A B\nlearn B", "it knows all there is"),
        ("cluster A B\ncrash B\nlearn B", "that broker is down"),
        ("cluster A B\ncrash B\nconsume B from=0 epoch=0", "that broker is down"),
        ("cluster A B\ncrash B\ncut-off B", "that broker is down"),
        ("cluster A B\ncrash B\ncrash B", "it is down already; what can follow: expire BROKER, restart BROKER"),
        ("cluster A B\nexpire B", "what ends it: crash BROKER, power-loss BROKER keeps=N"),
        ("cluster A B\nreconnect B", "it is not cut off"),
        ("cluster A B\ncut-off A\nfetch B", "B, or whom it fetches from, is cut off"),
        ("cluster A B\ncrash B\nelect B", "it is not in sync; to elect it all the same: elect BROKER unclean"),
        ("cluster A B\ncluster A B C", "story.txt:2: .* there is one cluster in a story"),
        ("cluster A B min-insync=0", "of 2 replicas, 1 to 2 can have to be in sync"),
        ("cluster A B min-insync=3", "of 2 replicas, 1 to 2 can have to be in sync"),
        ("cluster A B\ncrash B\nelect B unclean", "that broker is down, as the controller knows"),
        ("cluster A B\ncut-off A\ncut-off A", "it is cut off already; what can follow: reconnect BROKER"),
        ("replay rule=none", "no such rule. There are: high-watermark"),
    ],
)
def test_what_cannot_be_played_is_named(tmp_path: Path, commands: str, message: str) -> None:
    with pytest.raises(StoryError, match=message):
        check(tmp_path, f"{commands}\n----\n")


def test_commands_without_output_are_named(tmp_path: Path) -> None:
    with pytest.raises(StoryError, match=r"story.txt:2: .* without ----"):
        check(tmp_path, "cluster A B\n")


def test_output_without_commands_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoryError, match=r"story.txt:2: there are no commands above ----"):
        check(tmp_path, "----\n")


def test_blanks_at_the_ends_of_lines_mean_nothing(tmp_path: Path) -> None:
    check(tmp_path, STORY.replace("\n\n", "\n  \n").replace("settle", "settle  "))


@pytest.mark.parametrize("text", ["", "# A story that nobody has told yet.\n"])
def test_a_file_without_a_story_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "story.txt"
    path.write_text(text)
    with pytest.raises(StoryError, match=r"story.txt:1: nothing is told here; a story begins with one of: cluster"):
        player_of(path)


def test_a_replay_that_breaks_nothing_proves_nothing(tmp_path: Path) -> None:
    with pytest.raises(StoryError, match="proves nothing about ours"):
        check(tmp_path, f"{STORY}\nreplay rule=high-watermark\n----\n")
