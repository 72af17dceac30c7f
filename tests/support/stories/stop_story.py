"""Stories of StopReplica: what the controller decides and pushes, when a push arrives, and which logs are left.

`B knows 3  t#1 epoch=1 stopped` is a broker: the metadata offset that it has applied, and its log of partition 0 of t,
the first topic that was ever made, with the leader epoch that it knows. A log that is of no topic it knows is stray.
"""

from __future__ import annotations

from support.old_rules.stop_rules import OLD_STOP_RULES, StopRules
from support.stories.datadriven import Command
from support.stories.played_story import PlayedStory
from support.worlds.replica_values import name_of
from support.worlds.stop_world import Host, StopWorld
from tidelog.base.ids import BrokerId


class StopStory(PlayedStory[StopRules, StopWorld]):
    """Brokers with their logs, and the commands that made them what they are."""

    todays_rules, old_rules = StopRules, OLD_STOP_RULES

    def __init__(self, rules: StopRules | None = None) -> None:
        super().__init__(rules)
        self.table = {
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

    def broken(self) -> list[str]:
        return self.world.broken

    def picture(self) -> list[str]:
        return [_line(self.world, host) for host in self.world.hosts.values()]

    # The commands.

    def _brokers(self, command: Command) -> None:
        self._world = StopWorld([_broker(command, word) for word in command.words], self.rules)

    def _create(self, command: Command) -> None:
        (name,) = command.words
        if name in self.world.latest.topics_by_name:
            raise command.refuse("there is such a topic")
        self.world.create(name, _brokers_on(command, self.world))

    def _assign(self, command: Command) -> None:
        self.world.assign(
            _topic(command, self.world),
            _brokers_on(command, self.world),
            is_committed="uncommitted" not in command.words,
            tells_epochs=command.options.get("tells") != "nothing",
        )

    def _delete(self, command: Command) -> None:
        self.world.delete(_topic(command, self.world))

    def _learn(self, command: Command) -> None:
        for word in command.words:
            self.world.learn(_host(command, self.world, word).broker_id)

    def _push(self, command: Command) -> None:
        self.world.deliver(_host(command, self.world, command.words[0]).broker_id, is_repeated="again" in command.words)


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
