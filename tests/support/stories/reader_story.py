"""Stories of clients: logs that lose their ends, and what a consumer and a producer make of it.

`A leader epoch=1  [m1@0 m4@1]` is the log of the broker that leads; what others have beside it is theirs until they
copy it. `reader at=2  has [m1@0 m4@1]` is where the consumer goes on, and all that it was given and not told to undo.
"""

from __future__ import annotations

from support.old_rules.reader_rules import OLD_READER_RULES, ReaderRules
from support.stories.datadriven import Command
from support.stories.played_story import PlayedStory
from support.worlds.reader_world import PartitionWorld, ReadingClient, Replica, WritingClient
from tidelog.base.ids import LeaderEpoch, Offset, Position
from tidelog.client.core.values import ResetPolicy
from tidelog.sim.checkers.views import text_of


class ReaderStory(PlayedStory[ReaderRules, PartitionWorld]):
    """One partition with its clients, and the commands that made it what it is."""

    todays_rules, old_rules = ReaderRules, OLD_READER_RULES

    def __init__(self, rules: ReaderRules | None = None) -> None:
        super().__init__(rules)
        self._reading: ReadingClient | None = None
        self._writing: WritingClient | None = None
        self._stored: Position | None = None
        self.table = {
            "topic": ("topic BROKER...: the first one leads", self._topic),
            "write": ("write VALUE...: the leader gets these records", self._write),
            "produce": ("produce VALUE...: Tidelog's producer writes them with acks=1", self._produce),
            "copy": ("copy BROKER...: their logs become equal to the leader's", self._copy),
            "elect": ("elect BROKER: it leads, whatever records it lacks", self._elect),
            "recreate": ("recreate: the topic is deleted and created again", self._recreate),
            "consumer": (
                "consumer [policy=none|earliest|latest|closest]: a consumer begins at offset 0",
                self._consumer,
            ),
            "learn": ("learn: the consumer learns of the leader, and validates its position there", self._learn),
            "fetch": ("fetch: the consumer fetches records, and delivers none", self._fetch),
            "read": ("read [COUNT]: the consumer delivers that many records, or all", self._read),
            "seek": ("seek OFFSET [epoch=N]: to an offset, with the epoch of the record before it", self._seek),
            "store": ("store: the consumer's position is stored outside", self._store),
            "resume": ("resume: a new consumer begins at the stored position", self._resume),
        }

    def broken(self) -> list[str]:
        reading = [] if self._reading is None else self._reading.broken
        return [*dict.fromkeys(reading), *([] if self._writing is None else self._writing.broken)]

    def picture(self) -> list[str]:
        world = self.world
        log = " ".join(text_of(record) for record in world.led.records)
        lines = [f"{world.leader} leader epoch={world.leader_epoch}  [{log}]"]
        return lines if self._reading is None else [*lines, self._reading.line()]

    # The commands.

    def _topic(self, command: Command) -> None:
        self._world = PartitionWorld(list(command.words))

    def _write(self, command: Command) -> None:
        for value in command.words:
            self.world.append(value)

    def _produce(self, command: Command) -> None:
        if self._writing is None:
            self._writing = WritingClient(self.world, self.rules, self.world.events)
        for value in command.words:
            if self._writing.is_told:
                raise command.refuse("the producer was told of a loss, and delivers no more")
            self._writing.produce(value)

    def _copy(self, command: Command) -> None:
        for word in command.words:
            self._replica(command, word).copy_of(self.world.led)

    def _elect(self, command: Command) -> None:
        self._replica(command, command.words[0])
        self.world.elect(command.words[0])

    def _recreate(self, command: Command) -> None:
        self.world.recreate()

    def _consumer(self, command: Command) -> None:
        policy = ResetPolicy(command.options.get("policy", "none"))
        self._reading = ReadingClient(self.world, policy, self.rules, self.world.events)
        self._reading.seek(Position(Offset(0), None))

    def _learn(self, command: Command) -> None:
        self._client(command).learn()

    def _fetch(self, command: Command) -> None:
        if not self._client(command).fetch():
            raise command.refuse("there is nothing to fetch: it holds enough, or must know or ask something else first")

    def _read(self, command: Command) -> None:
        self._client(command).read(int(command.words[0]) if command.words else 1_000)

    def _seek(self, command: Command) -> None:
        epoch = command.options.get("epoch")
        offset = Offset(int(command.words[0]))
        self._client(command).seek(Position(offset, None if epoch is None else LeaderEpoch(int(epoch))))

    def _store(self, command: Command) -> None:
        self._stored = self.rules.store(self._client(command).reader)

    def _resume(self, command: Command) -> None:
        if self._stored is None:
            raise command.refuse("no position was stored")
        self._client(command).resume(self._stored)

    def _replica(self, command: Command, word: str) -> Replica:
        if word not in self.world.replicas:
            raise command.refuse(f"there is no broker {word}")
        return self.world.replicas[word]

    def _client(self, command: Command) -> ReadingClient:
        if self._reading is None:
            raise command.refuse("there is no consumer yet: consumer")
        return self._reading
