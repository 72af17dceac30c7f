"""What all kinds of stories have in common: commands are played in turn, and again under a rule that was replaced."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from support.stories.datadriven import Command, fits


class World(Protocol):
    """What a story is about. `events` tells what happened in it; who has read them clears them."""

    @property
    def events(self) -> list[str]: ...


R = TypeVar("R")
W = TypeVar("W", bound=World)


class PlayedStory(ABC, Generic[R, W]):
    """One world, and the commands that made it what it is.

    Attributes:
        todays_rules: what the world goes by.
        old_rules: what a story can be played under once more, by name.
        table: by name, how a command is used, and what does it. The first one makes the world, and begins each story.
    """

    todays_rules: ClassVar[type[Any]]
    old_rules: ClassVar[Mapping[str, Any]]
    table: Mapping[str, tuple[str, Callable[[Command], None]]]

    def __init__(self, rules: R | None = None) -> None:
        self.rules: R = self.todays_rules() if rules is None else rules
        self._world: W | None = None
        self._played: list[Command] = []

    @abstractmethod
    def broken(self) -> list[str]:
        """The invariants that were seen not to hold."""

    @abstractmethod
    def picture(self) -> list[str]:
        """What there is to see of the world."""

    @property
    def world(self) -> W:
        assert self._world is not None, f"a story begins with {next(iter(self.table))}"
        return self._world

    def play(self, commands: list[Command]) -> list[str]:
        """Do them in turn. Returns what happened, and what there is to see."""
        if commands[0].name == "replay":
            return self._replay(commands[0])
        lines: list[str] = []
        for command in commands:
            self.do(command)
            events = self.world.events
            lines += [event for at, event in enumerate(events) if event not in events[at - 1 : at]]
            events.clear()
        return [*lines, *self.picture(), *_told(self.broken())]

    def do(self, command: Command) -> None:
        """One of the table. Raises `StoryError` where it is not possible."""
        if command.name not in self.table:
            possible = "; ".join(usage for usage, _ in self.table.values())
            raise command.refuse(f"no such command. Possible are: {possible}; replay rule={'|'.join(self.old_rules)}")
        usage, do = self.table[command.name]
        if not fits(command, usage):
            raise command.refuse(f"it is used as: {usage}")
        if self._played and command.name == next(iter(self.table)):
            raise command.refuse(f"a story has one beginning: {self._played[0].text}")
        do(command)
        self._played.append(command)

    def _replay(self, command: Command) -> list[str]:
        """The same story under a rule that was replaced: it has to break something, or it proves nothing."""
        rule = command.options.get("rule", "")
        if rule not in self.old_rules:
            raise command.refuse(f"no such rule. There are: {', '.join(self.old_rules)}")
        self.close()
        other = type(self)(self.old_rules[rule])
        broken: list[str] = []
        try:
            for played in self._played:
                other.do(played)
                broken = other.broken() or broken
            if not broken:
                raise command.refuse("the story ends as well under that rule, and so proves nothing about ours")
            return [*other.picture(), *_told(broken)]
        finally:
            other.close()

    def close(self) -> None:
        """Nothing more is played, but under another rule."""


def _told(broken: list[str]) -> list[str]:
    return [f"INVARIANT BROKEN {line}" for line in broken]
