"""Stories of replicas: what an operator, a producer or a network does, and the logs as they are then.

`A leader   epoch=1  [m1@0 | m2@0]` is a broker, its part, the leader epoch that it goes by, and its log: `m@e` is
record m of leader epoch e; what is left of `|` lies below its high watermark. Brokers are letters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from support.datadriven import Command, StoryError
from support.old_rules import first_epoch_end, high_watermark_alone, joins_at_the_high_watermark
from support.replica_values import Answer, Ask, Message, Node, Propose, Rules, name_of, text_of
from support.replica_world import InvariantBrokenInWorldError, ReplicaWorld
from tidelog.base.ids import BrokerId
from tidelog.replica import AskRecords

OLD_RULES = {
    "high-watermark": Rules(truncation=high_watermark_alone, is_fenced=False),
    "kip-101-alone": Rules(truncation=first_epoch_end, is_fenced=False),
    "kip-279-alone": Rules(is_fenced=False),
    "joins-at-the-high-watermark": Rules(join=joins_at_the_high_watermark),
}
ROUNDS_MAX = 200


class Story:
    """One world, and the commands that made it what it is."""

    def __init__(self, rules: Rules | None = None) -> None:
        self._rules = Rules() if rules is None else rules
        self._world: ReplicaWorld | None = None
        self._played: list[Command] = []
        self._commands: dict[str, tuple[str, Callable[[Command], None]]] = {
            "cluster": ("cluster BROKER... [min-insync=N] [seats=kept]: the first one leads", self._cluster),
            "produce": ("produce LEADER VALUE...", self._produce),
            "fetch": ("fetch FOLLOWER... [answer=lost]: one fetch of each, and its answer", self._fetch),
            "settle": ("settle: all arrives, what was lost is sent again, until nothing is left to copy", self._settle),
            "wait": ("wait: so long that who has not fetched all that there is leaves the ISR", self._wait),
            "elect": ("elect BROKER [unclean] [unaware=BROKER,...]", self._elect),
            "learn": ("learn BROKER: it applies the metadata", self._learn),
            "crash": ("crash BROKER: the controller notices, and another in sync leads if there is one", self._crash),
            "restart": ("restart BROKER: faster than anyone notices, or after a crash", self._restart),
            "power-loss": ("power-loss BROKER keeps=N: of its records, the first N were on disk", self._power_loss),
        }

    def play(self, commands: list[Command]) -> list[str]:
        """Do them in turn. Returns what happened, and all logs."""
        if commands[0].name == "replay":
            return self._replay(commands[0])
        lines: list[str] = []
        for command in commands:
            self._do(command)
            lines += self._world_of(command).events
            self._world_of(command).events.clear()
        try:
            self._world_of(commands[-1]).check()
        except InvariantBrokenInWorldError as broken:
            lines += [f"INVARIANT BROKEN {line}" for line in str(broken).splitlines()]
        return lines + self._picture()

    def _do(self, command: Command) -> None:
        if command.name not in self._commands:
            possible = "; ".join(usage for usage, _ in self._commands.values())
            raise command.refuse(f"no such command. Possible are: {possible}; replay rule={'|'.join(OLD_RULES)}")
        usage, do = self._commands[command.name]
        try:
            do(command)
        except (IndexError, KeyError, ValueError) as error:
            raise command.refuse(f"it is used as: {usage}") from error
        self._played.append(command)

    def _replay(self, command: Command) -> list[str]:
        """The same story under a rule that was replaced: it has to break something, or it proves nothing."""
        rule = command.options.get("rule", "")
        if rule not in OLD_RULES:
            raise command.refuse(f"no such rule. There are: {', '.join(OLD_RULES)}")
        other = Story(OLD_RULES[rule])
        broken: list[str] = []
        for played in self._played:
            other._do(played)
            try:
                other._world_of(played).check()
            except InvariantBrokenInWorldError as error:
                broken = str(error).splitlines()
        if not broken:
            raise command.refuse("the story ends as well under that rule, and so proves nothing about ours")
        return other._picture() + [f"INVARIANT BROKEN {line}" for line in broken]

    # The commands.

    def _cluster(self, command: Command) -> None:
        names = [name_of(BrokerId(number)) for number in range(1, len(command.words) + 1)]
        if sorted(command.words) != names:
            raise command.refuse(f"brokers are the first letters: {' '.join(names)}")
        rules = replace(self._rules, keeps_seats=command.options.get("seats") == "kept")
        min_insync = int(command.options.get("min-insync", "1"))
        first = _broker(command.words[0])
        self._world = ReplicaWorld(len(names), min_insync=min_insync, rules=rules, first_leader=first)
        self._reconcile(self._world)

    def _produce(self, command: Command) -> None:
        world, broker = self._world_of(command), _broker(command.words[0])
        if world.nodes[broker].leader is None:
            raise command.refuse("that broker does not believe that it leads")
        for value in command.words[1:]:
            world.produce(broker, value)

    def _fetch(self, command: Command) -> None:
        world = self._world_of(command)
        for word in command.words:
            follower = _broker(word)
            asked = [m for m in world.messages if isinstance(m, Ask) and m.sender == follower]
            fetches = [m for m in asked if isinstance(m.request, AskRecords)]
            if not fetches:
                raise command.refuse(f"{word} has no fetch on its way")
            _arrive(world, fetches[-1])
            for answer in [m for m in world.messages if isinstance(m, Answer) and m.to == follower]:
                if command.options.get("answer") == "lost":
                    world.messages.remove(answer)
                else:
                    _arrive(world, answer)
        self._decide(world)

    def _settle(self, command: Command) -> None:
        world = self._world_of(command)
        for node in world.nodes.values():
            if node.follower is not None and all(message.request != node.asked for message in _questions(world)):
                world.give_up(node.broker_id)  # what was lost is sent again
        world.tick(10)
        for _ in range(ROUNDS_MAX):
            before = self._picture()
            for message in list(world.messages):
                _arrive(world, message)
            self._decide(world)
            if self._picture() == before and self._is_idle(world):
                return
        raise command.refuse(f"not settled after {ROUNDS_MAX} rounds")

    def _wait(self, command: Command) -> None:
        world = self._world_of(command)
        for _ in range(2):
            world.tick(world.settings.lag_ms_max)
            self._decide(world)

    def _elect(self, command: Command) -> None:
        world, broker = self._world_of(command), _broker(command.words[0])
        is_unclean = "unclean" in command.words
        if not is_unclean and broker not in world.state.isr:
            raise command.refuse("it is not in sync; to elect it all the same: elect BROKER unclean")
        unaware = command.options.get("unaware", "").split(",")
        world.elect(broker, is_unclean=is_unclean)
        self._tell(world, unaware)

    def _learn(self, command: Command) -> None:
        world = self._world_of(command)
        node = world.nodes[_broker(command.words[0])]
        if node.applied == len(world.history) - 1:
            raise command.refuse("it knows all there is")
        while node.applied < len(world.history) - 1:
            world.apply_next(node.broker_id)
        self._reconcile(world)

    def _crash(self, command: Command) -> None:
        world, broker = self._world_of(command), _broker(command.words[0])
        world.crash(broker)
        world.expire(broker)
        self._tell(world, [])

    def _restart(self, command: Command) -> None:
        world, broker = self._world_of(command), _broker(command.words[0])
        world.crash(broker)
        world.restart(broker)
        self._tell(world, [])

    def _power_loss(self, command: Command) -> None:
        world, broker = self._world_of(command), _broker(command.words[0])
        world.lose_power(broker, keeps=int(command.options["keeps"]))

    # What follows by itself.

    def _tell(self, world: ReplicaWorld, unaware: list[str]) -> None:
        """All brokers that are up, but for some, apply the metadata, and find out how far their logs agree."""
        for broker, node in world.nodes.items():
            while node.is_up and name_of(broker) not in unaware and node.applied < len(world.history) - 1:
                world.apply_next(broker)
        self._reconcile(world)

    def _reconcile(self, world: ReplicaWorld) -> None:
        """What followers ask before they fetch arrives, and its answers; what they fetch waits for a command."""

        def is_due(message: Message) -> bool:
            return not isinstance(message, Propose) and not isinstance(message.request, AskRecords)

        for _ in range(ROUNDS_MAX):
            due = [message for message in world.messages if is_due(message)]
            if not due:
                return
            for message in due:
                _arrive(world, message)

    def _decide(self, world: ReplicaWorld) -> None:
        """The controller answers proposals, and all that know of its last word learn the next."""
        while proposals := [message for message in world.messages if isinstance(message, Propose)]:
            aware = [node for node in world.nodes.values() if node.is_up and node.applied == len(world.history) - 1]
            _arrive(world, proposals[0])
            for node in aware:
                while node.applied < len(world.history) - 1:
                    world.apply_next(node.broker_id)

    @staticmethod
    def _is_idle(world: ReplicaWorld) -> bool:
        return all(isinstance(message, Ask) and isinstance(message.request, AskRecords) for message in world.messages)

    def _world_of(self, command: Command) -> ReplicaWorld:
        if self._world is None:
            raise command.refuse("a story begins with: cluster A B")
        return self._world

    def _picture(self) -> list[str]:
        if self._world is None:
            raise StoryError("a story begins with: cluster A B")
        return [_line(node) for node in self._world.nodes.values()]


def _broker(word: str) -> BrokerId:
    if len(word) != 1 or not "A" <= word <= "Z":
        raise ValueError(word)
    return BrokerId(ord(word) - ord("A") + 1)


def _questions(world: ReplicaWorld) -> list[Ask | Answer]:
    return [message for message in world.messages if not isinstance(message, Propose)]


def _arrive(world: ReplicaWorld, message: Message) -> None:
    if message in world.messages:
        world.messages.remove(message)
        world.deliver(message)


def _line(node: Node) -> str:
    name = name_of(node.broker_id)
    machine = node.leader or node.follower
    if machine is None:
        return f"{name} down"
    records = [text_of(record) for record in node.log.records]
    records.insert(machine.high_watermark, "|")
    part = "leader  " if node.leader is not None else "follower"
    return f"{name} {part} epoch={machine.leader_epoch}  [{' '.join(records)}]"
