"""Stories of share groups: logs that lose their ends, and what becomes of what a group has done.

`group start=1  done [m1@0]  a has [m4@1]` is from where on the group is not done, what was confirmed to be done, and
what members have.
"""

from __future__ import annotations

from support.old_rules.share_rules import OLD_SHARE_RULES, ShareRules
from support.stories.datadriven import Command
from support.stories.played_story import PlayedStory
from support.worlds.share_world import ShareWorld
from tidelog.base.errors import KafkaError
from tidelog.share import AcknowledgeType
from tidelog.sim.checkers.views import text_of


class ShareStory(PlayedStory[ShareRules, ShareWorld]):
    """One partition with a share group, and the commands that made it what it is."""

    todays_rules, old_rules = ShareRules, OLD_SHARE_RULES

    def __init__(self, rules: ShareRules | None = None) -> None:
        super().__init__(rules)
        self.table = {
            "share": ("share BROKER... [from=earliest|latest]: a share group reads; the first one leads", self._share),
            "write": ("write VALUE...: the leader gets these records", self._write),
            "copy": ("copy BROKER...: their logs become equal to the leader's", self._copy),
            "elect": ("elect BROKER: it leads, whatever records it lacks", self._elect),
            "acquire": ("acquire MEMBER: it asks for all that there is", self._acquire),
            "accept": ("accept MEMBER OFFSET...: it is done with these records", self._accept),
            "release": ("release MEMBER OFFSET...: others may have them", self._release),
        }

    def broken(self) -> list[str]:
        return list(dict.fromkeys(self.world.broken))

    def picture(self) -> list[str]:
        world = self.world
        log = " ".join(map(text_of, world.led.records))
        lines = [f"{world.leader} leader epoch={world.leader_epoch}  [{log}]"]
        start = "nowhere" if world.kept.start is None else world.kept.start
        done = " ".join(sorted(map(text_of, world.done)))
        members = "".join(
            f"  {member} has [{' '.join(text_of(world.led.records[at]) for at in sorted(offsets))}]"
            for member, offsets in sorted(world.holders.items())
            if offsets
        )
        return [*lines, f"group start={start}  done [{done}]{members}"]

    def _share(self, command: Command) -> None:
        begins_at_end = command.options.get("from") == "latest"
        self._world = ShareWorld(list(command.words), begins_at_end=begins_at_end, rules=self.rules)

    def _write(self, command: Command) -> None:
        for value in command.words:
            self.world.append(value)

    def _copy(self, command: Command) -> None:
        for word in command.words:
            self._known(command, word)
            self.world.replicas[word].copy_of(self.world.led)

    def _elect(self, command: Command) -> None:
        self._known(command, command.words[0])
        self.world.elect(command.words[0])

    def _acquire(self, command: Command) -> None:
        self.world.acquire(command.words[0])

    def _accept(self, command: Command) -> None:
        self._acknowledge(command, AcknowledgeType.ACCEPT)

    def _release(self, command: Command) -> None:
        self._acknowledge(command, AcknowledgeType.RELEASE)

    def _acknowledge(self, command: Command, type_: AcknowledgeType) -> None:
        member, *offsets = command.words
        try:
            self.world.acknowledge(member, sorted(map(int, offsets)), type_)
        except KafkaError as error:
            raise command.refuse(str(error)) from error

    def _known(self, command: Command, word: str) -> None:
        if word not in self.world.replicas:
            raise command.refuse(f"there is no broker {word}")
