"""Stories of replicas: what an operator, a producer or a network does, and the logs as they are then.

`A leader   epoch=1  [m1@0 | m2@0]` is a broker, its part, the leader epoch that it goes by, and its log: `m@e` is
record m of leader epoch e; what is left of `|` lies below its high watermark. Brokers are letters.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from support.old_rules.replica_rules import OLD_RULES, only_when_told
from support.stories.datadriven import Command, StoryError
from support.stories.played_story import PlayedStory
from support.worlds.replica_values import Answer, Ask, Message, Node, Propose, Rules, name_of, text_of
from support.worlds.replica_world import InvariantBrokenInWorldError, ReplicaWorld
from tidelog.base.errors import KafkaError
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.replica import RecordsRequest, truncation_point

ROUNDS_MAX = 200
MOMENT_MS = 10
QUIET_ROUNDS = 2  # in one of them requests arrive, in one of them their answers


class ReplicaStory(PlayedStory[Rules, ReplicaWorld]):
    """One world of replicas, and the commands that made it what it is."""

    todays_rules = Rules
    old_rules: ClassVar[dict[str, Rules]] = {name: old.rules for name, old in OLD_RULES.items()}

    def __init__(self, rules: Rules | None = None) -> None:
        super().__init__(rules)
        self._cut_off: set[BrokerId] = set()
        self.table = {
            "cluster": (
                "cluster BROKER... [min-insync=N] [seats=kept] [truncation=when-told]: the first one leads",
                self._cluster,
            ),
            "produce": ("produce LEADER VALUE... [acks=all]", self._produce),
            "consume": (
                "consume BROKER from=OFFSET epoch=N: a consumer that knows that leader epoch reads one record",
                self._consume,
            ),
            "fetch": (
                "fetch FOLLOWER... [answer=lost] [proposal=held] [write=held]: one fetch of each, and its answer; if it"
                " fetches on ahead, what came is written later",
                self._fetch,
            ),
            "late": ("late FOLLOWER: its oldest fetch in the network arrives", self._late),
            "grant": ("grant LEADER [answer=lost]: its ISR proposal arrives at the controller", self._grant),
            "settle": (
                "settle: all messages arrive, and lost ones are sent again, until all replicas are equal",
                self._settle,
            ),
            "retry": ("retry: a moment later, refused requests are sent again", self._retry),
            "wait": ("wait: long enough that followers that have not caught up leave the ISR", self._wait),
            "elect": ("elect BROKER [unclean] [unaware=BROKER,...]", self._elect),
            "learn": ("learn BROKER [epoch=N]: it applies the metadata, up to that leader epoch", self._learn),
            "describe": ("describe: the controller's leader, ISR and eligible replicas", self._describe),
            "crash": (
                "crash BROKER: the controller notices, and another replica in sync leads if there is one",
                self._crash,
            ),
            "restart": ("restart BROKER: before the controller notices, or after a crash", self._restart),
            "power-loss": ("power-loss BROKER keeps=N: the first N of its records were synced", self._power_loss),
            "lose-log": ("lose-log BROKER: it crashes and loses its log, and does not notice", self._lose_log),
            "expire": ("expire BROKER: its session ends, and the controller notices", self._expire),
            "cut-off": ("cut-off BROKER: no other broker reaches it; clients and controller do", self._cut),
            "reconnect": ("reconnect BROKER: after cut-off", self._reconnect),
        }

    def breaks_under(self, rules: Rules) -> bool:
        """Whether what was played breaks more under other rules than it does here, as far as it can be played there."""
        other = ReplicaStory(rules)
        for played in self._played:
            try:
                other.do(played)
            except StoryError:
                return False
            if not set(other.broken()) <= set(self.broken()):
                return True
        return False

    def broken(self) -> list[str]:
        try:
            self.world.check()
        except InvariantBrokenInWorldError as error:
            return str(error).splitlines()
        return []

    def picture(self) -> list[str]:
        return [_line(node) for node in self.world.nodes.values()]

    def _broker(self, command: Command, word: str | None = None) -> BrokerId:
        """The broker that a command names: by its first word, or by this one."""
        named = command.words[0] if word is None else word
        there = {name_of(broker): broker for broker in self.world.nodes}
        if named not in there:
            raise command.refuse(f"there is no broker {named}. There are: {' '.join(there)}")
        return there[named]

    def _cluster(self, command: Command) -> None:
        names = [name_of(BrokerId(number)) for number in range(1, len(command.words) + 1)]
        if sorted(command.words) != names:
            raise command.refuse(f"brokers are the first letters: {' '.join(names)}")
        rules = self.rules
        if "seats" in command.options:
            rules = replace(rules, keeps_seats=True)
        if "truncation" in command.options and rules.truncation is truncation_point:
            rules = replace(rules, truncation=only_when_told)
        min_insync = int(command.options.get("min-insync", "1"))
        if not 1 <= min_insync <= len(names):
            raise command.refuse(f"of {len(names)} replicas, 1 to {len(names)} can have to be in sync")
        first = BrokerId(names.index(command.words[0]) + 1)
        self._world = ReplicaWorld(len(names), min_insync=min_insync, rules=rules, first_leader=first)
        self._reconcile(self._world)

    # Clients.

    def _produce(self, command: Command) -> None:
        world, broker = self.world, self._broker(command)
        if world.nodes[broker].leader is None:
            raise command.refuse("that broker does not believe that it leads")
        for value in command.words[1:]:
            world.produce(broker, value, acks_all="acks" in command.options)

    def _consume(self, command: Command) -> None:
        world, broker = self.world, self._broker(command)
        offset, epoch = int(command.options["from"]), int(command.options["epoch"])
        if not world.nodes[broker].is_up:
            raise command.refuse("that broker is down")
        world.consume(broker, Offset(offset), LeaderEpoch(epoch))

    # The network.

    def _fetch(self, command: Command) -> None:
        world = self.world
        for word in command.words:
            fetches = self._fetches_of(command, word)
            world.nodes[fetches[-1].sender].holds_writes = "write" in command.options
            self._arrive(world, fetches[-1])
            for answer in [m for m in world.messages if isinstance(m, Answer) and m.to == fetches[-1].sender]:
                if "answer" in command.options:
                    world.messages.remove(answer)
                else:
                    self._arrive(world, answer)
        if "proposal" not in command.options:
            self._decide(world)

    def _late(self, command: Command) -> None:
        world = self.world
        fetches = self._fetches_of(command, command.words[0])
        if len(fetches) < 2:
            raise command.refuse("it has one fetch on its way, and no older one: fetch FOLLOWER")
        self._arrive(world, fetches[0])
        outcome = world.messages[-1].outcome if isinstance(world.messages[-1], Answer) else None
        if isinstance(outcome, KafkaError):
            leader = name_of(fetches[0].request.leader)
            world.events.append(f"{leader} refuses the late fetch of {command.words[0]}: {outcome.code.name}")
        self._decide(world)

    def _fetches_of(self, command: Command, word: str) -> list[Ask]:
        world, follower = self.world, self._broker(command, word)
        asked = [m for m in world.messages if isinstance(m, Ask) and m.sender == follower]
        fetches = [m for m in asked if isinstance(m.request, RecordsRequest)]
        if not fetches:
            raise command.refuse(f"{word} has no fetch on its way")
        if not self._passes(fetches[-1]):
            raise command.refuse(f"{word}, or whom it fetches from, is cut off")
        return fetches

    def _grant(self, command: Command) -> None:
        world, leader = self.world, self._broker(command)
        proposals = [m for m in world.messages if isinstance(m, Propose) and m.sender == leader]
        if not proposals:
            raise command.refuse("it has no proposal on its way: fetch FOLLOWER proposal=held")
        is_lost = "answer" in command.options
        self._answer_proposal(world, proposals[0], unaware={leader} if is_lost else set())
        if is_lost:
            world.give_up(leader)

    def _settle(self, command: Command) -> None:
        world = self.world
        for node in world.nodes.values():
            if node.follower is not None and all(message.request != node.asked for message in _questions(world)):
                world.give_up(node.broker_id)  # what was lost is sent again
        world.tick(MOMENT_MS)
        quiet_rounds = 0
        for _ in range(ROUNDS_MAX):
            before = (world.state, self.picture())
            for message in _questions(world):
                self._arrive(world, message)
            self._decide(world)
            quiet_rounds = quiet_rounds + 1 if (world.state, self.picture()) == before else 0
            if quiet_rounds > QUIET_ROUNDS and self._is_idle(world):
                return
        raise command.refuse(f"not settled after {ROUNDS_MAX} rounds")

    def _cut(self, command: Command) -> None:
        world, broker = self.world, self._broker(command)
        if not world.nodes[broker].is_up:
            raise command.refuse("that broker is down")
        if broker in self._cut_off:
            raise command.refuse("it is cut off already; what can follow: reconnect BROKER")
        self._cut_off.add(broker)

    def _reconnect(self, command: Command) -> None:
        world, broker = self.world, self._broker(command)
        if broker not in self._cut_off:
            raise command.refuse("it is not cut off")
        self._cut_off.remove(broker)
        self._reconcile(world)

    # Time.

    def _retry(self, command: Command) -> None:
        world = self.world
        world.tick(MOMENT_MS)
        self._reconcile(world)

    def _wait(self, command: Command) -> None:
        world = self.world
        for _ in range(2):
            world.tick(world.settings.lag_ms_max)
            self._reconcile(world)
            self._decide(world)

    # Operators, the controller, and what is seen of it.

    def _elect(self, command: Command) -> None:
        world, broker = self.world, self._broker(command)
        state = world.state
        if "unclean" not in command.words and broker not in (*state.isr, *state.eligible_leader_replicas):
            raise command.refuse("it is not in sync; to elect it all the same: elect BROKER unclean")
        if world.nodes[broker].is_fenced:
            raise command.refuse("that broker is down, as the controller knows; first: restart BROKER")
        unaware = command.options["unaware"].split(",") if "unaware" in command.options else []
        for word in unaware:
            self._broker(command, word)
        world.elect(broker, is_unclean="unclean" in command.words)
        self._tell(world, unaware)

    def _learn(self, command: Command) -> None:
        world = self.world
        node = world.nodes[self._broker(command)]
        up_to = int(command.options.get("epoch", str(world.state.leader_epoch)))
        if not node.is_up:
            raise command.refuse("that broker is down")
        if node.applied == len(world.history) - 1 or world.history[node.applied + 1].leader_epoch > up_to:
            raise command.refuse("it knows all there is")
        while node.applied < len(world.history) - 1 and world.history[node.applied + 1].leader_epoch <= up_to:
            world.apply_next(node.broker_id)
        self._reconcile(world)

    def _describe(self, command: Command) -> None:
        state = self.world.state
        leader = "nobody" if state.leader is None else name_of(state.leader)
        in_sync = " ".join(map(name_of, state.isr)) or "nobody"
        eligible = " ".join(map(name_of, state.eligible_leader_replicas))
        self.world.events.append(
            f"{leader} leads; in sync: {in_sync}" + (f"; may lead as well: {eligible}" if eligible else "")
        )

    def _crash(self, command: Command) -> None:
        world, broker = self.world, self._broker(command)
        if not world.nodes[broker].is_up:
            raise command.refuse("it is down already; what can follow: expire BROKER, restart BROKER")
        world.crash(broker)
        world.expire(broker)
        self._tell(world, [])

    def _restart(self, command: Command) -> None:
        world, broker = self.world, self._broker(command)
        world.crash(broker)
        world.restart(broker)
        self._tell(world, [])

    def _power_loss(self, command: Command) -> None:
        world, broker = self.world, self._broker(command)
        keeps, had = int(command.options["keeps"]), world.nodes[broker].log.end_offset
        if not 0 <= keeps <= had:
            raise command.refuse(f"it has {had} records")
        world.lose_power(broker, keeps=keeps)

    def _lose_log(self, command: Command) -> None:
        self.world.lose_log(self._broker(command))

    def _expire(self, command: Command) -> None:
        world, broker = self.world, self._broker(command)
        if world.nodes[broker].is_up:
            raise command.refuse(
                "it is up, and so is its session; what ends it: crash BROKER, power-loss BROKER keeps=N"
            )
        world.expire(broker)
        self._tell(world, [])

    # What follows by itself.

    def _tell(self, world: ReplicaWorld, unaware: list[str]) -> None:
        """All brokers that are up, but for some, apply the metadata, and find out how far their logs agree."""
        for broker, node in world.nodes.items():
            if node.is_up and name_of(broker) not in unaware:
                while node.applied < len(world.history) - 1:
                    world.apply_next(broker)
                world.tell_brokers(node)
        self._reconcile(world)

    def _reconcile(self, world: ReplicaWorld) -> None:
        """What followers ask before they fetch arrives, and its answers; what they fetch waits for a command."""

        def is_due(message: Message) -> bool:
            if isinstance(message, Propose) or isinstance(message.request, RecordsRequest):
                return False
            return self._passes(message)

        for _ in range(ROUNDS_MAX):
            due = [message for message in world.messages if is_due(message)]
            if not due:
                return
            for message in due:
                self._arrive(world, message)

    def _decide(self, world: ReplicaWorld) -> None:
        """The controller answers proposals, and all that know of its last word learn the next."""
        while proposals := [message for message in world.messages if isinstance(message, Propose)]:
            self._answer_proposal(world, proposals[0], unaware=set())

    def _answer_proposal(self, world: ReplicaWorld, proposal: Propose, *, unaware: set[BrokerId]) -> None:
        aware = [node for node in world.nodes.values() if node.is_up and node.applied == len(world.history) - 1]
        self._arrive(world, proposal)
        for node in aware:
            while node.broker_id not in unaware and node.applied < len(world.history) - 1:
                world.apply_next(node.broker_id)

    def _passes(self, message: Message) -> bool:
        if isinstance(message, Propose):
            return True
        ends = {message.request.leader, message.sender if isinstance(message, Ask) else message.to}
        return not ends & self._cut_off

    def _arrive(self, world: ReplicaWorld, message: Message) -> None:
        if message in world.messages and self._passes(message):
            world.messages.remove(message)
            world.deliver(message)

    def _is_idle(self, world: ReplicaWorld) -> bool:
        """Whether nothing is on its way but fetches, which settling made sure bring nothing, and what is cut off."""
        on_their_way = [message for message in world.messages if self._passes(message)]
        return all(isinstance(message, Ask) and isinstance(message.request, RecordsRequest) for message in on_their_way)


def _line(node: Node) -> str:
    """One broker in the picture."""
    name = name_of(node.broker_id)
    machine = node.leader or node.follower
    if machine is None:
        return f"{name} down"
    records = [text_of(record) for record in node.log.records]
    records.insert(machine.high_watermark, "|")
    part = "leader  " if node.leader is not None else "follower"
    return f"{name} {part} epoch={machine.leader_epoch}  [{' '.join(records)}]"


def _questions(world: ReplicaWorld) -> list[Ask | Answer]:
    return [message for message in world.messages if not isinstance(message, Propose)]
