"""Stories of the metadata quorum: who leads it, what each node has of its log, and what it knows to be committed.

`D observer epoch=1  [+@1 t1@1 |]` is a node that has two records of leader epoch 1, the first of which opened it; what
is left of `|` it knows to be committed. A message takes a millisecond, and every disk syncs at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from support.stories.datadriven import Command
from support.stories.played_story import PlayedStory
from support.worlds.quorum_world import OPENS, BrokenError, Conditions, Machine, QuorumWorld, Record
from support.worlds.replica_values import name_of
from tidelog.base.ids import BrokerId
from tidelog.quorum import Role

MESSAGE_MS = 1
NEWS_MS_MAX = 10 * 2 * MESSAGE_MS
"""Ten round trips: what is committed has to be known everywhere by then."""

QUIET_MS = 100
"""Fetches wait at the leader by then, and have some time left to."""

SEEDS = range(1_000)


@dataclass(frozen=True)
class QuorumRules:
    """What the nodes of a story go by; the defaults are production's."""

    sends_high_watermark: bool = True
    sends_pre_votes: bool = True
    compares_epochs: bool = True


OLD_QUORUM_RULES = {
    "parks-all-that-is-empty": QuorumRules(sends_high_watermark=False),
    "without-pre-votes": QuorumRules(sends_pre_votes=False),
    "snapshot-by-length": QuorumRules(compares_epochs=False),
}
"""Before KIP-1166, before KIP-996, and a log that counts as the snapshot's because it reaches as far."""


