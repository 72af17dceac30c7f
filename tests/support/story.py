"""Stories of replicas: what an operator, a producer or a network does, and the logs as they are then.

`A leader   epoch=1  [m1@0 | m2@0]` is a broker, its part, the leader epoch that it goes by, and its log: `m@e` is
record m of leader epoch e; what is left of `|` lies below its high watermark. Brokers are letters.
"""

from __future__ import annotations

from support.datadriven import Command, StoryError, fits
from support.old_rules import OLD_RULES
from support.replica_values import Rules
from support.replica_world import InvariantBrokenInWorldError
from support.story_commands import StoryCommands, line_of


class Story:
    """One world, and the commands that made it what it is."""

    def __init__(self, rules: Rules | None = None) -> None:
        self._commands = StoryCommands(Rules() if rules is None else rules, self._picture)
        self._played: list[Command] = []

    def play(self, commands: list[Command]) -> list[str]:
        """Do them in turn. Returns what happened, and all logs."""
        if commands[0].name == "replay":
            return self._replay(commands[0])
        lines: list[str] = []
        for command in commands:
            self._do(command)
            world = self._commands.world_of(command)
            lines += [event for at, event in enumerate(world.events) if event not in world.events[at - 1 : at]]
            world.events.clear()
        return lines + [f"INVARIANT BROKEN {line}" for line in self._broken(commands[-1])] + self._picture()

    def breaks_under(self, rules: Rules) -> bool:
        """Whether what was played breaks an invariant under other rules, as far as it can be played there."""
        other = Story(rules)
        for played in self._played:
            try:
                other._do(played)
            except StoryError:
                return False
            if other._broken(played):
                return True
        return False

    def _do(self, command: Command) -> None:
        table = self._commands.table
        if command.name not in table:
            possible = "; ".join(usage for usage, _ in table.values())
            raise command.refuse(f"no such command. Possible are: {possible}; replay rule={'|'.join(OLD_RULES)}")
        usage, do = table[command.name]
        if not fits(command, usage):
            raise command.refuse(f"it is used as: {usage}")
        do(command)
        self._played.append(command)

    def _replay(self, command: Command) -> list[str]:
        """The same story under a rule that was replaced: it has to break something, or it proves nothing."""
        rule = command.options.get("rule", "")
        if rule not in OLD_RULES:
            raise command.refuse(f"no such rule. There are: {', '.join(OLD_RULES)}")
        other = Story(OLD_RULES[rule].rules)
        broken: list[str] = []
        for played in self._played:
            other._do(played)
            broken = other._broken(played) or broken
        if not broken:
            raise command.refuse("the story ends as well under that rule, and so proves nothing about ours")
        return other._picture() + [f"INVARIANT BROKEN {line}" for line in broken]

    def _broken(self, command: Command) -> list[str]:
        try:
            self._commands.world_of(command).check()
        except InvariantBrokenInWorldError as error:
            return str(error).splitlines()
        return []

    def _picture(self) -> list[str]:
        world = self._commands.world
        if world is None:
            raise StoryError("a story begins with: cluster A B")
        return [line_of(node) for node in world.nodes.values()]
