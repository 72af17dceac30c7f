"""A partition of two or three replicas, as small as it can be and still go wrong: what may happen next, in any state.

A state is a few numbers: of each replica, of the answer that is on its way to each, of what the controller knows and
what of that has not been heard, and of what was promised. No clock and no counter is in it. A request that is lost is
sent again, so one that is on its way and one that is lost are the same; an answer may be late, or lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from support.exhaustive.small_world_control import Control, Controller
from support.exhaustive.small_world_parts import FIRST, Done, Numbers, Part, Proposal, Replica, Replicas
from support.exhaustive.small_world_promises import Checks, Promises
from support.exhaustive.small_world_search import Found, State
from support.worlds.replica_values import START, Rules, name_of
from tidelog.base.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset
from tidelog.metadata import PartitionImage
from tidelog.replica import RecordsRequest
from tidelog.sim.checkers.views import PartitionView, ReplicaView


@dataclass(frozen=True)
class Bounds:
    """How small.

    Attributes:
        log: records that fit into one log.
        records: that are written in all.
        epochs: of leaders, the first one included, that operators bring about.
        is_isr_late: whether AlterPartition and its answer travel, and get lost; else the controller answers at once.
        is_answer_late: whether what happens meanwhile may come between a leader's answer and its arrival.
        is_request_late: whether a fetch may arrive when its sender has moved on.
        is_write_late: whether what happens meanwhile may come between a fetch that goes ahead and the writing of what
            came before it.
        given_up: proposals that a leader stops waiting for, though they may arrive yet.
        crashes: of processes; those that come with a loss of power are among them.
        fencings: of brokers that are alive, and go on.
    """

    replicas: int = 3
    log: int = 2
    records: int = 2
    epochs: int = 3
    min_insync: int = 1
    is_isr_late: bool = False
    is_answer_late: bool = False
    is_request_late: bool = False
    is_write_late: bool = False
    given_up: int = 0
    crashes: int = 0
    power_losses: int = 0
    unclean: int = 0
    fencings: int = 0


class Spent(NamedTuple):
    """What of the bounds was used up, and what has been broken on the way.

    Attributes:
        written: the leader epoch and the offset of each record.
    """

    written: tuple[tuple[int, int], ...] = ()
    given_up: int = 0
    crashes: int = 0
    power_losses: int = 0
    unclean: int = 0
    fencings: int = 0
    broken: str = ""


class SmallWorld:
    """All that may happen, in any state, with these rules."""

    def __init__(self, bounds: Bounds, rules: Rules | None = None, tolerated: frozenset[str] = frozenset()) -> None:
        self.bounds = bounds
        self.rules = Rules() if rules is None else rules
        self.replicas = Replicas(self.rules, min_insync=bounds.min_insync, is_write_late=bounds.is_write_late)
        self.controller = Controller(self.rules, min_insync=bounds.min_insync, entries=self.replicas.entries)
        self.promises = Promises(bounds.min_insync - 1)
        self.spent: Numbers[Spent] = Numbers()
        self.proposed: Numbers[frozenset[tuple[BrokerId, Proposal]]] = Numbers()
        self.strays: Numbers[tuple[int, int]] = Numbers()
        self._checks = Checks(tolerated)
        size = self.size = bounds.replicas
        self.CONTROL, self.PROMISED, self.SPENT, self.PROPOSED = range(3 * size, 3 * size + 4)
        self._nothing_proposed = self.proposed.of(frozenset())
        self.initial = self._initial()

    def _initial(self) -> State:
        ids = tuple(BrokerId(number) for number in range(1, self.size + 1))
        image = PartitionImage(ids, ids, ids[0], LeaderEpoch(0), FIRST)
        brokers = tuple((broker, BrokerEpoch(1)) for broker in ids)
        control = self.controller.begin(image, brokers)
        entry = self.controller.latest(control)
        parts = []
        for broker in ids:
            down = Replica(broker, BrokerEpoch(0), (), self.rules.lineage(), Offset(0))
            parts.append(self.replicas.do(self.replicas.freeze(down), Replicas.RESTART, entry).part)
        nothing = [-1] * (2 * self.size)
        control = self.controller.forget(control, (0,) * self.size)
        return (*parts, *nothing, control, self.promises.first, self.spent.of(Spent()), self._nothing_proposed)

    def parts(self, state: State) -> list[Part]:
        """The replicas, as they are in a state."""
        return [self.replicas.parts[number] for number in state[: self.size]]

    def broken(self, state: State) -> str:
        """What does not hold, beginning with the name of the invariant; empty if all does."""
        broken = self.spent.values[state[self.SPENT]].broken
        if broken:
            return broken
        image = self.controller[state[self.CONTROL]].image
        return self._checks.broken(self.parts(state), image, self.promises.values[state[self.PROMISED]])

    def view(self, state: State) -> PartitionView:
        """The same as the checkers of simulations look at it."""
        image = self.controller[state[self.CONTROL]].image
        return PartitionView(image, {part.replica.broker_id: _view(part) for part in self.parts(state)})

    # What may happen next.

    def successors(self, state: State) -> Found:
        bounds, all_parts = self.bounds, self.replicas.parts
        control, spent = self.controller[state[self.CONTROL]], self.spent.values[state[self.SPENT]]
        found: Found = []
        for at in range(self.size):
            part = all_parts[state[at]]
            if part.is_up:
                self._learn(state, at, part, control, found)
                if part.leads:
                    self._lead(state, at, part, spent, found)
                elif part.ask >= 0:
                    self._follow(state, at, part, found)
            if bounds.is_request_late and state[2 * self.size + at] >= 0:
                self._arrive_late(state, at, found)
            if bounds.crashes or bounds.power_losses:
                self._fail(state, at, part, spent, found)
            if bounds.fencings:
                self._fence(state, at, part, spent, found)
        image = control.image
        if image.leader_epoch + 1 < bounds.epochs:
            active = dict(control.brokers)
            for broker in image.isr or image.eligible_leader_replicas:
                if broker != image.leader and broker in active:
                    found.append((("elect", broker), self._elect(state, broker, is_unclean=False)))
        if spent.unclean < bounds.unclean:
            for broker, _ in control.brokers:
                if broker not in image.isr and broker not in image.eligible_leader_replicas:
                    found.append((("elect-unclean", broker), self._elect(state, broker, is_unclean=True)))
        if bounds.is_isr_late:
            self._alter(state, spent, found)
        return found

    def _learn(self, state: State, at: int, part: Part, control: Control, found: Found) -> None:
        entry = self.controller.next_for(control, part.epoch, leads=part.leads)
        if entry < 0:
            return
        after = list(state)
        if self.replicas.entries.values[entry].image.leader_epoch > part.epoch:
            self._leave_machine(after, at, part)
        else:
            after[self.CONTROL] = self.controller.heard(after[self.CONTROL], part.epoch)
        self._take(after, at, self.replicas.do(state[at], Replicas.LEARN, entry))
        self._forget(after)
        found.append((("learn", at + 1), tuple(after)))

    def _lead(self, state: State, at: int, part: Part, spent: Spent, found: Found) -> None:
        number = state[at]
        if len(spent.written) < self.bounds.records and len(part.log) < self.bounds.log:
            after = list(state)
            place = (part.epoch, len(part.log))
            written = spent._replace(written=(*spent.written, place))
            if place in spent.written:
                written = written._replace(
                    broken=f"EpochOffsetUnique: another record in epoch {place[0]} at {place[1]}"
                )
            after[self.SPENT] = self.spent.of(written)
            self._take(after, at, self.replicas.do(number, Replicas.PRODUCE, len(written.written)))
            found.append((("produce", at + 1, len(written.written)), tuple(after)))
        for lagging in part.may_lag:
            after = list(state)
            self._take(after, at, self.replicas.do(number, Replicas.LAG, *sorted(lagging)))
            found.append((("lag", at + 1, lagging), tuple(after)))

    def _follow(self, state: State, at: int, part: Part, found: Found) -> None:
        slot = self.size + at
        if part.has_unwritten:
            after = list(state)
            after[at] = self.replicas.do(state[at], Replicas.WRITE).part
            found.append((("write", at + 1), tuple(after)))
            if state[slot] >= 0:
                return  # the answer waits until that is done
        if state[slot] >= 0:
            after = list(state)
            after[at] = self.replicas.do(state[at], Replicas.HEAR, state[slot]).part
            after[slot] = -1
            found.append((("hear", at + 1), tuple(after)))
            after[at] = state[at]
            found.append((("lose", at + 1), tuple(after)))
            return
        leader = part.target - 1
        asked = state[leader]
        if not self.replicas.parts[asked].leads:
            return
        done = self.replicas.do(asked, Replicas.SERVE, part.ask, at + 1, part.replica.broker_epoch)
        if done.answer < 0:
            return
        after = list(state)
        if done.part != asked or done.proposals:
            self._take(after, leader, done)
        if self.bounds.is_answer_late or part.has_unwritten:
            after[slot] = done.answer
            found.append((("ask", at + 1), tuple(after)))
            return
        if after[leader] != asked:
            found.append((("fetch", at + 1, "lost"), tuple(after)))
        after[at] = self.replicas.do(state[at], Replicas.HEAR, done.answer).part
        if after[at] != state[at]:
            found.append((("fetch", at + 1), tuple(after)))

    def _arrive_late(self, state: State, at: int, found: Found) -> None:
        """A fetch that was sent in an earlier life of the follower: its answer is of no use to anybody."""
        ask, broker_epoch = self.strays.values[state[2 * self.size + at]]
        leader = self.replicas.asks.values[ask].leader - 1
        if leader == at or not self.replicas.parts[state[leader]].leads:
            return
        done = self.replicas.do(state[leader], Replicas.SERVE, ask, at + 1, broker_epoch)
        if done.part != state[leader] or done.proposals:
            after = list(state)
            after[2 * self.size + at] = -1
            self._take(after, leader, done)
            found.append((("late", at + 1), tuple(after)))

    def _fail(self, state: State, at: int, part: Part, spent: Spent, found: Found) -> None:
        if not part.is_up:
            found.append((("restart", at + 1), self._restart(state, at, part)))
            return
        if spent.crashes >= self.bounds.crashes:
            return
        crashed = spent._replace(crashes=spent.crashes + 1)
        after = list(state)
        self._leave_machine(after, at, part)
        after[self.SPENT] = self.spent.of(crashed)
        after[at] = self.replicas.do(state[at], Replicas.CRASH).part
        self._forget(after)
        found.append((("crash", at + 1), tuple(after)))
        if spent.power_losses < self.bounds.power_losses:
            after[self.SPENT] = self.spent.of(crashed._replace(power_losses=spent.power_losses + 1))
            after[self.PROMISED] = self.promises.on_power_lost(after[self.PROMISED], BrokerId(at + 1))
            for keeps in range(len(part.log) + 1):
                after[at] = self.replicas.do(state[at], Replicas.LOSE_POWER, keeps).part
                found.append((("power-loss", at + 1, keeps), tuple(after)))

    def _restart(self, state: State, at: int, part: Part) -> State:
        after, broker = list(state), BrokerId(at + 1)
        replica = part.replica
        leads = self.controller[state[self.CONTROL]].image.leader == broker
        leave = "lost" if replica.has_lost_power else "crashed"
        if self.rules.keeps_epoch if leads else self.rules.keeps_seats:
            leave = ""
        epoch = BrokerEpoch(replica.broker_epoch + 1)
        self._decided(after, self.controller.unfence(state[self.CONTROL], broker, epoch, leave=leave))
        entry = self.controller.latest(after[self.CONTROL])
        self._take(after, at, self.replicas.do(state[at], Replicas.RESTART, entry))
        self._forget(after, is_aware=at)
        return tuple(after)

    def _fence(self, state: State, at: int, part: Part, spent: Spent, found: Found) -> None:
        """Sessions end: of who is down, and of a few who are not, and are heard of again."""
        broker = BrokerId(at + 1)
        after = list(state)
        if any(one == broker for one, _ in self.controller[state[self.CONTROL]].brokers):
            if part.is_up and spent.fencings >= self.bounds.fencings:
                return
            if part.is_up:
                after[self.SPENT] = self.spent.of(spent._replace(fencings=spent.fencings + 1))
            self._decided(after, self.controller.fence(state[self.CONTROL], broker))
            self._forget(after)
            found.append((("fence", at + 1), tuple(after)))
        elif part.is_up:
            epoch = part.replica.broker_epoch
            self._decided(after, self.controller.unfence(state[self.CONTROL], broker, epoch))
            self._forget(after)
            found.append((("unfence", at + 1), tuple(after)))

    def _elect(self, state: State, broker: BrokerId, *, is_unclean: bool) -> State:
        after = list(state)
        self._decided(after, self.controller.elect(state[self.CONTROL], broker, is_unclean=is_unclean))
        if is_unclean:
            spent = self.spent.values[state[self.SPENT]]
            after[self.SPENT] = self.spent.of(spent._replace(unclean=spent.unclean + 1))
            epoch = self.controller[after[self.CONTROL]].image.leader_epoch
            after[self.PROMISED] = self.promises.on_unclean_election(after[self.PROMISED], epoch)
        self._forget(after)
        return tuple(after)

    def _alter(self, state: State, spent: Spent, found: Found) -> None:
        """AlterPartition arrives, or is given up by the leader, which asks again: it may arrive all the same."""
        for sender, proposal in self.proposed.values[state[self.PROPOSED]]:
            number = self.controller.alter(state[self.CONTROL], sender, proposal)
            if number != state[self.CONTROL]:
                after = list(state)
                self._decided(after, number)
                self._forget(after)
                found.append((("grant", sender, proposal.isr), tuple(after)))
        latest = self.controller[state[self.CONTROL]].image.leader_epoch
        for at, part in enumerate(self.parts(state)):
            if not part.leads or part.epoch < latest:
                continue  # nothing is granted to it any more
            after = list(state)
            if part.is_proposal_open and spent.given_up < self.bounds.given_up:
                after[self.SPENT] = self.spent.of(spent._replace(given_up=spent.given_up + 1))
                self._take(after, at, self.replicas.do(state[at], Replicas.UNANSWERED))
                found.append((("give-up", at + 1), tuple(after)))
            elif part.may_retry:
                self._take(after, at, self.replicas.do(state[at], Replicas.RETRY))
                found.append((("retry", at + 1), tuple(after)))

    # What follows from that.

    def _take(self, after: list[int], at: int, done: Done) -> None:
        """Note what a replica is now, what it promised, and what it sent."""
        after[at] = done.part
        part = self.replicas.parts[done.part]
        if part.committed:
            after[self.PROMISED], broken = self.promises.on_committed(after[self.PROMISED], part)
            if broken:
                after[self.SPENT] = self.spent.of(self.spent.values[after[self.SPENT]]._replace(broken=broken))
        for proposal in done.proposals:
            self._propose(after, at, proposal)

    def _propose(self, after: list[int], at: int, proposal: Proposal) -> None:
        number = after[self.CONTROL]
        epoch = self.controller[number].image.leader_epoch
        if proposal.leader_epoch != epoch or self.controller.is_behind(number, epoch):
            return  # it was made on older state, and will be refused
        if self.bounds.is_isr_late:
            others = self.proposed.values[after[self.PROPOSED]]
            after[self.PROPOSED] = self.proposed.of(others | {(BrokerId(at + 1), proposal)})
            return
        self._decided(after, self.controller.alter(number, BrokerId(at + 1), proposal))
        control = self.controller[after[self.CONTROL]]
        entry = self.controller.next_for(control, epoch, leads=True)
        if entry >= 0:
            after[self.CONTROL] = self.controller.heard(after[self.CONTROL], epoch)
            self._take(after, at, self.replicas.do(after[at], Replicas.LEARN, entry))

    def _decided(self, after: list[int], number: int) -> None:
        """The controller decided something: whatever was proposed on older state is refused from now on."""
        before = after[self.CONTROL]
        after[self.CONTROL] = number
        if self.controller.moves(before, number):
            after[self.PROPOSED] = self._nothing_proposed
            down = [part.replica.broker_id for part in self.parts(tuple(after)) if not part.is_up]
            image = self.controller[number].image
            after[self.PROMISED] = self.promises.on_state(after[self.PROMISED], image, down)

    def _leave_machine(self, after: list[int], at: int, part: Part) -> None:
        """What is on its way to a machine that is no more reaches nobody; what it sent may still arrive."""
        slot = self.size + at
        is_asking = part.ask >= 0 and isinstance(self.replicas.asks.values[part.ask], RecordsRequest)
        if self.bounds.is_request_late and is_asking and after[slot] < 0:
            after[slot + self.size] = self.strays.of((part.ask, part.replica.broker_epoch))
        after[slot] = -1

    def _forget(self, after: list[int], *, is_aware: int = -1) -> None:
        epochs = tuple(self.replicas.parts[number].epoch for number in after[: self.size])
        number = after[self.CONTROL]
        if is_aware >= 0 and self.replicas.parts[after[is_aware]].leads:
            while self.controller.is_behind(number, epochs[is_aware]):
                number = self.controller.heard(number, epochs[is_aware])
        after[self.CONTROL] = self.controller.forget(number, epochs)


def _view(part: Part) -> ReplicaView:
    replica = part.replica
    return ReplicaView(
        replica.broker_id,
        is_up=part.is_up,
        leads=part.leads,
        leader_epoch=LeaderEpoch(part.epoch) if part.is_up else None,
        log_start_offset=START,
        records=part.log,
        lineage=replica.lineage.entries,
        high_watermark=Offset(part.high_watermark),
        isr=part.isr,
        serves_consumers=part.leads or (replica.follower is not None and replica.follower.is_reconciled),
        name=name_of(replica.broker_id),
    )
