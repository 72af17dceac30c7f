"""Stories of clients: logs that lose their ends, and what a consumer and a producer make of it.

`A leader epoch=1  [m1@0 m4@1]` is the log of the broker that leads; what others have beside it is theirs until they
copy it. `reader at=2  has [m1@0 m4@1]` is where the consumer goes on, and all that it was given and not told to undo.
"""

from __future__ import annotations

from collections.abc import Callable

from support.datadriven import Command, StoryError
from support.old_reader_rules import OLD_READER_RULES, ReaderRules
from support.reader_world import PartitionWorld, ReadingClient, WritingClient
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.client.core.values import Position, ResetPolicy
from tidelog.sim.checkers.views import text_of


class ReaderStory:
    """One partition with its clients, and the commands that made it what it is.

    Attributes:
        table: by name, how a command is used, and what does it.
    """

    def __init__(self, rules: ReaderRules | None = None) -> None:
        self._rules = ReaderRules() if rules is None else rules
        self._world: PartitionWorld | None = None
        self._reading: ReadingClient | None = None
        self._writing: WritingClient | None = None
        self._stored: Position | None = None
        self._events: list[str] = []
        self._played: list[Command] = []
        self.table: dict[str, tuple[str, Callable[[Command, PartitionWorld], None]]] = {
            "topic": ("topic BROKER...: the first one leads", self._topic),
            "write": ("write VALUE...: somebody does, and the leader has them", self._write),
            "produce": ("produce VALUE...: our producer does, with acks=1", self._produce),
            "copy": ("copy BROKER...: they have what the leader has", self._copy),
            "elect": ("elect BROKER: whatever it lacks", self._elect),
            "recreate": ("recreate: the topic is deleted, and made anew", self._recreate),
            "consumer": ("consumer [policy=none|earliest|latest|closest]: it begins at 0", self._consumer),
            "learn": ("learn: the consumer hears who leads, and asks what it must know of that", self._learn),
            "fetch": ("fetch: the consumer asks for records, and delivers none", self._fetch),
            "read": ("read [COUNT]: the consumer is given so many records, or all", self._read),
            "seek": ("seek OFFSET [epoch=N]: of the record before", self._seek),
            "store": ("store: the consumer's position is kept elsewhere", self._store),
            "resume": ("resume: a new session of the consumer begins where the last position was stored", self._resume),
        }

    def play(self, commands: list[Command]) -> list[str]:
        """Do them in turn. Returns what happened, the leader's log, and what the consumer has."""
        if commands[0].name == "replay":
            return self._replay(commands[0])
        lines: list[str] = []
        for command in commands:
            self._do(command)
            lines += self._events
            self._events.clear()
        return lines + [f"INVARIANT BROKEN {line}" for line in self._broken()] + self._picture()

    def _do(self, command: Command) -> None:
        if command.name not in self.table:
            possible = "; ".join(usage for usage, _ in self.table.values())
            raise command.refuse(f"no such command. Possible are: {possible}; replay rule={'|'.join(OLD_READER_RULES)}")
        usage, do = self.table[command.name]
        try:
            if self._world is None:
                if command.name != "topic":
                    raise command.refuse("a story of clients begins with: topic A B")
                self._world = PartitionWorld(list(command.words))
            do(command, self._world)
        except (AssertionError, IndexError, KeyError, ValueError) as error:
            raise command.refuse(f"it is used as: {usage}") from error
        self._played.append(command)

    def _replay(self, command: Command) -> list[str]:
        """The same story under a rule that was replaced: it has to break something, or it proves nothing."""
        rule = command.options.get("rule", "")
        if rule not in OLD_READER_RULES:
            raise command.refuse(f"no such rule. There are: {', '.join(OLD_READER_RULES)}")
        other = ReaderStory(OLD_READER_RULES[rule])
        for played in self._played:
            other._do(played)
        if not other._broken():
            raise command.refuse("the story ends as well under that rule, and so proves nothing about ours")
        return other._picture() + [f"INVARIANT BROKEN {line}" for line in other._broken()]

    # The commands.

    def _topic(self, command: Command, world: PartitionWorld) -> None:
        if self._played:
            raise command.refuse("there is one topic in a story")

    @staticmethod
    def _write(command: Command, world: PartitionWorld) -> None:
        for value in command.words:
            world.append(value)

    def _produce(self, command: Command, world: PartitionWorld) -> None:
        if self._writing is None:
            self._writing = WritingClient(world, self._rules, self._events)
        for value in command.words:
            if self._writing.is_told:
                raise command.refuse("the producer was told of a loss, and delivers no more")
            self._writing.produce(value)

    @staticmethod
    def _copy(command: Command, world: PartitionWorld) -> None:
        for broker in command.words:
            world.replicas[broker].copy_of(world.led)

    @staticmethod
    def _elect(command: Command, world: PartitionWorld) -> None:
        if command.words[0] not in world.replicas:
            raise command.refuse("there is no such broker")
        world.elect(command.words[0])

    @staticmethod
    def _recreate(command: Command, world: PartitionWorld) -> None:
        world.recreate()

    def _consumer(self, command: Command, world: PartitionWorld) -> None:
        policy = ResetPolicy(command.options.get("policy", "none"))
        self._reading = ReadingClient(world, policy, self._rules, self._events)
        self._reading.seek(Position(Offset(0), None))

    def _learn(self, command: Command, world: PartitionWorld) -> None:
        self._client(command).learn()

    def _fetch(self, command: Command, world: PartitionWorld) -> None:
        self._client(command).fetch()

    def _read(self, command: Command, world: PartitionWorld) -> None:
        self._client(command).read(int(command.words[0]) if command.words else 1_000)

    def _seek(self, command: Command, world: PartitionWorld) -> None:
        epoch = command.options.get("epoch")
        offset = Offset(int(command.words[0]))
        self._client(command).seek(Position(offset, None if epoch is None else LeaderEpoch(int(epoch))))

    def _store(self, command: Command, world: PartitionWorld) -> None:
        self._stored = self._rules.store(self._client(command).reader)

    def _resume(self, command: Command, world: PartitionWorld) -> None:
        if self._stored is None:
            raise command.refuse("no position was stored")
        self._client(command).resume(self._stored)

    def _client(self, command: Command) -> ReadingClient:
        if self._reading is None:
            raise command.refuse("there is no consumer yet: consumer")
        return self._reading

    # What there is to see.

    def _broken(self) -> list[str]:
        reading = [] if self._reading is None else self._reading.broken
        return [*dict.fromkeys(reading), *([] if self._writing is None else self._writing.broken)]

    def _picture(self) -> list[str]:
        world = self._world
        if world is None:
            raise StoryError("a story of clients begins with: topic A B")
        log = " ".join(text_of(record) for record in world.led.records)
        lines = [f"{world.leader} leader epoch={world.leader_epoch}  [{log}]"]
        return lines if self._reading is None else [*lines, self._reading.line()]