class QuorumStory(PlayedStory[QuorumRules, QuorumWorld]):
    """A quorum with its observers, and the commands that made it what it is."""

    todays_rules, old_rules = QuorumRules, OLD_QUORUM_RULES

    def __init__(self, rules: QuorumRules | None = None) -> None:
        super().__init__(rules)
        self._broken: list[str] = []
        self._is_over = False
        self._leads: BrokerId | None = None
        self._cut_off: set[BrokerId] = set()
        self._voters = 0
        self._appended_ms = 0
        self.table = {
            "quorum": ("quorum VOTER... [observers=NODE...]: the first one is elected", self._quorum),
            "append": ("append VALUE: the leader does, for it is the active controller", self._append),
            "pass": ("pass COUNT: so many milliseconds", self._pass),
            "settle": ("settle: until all who are connected know what is committed", self._settle),
            "crash": ("crash NODE: its process ends, and its connections close", self._crash),
            "crash-loading": ("crash-loading NODE: when the next snapshot is on its disk", self._crash_loading),
            "snapshot": ("snapshot: the leader makes one, and keeps no record below it", self._snapshot),
            "start": ("start NODE: again", self._start),
            "close": ("close NODE: its connection to the leader", self._close),
            "cut-off": ("cut-off NODE: nothing reaches it, or comes from it, and no connection closes", self._cut),
            "reconnect": ("reconnect: all", self._reconnect),
        }

    def broken(self) -> list[str]:
        return self._broken

    def do(self, command: Command) -> None:
        """As any story's; nothing more happens in a quorum that is broken."""
        if self._is_over:
            return
        try:
            super().do(command)
        except BrokenError as error:
            self._broken.append(str(error))
            self._is_over = True

    def picture(self) -> list[str]:
        return [_line(machine, at < self._voters) for at, machine in enumerate(self.world.machines.values())]

    # The commands.

    def _quorum(self, command: Command) -> None:
        observers = command.options.get("observers", "")
        names = [*command.words, *observers]
        if names != [name_of(BrokerId(number)) for number in range(1, len(names) + 1)]:
            raise command.refuse("nodes are the first letters: quorum A B C observers=DE")
        self._voters = len(command.words)
        for seed in SEEDS:
            conditions = Conditions(
                (MESSAGE_MS, MESSAGE_MS),
                sends_high_watermark=self.rules.sends_high_watermark,
                sends_pre_votes=self.rules.sends_pre_votes,
                compares_epochs=self.rules.compares_epochs,
            )
            world = self._world = QuorumWorld(self._voters, len(observers), seed=seed, conditions=conditions)
            world.start()
            world.run_until(lambda: self.world.active)
            if world.active is world.machine(1):
                break
        self._leads = BrokerId(1)
        world.run_until(self._all_know)
        world.run(QUIET_MS)

    def _append(self, command: Command) -> None:
        leader = self.world.active
        if leader is None:
            raise command.refuse("nobody leads; what helps: settle")
        leader.propose(command.words[0])
        if leader.id not in self._cut_off:
            self._appended_ms = self.world.now_ms

    def _pass(self, command: Command) -> None:
        self.world.run(int(command.words[0]))
        self._see_who_leads()

    def _settle(self, command: Command) -> None:
        world = self.world
        world.run_until(lambda: world.active)
        self._see_who_leads()
        world.run_until(self._all_know)
        took_ms = world.now_ms - self._appended_ms
        if self._appended_ms and took_ms > NEWS_MS_MAX:
            self._broken.append(f"NewsTravelsAtOnce: not before {took_ms} ms have all of them known what is committed")
        elif self._appended_ms:
            world.events.append(f"after {took_ms} ms all of them know what is committed")
        self._appended_ms = 0

    def _crash(self, command: Command) -> None:
        machine = self._machine(command)
        if machine.node is None:
            raise command.refuse("it is down already; what can follow: start NODE")
        if machine.id == self._leads:
            self._leads = None
        self.world.crash(machine.id)

    def _crash_loading(self, command: Command) -> None:
        self._machine(command).crashes_loading = True

    def _snapshot(self, command: Command) -> None:
        leader = self.world.active
        if leader is None:
            raise command.refuse("nobody leads; what helps: settle")
        leader.take_snapshot(leader.high_watermark)

    def _start(self, command: Command) -> None:
        machine = self._machine(command)
        if machine.node is not None:
            raise command.refuse("it is up")
        machine.start()

    def _close(self, command: Command) -> None:
        machine, leader = self._machine(command), self.world.active
        if leader is None or machine is leader:
            raise command.refuse("it has no connection to a leader")
        self.world.close(machine, leader.id)

    def _cut(self, command: Command) -> None:
        machine = self._machine(command)
        if machine.id == self._leads:
            self._leads = None
        self._cut_off.add(machine.id)
        self.world.isolate(machine.id)

    def _reconnect(self, command: Command) -> None:
        self._cut_off.clear()
        self.world.heal()

    # What there is.

    def _machine(self, command: Command) -> Machine:
        there = {name_of(machine.id): machine for machine in self.world.machines.values()}
        if command.words[0] not in there:
            raise command.refuse(f"there is no node {command.words[0]}. There are: {' '.join(there)}")
        return there[command.words[0]]

    def _see_who_leads(self) -> None:
        """A leader that a majority heard of all the time must lead on."""
        leader = self.world.active
        if leader is None:
            return
        if self._leads not in (None, leader.id) or (self._leads is not None and len(self.world.leaders) > 1):
            said = "LeaderStays: it was connected to a majority all the time, and had to be elected again"
            self._broken += [said] if said not in self._broken else []
        elif self._leads is None:
            self.world.leaders = {epoch: key for epoch, key in self.world.leaders.items() if key == leader.key}
            self._leads = leader.id

    def _all_know(self) -> bool:
        leader = self.world.active
        if leader is None:
            return False
        reached = [one for one in self.world.machines.values() if one.node is not None and one.id not in self._cut_off]
        return all(one.high_watermark >= len(leader.records) for one in reached)


def _line(machine: Machine, is_voter: bool) -> str:
    name, node = name_of(machine.id), machine.node
    if node is None:
        return f"{name} down"
    role = node.standing.role.value if is_voter or node.standing.role is not Role.FOLLOWER else "observer"
    texts = [_text(record) for record in machine.records]
    texts.insert(machine.high_watermark, "|")
    return f"{name} {role:<11} epoch={node.standing.leader_epoch}  [{' '.join(texts)}]"


def _text(record: Record) -> str:
    return f"{'+' if record.value == OPENS else record.value}@{record.leader_epoch}"
