"""What a scenario file cannot say is refused with its line and what is possible; what it says wrongly is seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.stories.datadriven import StoryError, check_file
from support.stories.stories import player_of

STORY = """# A story.

cluster A B
produce A m1
settle
----
A leader   epoch=0  [m1@0 |]
B follower epoch=0  [m1@0 |]
"""
REPLICAS = [
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
    ("cluster A B\ncluster A B C", "story.txt:2: .* a story has one beginning: cluster A B"),
    ("cluster A B min-insync=0", "of 2 replicas, 1 to 2 can have to be in sync"),
    ("cluster A B min-insync=3", "of 2 replicas, 1 to 2 can have to be in sync"),
    ("cluster A B\ncrash B\nelect B unclean", "that broker is down, as the controller knows"),
    ("cluster A B\ncut-off A\ncut-off A", "it is cut off already; what can follow: reconnect BROKER"),
]
CLIENTS = [
    ("topic A\nexplode", r"story.txt:2: 'explode': no such command. Possible are: topic BROKER.*read \[COUNT\]"),
    ("topic A\ntopic B", "story.txt:2: 'topic B': a story has one beginning: topic A"),
    ("topic", "it is used as: topic BROKER"),
    ("topic A\nelect B", "story.txt:2: 'elect B': there is no broker B"),
    ("topic A\nelect", "it is used as: elect BROKER"),
    ("topic A\nread", "story.txt:2: 'read': there is no consumer yet: consumer"),
    ("topic A\nconsumer policy=never", "it is used as: consumer .policy=none"),
    ("topic A\ncopy B", "there is no broker B"),
    ("topic A\nconsumer\nread some", "story.txt:3: 'read some': it is used as: read"),
    ("topic A\nconsumer\nseek end", "it is used as: seek OFFSET"),
    ("topic A\nconsumer\nresume", "no position was stored"),
    ("topic A\nwrite m1 m2 m3 m4 m5\nconsumer\nfetch\nfetch\nfetch", "there is nothing to fetch"),
    ("topic A B\nproduce m1\ncopy B\nproduce m2\nelect B\nproduce m3 m4", "the producer was told of a loss"),
]
ORDERS = [
    ("brokers A\nexplode", r"story.txt:2: 'explode': no such command. Possible are: brokers BROKER.*push BROKER"),
    ("brokers A\nbrokers B", "story.txt:2: 'brokers B': a story has one beginning: brokers A"),
    ("brokers", "it is used as: brokers BROKER"),
    ("brokers A1", "brokers are single letters"),
    ("brokers A\ncreate t", "it is used as: create TOPIC on=BROKER"),
    ("brokers A\ncreate t on=AB", "there is no broker B"),
    ("brokers A\ncreate t on=A\ncreate t on=A", "story.txt:3: 'create t on=A': there is such a topic"),
    ("brokers A\nassign t on=A", "there is no such topic"),
    ("brokers A\ncreate t on=A\nassign t on=A tells=all", "it is used as: assign TOPIC on=BROKER"),
    ("brokers A\npush", "it is used as: push BROKER"),
    ("brokers A\npush B", "there is no broker B"),
]

QUORUMS = [
    ("quorum A B C\nexplode", r"story.txt:2: 'explode': no such command. Possible are: quorum VOTER.*append VALUE"),
    ("quorum A B\nquorum A", "story.txt:2: 'quorum A': a story has one beginning: quorum A B"),
    ("quorum A C", "nodes are the first letters: quorum A B C observers=DE"),
    ("quorum A observers=C", "nodes are the first letters: quorum A B C observers=DE"),
    ("quorum A\npass long", "it is used as: pass COUNT"),
    ("quorum A B C\ncrash D", "there is no node D. There are: A B C"),
    ("quorum A B C\ncrash B\ncrash B", "it is down already; what can follow: start NODE"),
    ("quorum A B C\nstart B", "it is up"),
    ("quorum A B C\nclose A", "it has no connection to a leader"),
    ("quorum A B C\ncrash A\nappend t1", "nobody leads; what helps: settle"),
]

TOKENS = [
    ("nodes A\nexplode", r"story.txt:2: 'explode': no such command. Possible are: nodes NODE.*ask NODE REQUEST"),
    ("nodes B", "nodes are the first letters: nodes A B C"),
    ("nodes A\ncut-off B", "there is no node B. There are: A"),
    ("nodes A\nask A everything", "there is no such request. There are: metadata metadata-all"),
    ("nodes A\nask A metadata", "it is asked of a topic"),
    ("nodes A\nask A metadata-all t", "it is asked of all topics"),
    ("nodes A\nstart A", "it is up"),
    ("nodes A\ncrash A\nask A metadata t", "no node A is up"),
]


def check(tmp_path: Path, text: str, *, is_rewriting: bool = False) -> str:
    path = tmp_path / "story.txt"
    path.write_text(text)
    check_file(path, player_of(path), is_rewriting=is_rewriting)
    return path.read_text()


def test_a_story_that_goes_otherwise_fails_and_can_be_written_anew(tmp_path: Path) -> None:
    check(tmp_path, STORY)
    wrong = STORY.replace("B follower epoch=0  [m1@0 |]", "B follower epoch=0  [| m1@0]")
    with pytest.raises(AssertionError, match=r"story\.txt:3"):
        check(tmp_path, wrong)
    assert check(tmp_path, wrong, is_rewriting=True) == STORY


@pytest.mark.parametrize(("commands", "message"), REPLICAS + CLIENTS + ORDERS + QUORUMS + TOKENS)
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
    with pytest.raises(StoryError, match=r"story.txt:1: nothing is told here; a story begins with one of: cluster"):
        check(tmp_path, text)


def test_a_story_without_a_beginning_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoryError, match=r"story.txt:1: 'crash A': a story begins with one of: cluster, topic, broke"):
        check(tmp_path, "crash A\ncluster A B\n----\n")


@pytest.mark.parametrize(
    ("story", "rule"),
    [
        (STORY, "high-watermark"),
        (
            "topic A\nwrite m1\nconsumer\nread\n----\nA leader epoch=0  [m1@0]\nreader at=1  has [m1@0]\n",
            "no-validation",
        ),
        ("brokers A\ncreate t on=A\nlearn A\n----\nA knows 1  t#1 epoch=0 serves\n", "without-epochs"),
        ("quorum A\n----\nA leader      epoch=1  [+@1 |]\n", "parks-all-that-is-empty"),
        ("nodes A\n----\nA leads   no topic\nthe client knows no topic\n", "without-tokens"),
        ("share A\n----\nA leader epoch=0  []\ngroup start=nowhere  done []\n", "offsets-alone"),
    ],
)
def test_a_replay_that_breaks_nothing_proves_nothing(tmp_path: Path, story: str, rule: str) -> None:
    with pytest.raises(StoryError, match="proves nothing about ours"):
        check(tmp_path, f"{story}\nreplay rule={rule}\n----\n")
    with pytest.raises(StoryError, match=rf"no such rule\. There are: {rule}, "):
        check(tmp_path, f"{story}\nreplay rule=none\n----\n")
