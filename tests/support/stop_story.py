"""Stories of StopReplica: what the controller decides and pushes, when a push arrives, and which logs are left.

`B knows 3  t#1 epoch=1 stopped` is a broker: the metadata offset that it has applied, and its log of partition 0 of t,
the first topic that was ever made, with the leader epoch that it knows. A log that is of no topic it knows is stray.
"""

from __future__ import annotations

from collections.abc import Callable

from support.datadriven import Command, StoryError, fits
from support.old_stop_rules import OLD_STOP_RULES, StopRules
from support.replica_values import name_of
from support.stop_world import Host, StopWorld
from tidelog.base.ids import BrokerId


class StopStory:
    """Brokers with their logs, and the commands that made them what they are."""

    def __init__(self, rules: StopRules | None = None) -> None:
        self._rules = StopRules() if rules is None else rules
        self._world: StopWorld | None = None
        self._played: list[Command] = []
        self._commands: dict[str, tuple[str, Callable[[Command, StopWorld], None]]] = {
            "brokers": ("brokers BROKER...", self._brokers),
            "create": ("create TOPIC on=BROKER...: a topic of one partition", self._create),
            "assign": (
                "assign TOPIC on=BROKER... [uncommitted] [tells=epochs|nothing]: who loses it is sent a StopReplica",
                self._assign,
            ),
            "delete": ("delete TOPIC: likewise, all who have it", self._delete),
            "learn": ("learn BROKER...: they apply all metadata that is committed", self._learn),
            "push": (
                "push BROKER [again]: the oldest StopReplica on its way there arrives; again: one more will",
                self._push,
            ),
        }

    def play(self, commands: list[Command]) -> list[str]:
        """Do them in turn. Returns what happened, and what each broker has."""
        if commands[0].name == "replay":
            return self._replay(commands[0])
        lines: list[str] = []
        for command in commands:
            world = self._do(command)
            lines += world.events
            world.events.clear()
        return lines + self._picture()

    def _do(self, command: Command) -> StopWorld:
        if command.name not in self._commands:
            possible = "; ".join(usage for usage, _ in self._commands.values())
            raise command.refuse(f"no such command. Possible are: {possible}; replay rule={'|'.join(OLD_STOP_RULES)}")
        usage, do = self._commands[command.name]
        if not fits(command, usage):
            raise command.refuse(f"it is used as: {usage}")
        if self._world is None:
            if command.name != "brokers":
                raise command.refuse("a story of StopReplica begins with: brokers A B")
            self._world = StopWorld([_broker(command, word) for word in command.words], self._rules)
        do(command, self._world)
        self._played.append(command)
        return self._world

    def _replay(self, command: Command) -> list[str]:
        """The same story under a rule that was replaced: it has to break something, or it proves nothing."""
        rule = command.options.get("rule", "")
        if rule not in OLD_STOP_RULES:
            raise command.refuse(f"no such rule. There are: {', '.join(OLD_STOP_RULES)}")
        other = StopStory(OLD_STOP_RULES[rule])
        for played in self._played:
            broken = other._do(played).broken
        if not broken:
            raise command.refuse("the story ends as well under that rule, and so proves nothing about ours")
        return other._picture()

    # The commands.

    def _brokers(self, command: Command, world: StopWorld) -> None:
        if self._played:
            raise command.refuse("the brokers of a story are named once")

    @staticmethod
    def _create(command: Command, world: StopWorld) -> None:
        (name,) = command.words
        if name in world.latest.topics_by_name:
            raise command.refuse("there is such a topic")
        world.create(name, _brokers_on(command, world))

    @staticmethod
    def _assign(command: Command, world: StopWorld) -> None:
        world.assign(
            _topic(command, world),
            _brokers_on(command, world),
            is_committed="uncommitted" not in command.words,
            tells_epochs=command.options.get("tells") != "nothing",
        )

    @staticmethod
    def _delete(command: Command, world: StopWorld) -> None:
        world.delete(_topic(command, world))

    @staticmethod
    def _learn(command: Command, world: StopWorld) -> None:
        for word in command.words:
            world.learn(_host(command, world, word).broker_id)

    @staticmethod
    def _push(command: Command, world: StopWorld) -> None:
        world.deliver(_host(command, world, command.words[0]).broker_id, is_repeated="again" in command.words)

    def _picture(self) -> list[str]:
        if self._world is None:
            raise StoryError("a story of StopReplica begins with: brokers A B")
        world = self._world
        lines = [_line(world, host) for host in world.hosts.values()]
        return lines + [f"INVARIANT BROKEN {line}" for line in world.broken]


def _broker(command: Command, word: str) -> BrokerId:
    if len(word) != 1 or not "A" <= word <= "Z":
        raise command.refuse("brokers are single letters: A B C")
    return BrokerId(ord(word) - ord("A") + 1)


def _host(command: Command, world: StopWorld, word: str) -> Host:
    broker = _broker(command, word)
    if broker not in world.hosts:
        raise command.refuse(f"there is no broker {word}")
    return world.hosts[broker]


def _brokers_on(command: Command, world: StopWorld) -> tuple[BrokerId, ...]:
    return tuple(_host(command, world, letter).broker_id for letter in command.options["on"])


def _topic(command: Command, world: StopWorld) -> str:
    name = command.words[0]
    if name not in world.latest.topics_by_name:
        raise command.refuse("there is no such topic")
    return name


def _line(world: StopWorld, host: Host) -> str:
    logs = []
    for name, topic_id in sorted(host.logs.items()):
        topic = host.image.topic_by_id(topic_id)
        epoch = "stray" if topic is None else f"epoch={topic.partitions[0].leader_epoch}"
        part = "serves" if world.is_serving(host, name) else "stopped"
        logs.append(f"{name}#{topic_id.int} {epoch} {part}")
    known = "nothing" if host.image.last_offset is None else str(host.image.last_offset)
    return f"{name_of(host.broker_id)} knows {known}  {', '.join(logs) or 'no log'}"
