"""The controller of a small world: what it decides, by production's own rules, and who has yet to hear of it.

Its history can only be heard in order, so what is left of it is this: for each leader epoch that somebody has yet to
hear of, the election, and the changes since that the leader of that epoch has yet to hear of. Nobody else
goes by those.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from support.exhaustive.small_world_parts import FIRST, Brokers, Entry, Numbers, Proposal
from support.worlds.replica_values import Rules
from tidelog.base.errors import KafkaError
from tidelog.base.ids import BrokerEpoch, BrokerId, LeaderEpoch
from tidelog.controller.isr_changes import IsrChange, IsrMember, alter_partition
from tidelog.controller.partition_changes import elected, led_by, led_uncleanly_by
from tidelog.metadata.image import BrokerImage, PartitionImage

HEARD = -1


class Period(NamedTuple):
    """A leader epoch.

    Attributes:
        elected: the entry of the election; `HEARD` once nobody has yet to hear of it.
        changes: the entries that its leader has yet to hear of.
    """

    leader_epoch: LeaderEpoch
    leader: BrokerId | None
    elected: int
    changes: tuple[int, ...] = ()


class Control(NamedTuple):
    """What the controller has decided. The image's partition epoch is always 0: versions are counted by nobody here."""

    image: PartitionImage
    brokers: Brokers
    periods: tuple[Period, ...]


class Controller:
    """Every decision that was taken, by what it was taken on."""

    def __init__(self, rules: Rules, *, min_insync: int, entries: Numbers[Entry]) -> None:
        self._rules = rules
        self._min_insync = min_insync
        self._entries = entries
        self._controls: Numbers[Control] = Numbers()
        self._after: dict[tuple[object, ...], int] = {}
        self._moves: set[tuple[int, int]] = set()

    def __getitem__(self, number: int) -> Control:
        return self._controls.values[number]

    def begin(self, image: PartitionImage, brokers: Brokers) -> int:
        entry = self._entries.of(Entry(image, brokers))
        return self._controls.of(Control(image, brokers, (Period(image.leader_epoch, image.leader, entry),)))

    def latest(self, number: int) -> int:
        """The entry that whoever applies the whole history begins with."""
        control = self._controls.values[number]
        return self._entries.of(Entry(control.image, control.brokers))

    def moves(self, before: int, after: int) -> bool:
        """Whether a decision, that led from one to the other, made a new partition epoch: older proposals are void."""
        return (before, after) in self._moves

    # Decisions: the number of what is the case then.

    def elect(self, number: int, broker: BrokerId, *, is_unclean: bool = False) -> int:
        after = self._after.get((number, "elect", broker, is_unclean))
        if after is None:
            control = self._controls.values[number]
            if is_unclean:
                image = led_uncleanly_by(control.image, broker)
            else:
                image = led_by(control.image, broker, min_insync_replicas=self._min_insync)
            after = self._decide(control, image, control.brokers)
            self._moves.add((number, after))
            self._after[number, "elect", broker, is_unclean] = after
        return after

    def alter(self, number: int, sender: BrokerId, proposal: Proposal) -> int:
        """AlterPartition. The same number if it is refused."""
        after = self._after.get((number, sender, proposal))
        if after is None:
            after = self._after[number, sender, proposal] = self._alter(number, sender, proposal)
            self._moves.add((number, after))
        return after

    def fence(self, number: int, broker: BrokerId) -> int:
        """Its session ended: its leadership and its seat go."""
        after = self._after.get((number, "fence", broker))
        if after is None:
            control = self._controls.values[number]
            brokers = tuple(one for one in control.brokers if one[0] != broker)
            left = self._leave(control.image, broker, brokers, is_lost=False)
            after = self._after[number, "fence", broker] = self._decide(control, left, brokers)
            if left != control.image:
                self._moves.add((number, after))
        return after

    def unfence(self, number: int, broker: BrokerId, broker_epoch: BrokerEpoch, *, leave: str = "") -> int:
        """It is heard of again; or registers anew, which costs it what it held, first: "crashed" or "lost"."""
        key = (number, "unfence", broker, broker_epoch, leave)
        after = self._after.get(key)
        if after is None:
            control = self._controls.values[number]
            image, has_moved = control.image, False
            if leave:
                others = tuple(one for one in control.brokers if one[0] != broker)
                image = self._leave(image, broker, others, is_lost=leave == "lost")
                has_moved = image != control.image
                control = self[self._decide(control, image, others)]
            brokers = (*(one for one in control.brokers if one[0] != broker), (broker, broker_epoch))
            active = {one for one, _ in brokers}
            found = elected(control.image, min_insync_replicas=self._min_insync, is_active=active.__contains__)
            after = self._decide(control, control.image if found is None else found, tuple(sorted(brokers)))
            self._after[key] = after
            if has_moved or found is not None:
                self._moves.add((number, after))
        return after

    # Who hears of it.

    def next_for(self, control: Control, leader_epoch: int, *, leads: bool) -> int:
        """The entry that a broker hears of next, which goes by `leader_epoch`; -1 if it knows all."""
        for period in control.periods:
            if leads and period.leader_epoch == leader_epoch and period.changes:
                return period.changes[0]
            if period.leader_epoch > leader_epoch:
                return period.elected
        return -1

    def is_behind(self, number: int, leader_epoch: int) -> bool:
        """Whether the leader of that epoch has yet to hear of a change in it."""
        return any(one.leader_epoch == leader_epoch and one.changes for one in self._controls.values[number].periods)

    def heard(self, number: int, leader_epoch: int) -> int:
        """The leader of that epoch has heard of the first change in it that it had not heard of."""
        control = self._controls.values[number]
        periods = tuple(
            one._replace(changes=one.changes[1:]) if one.leader_epoch == leader_epoch else one
            for one in control.periods
        )
        return self._controls.of(control._replace(periods=periods))

    def forget(self, number: int, epochs: tuple[int, ...]) -> int:
        """Leave out what nobody has yet to hear of.

        Args:
            epochs: that the brokers go by, in their order; -1 for who is down, and will hear of all at once.
        """
        key = (number, epochs)
        after = self._after.get(key)
        if after is None:
            control = self._controls.values[number]
            latest = control.image.leader_epoch
            oldest = min((epoch for epoch in epochs if epoch >= 0), default=latest)
            periods = []
            for period in control.periods:
                may_lead = period.leader is not None and 0 <= epochs[period.leader - 1] <= period.leader_epoch
                changes = period.changes if may_lead else ()
                is_heard = period.leader_epoch <= oldest
                if changes or not is_heard or period.leader_epoch == latest:
                    periods.append(period._replace(elected=HEARD if is_heard else period.elected, changes=changes))
            after = self._after[key] = self._controls.of(control._replace(periods=tuple(periods)))
        return after

    def _decide(self, control: Control, image: PartitionImage, brokers: Brokers) -> int:
        is_change = image != control.image
        image = replace(image, partition_epoch=FIRST)
        if not is_change and brokers == control.brokers:
            return self._controls.of(control)
        entry = self._entries.of(Entry(image, brokers, is_change))
        *earlier, last = control.periods
        if image.leader_epoch > control.image.leader_epoch:
            periods = (*control.periods, Period(image.leader_epoch, image.leader, entry))
        else:
            periods = (*earlier, last._replace(changes=(*last.changes, entry)))
        return self._controls.of(Control(image, brokers, periods))

    def _leave(self, image: PartitionImage, broker: BrokerId, others: Brokers, *, is_lost: bool) -> PartitionImage:
        active = {one for one, _ in others}
        left = self._rules.leaving(
            image,
            broker,
            min_insync_replicas=self._min_insync,
            is_active=active.__contains__,
            is_lost=is_lost,
        )
        return image if left is None else left

    def _alter(self, number: int, sender: BrokerId, proposal: Proposal) -> int:
        control = self._controls.values[number]
        told, known = dict(proposal.broker_epochs), dict(control.brokers)
        is_checked = self._rules.checks_broker_epochs
        members = [IsrMember(one, told.get(one) if is_checked else None) for one in sorted(proposal.isr)]
        ids = control.image.replicas
        brokers = {
            one: BrokerImage(one, known.get(one, BrokerEpoch(-1)), UUID(int=0), (), None, one not in known)
            for one in ids
        }
        try:
            image = alter_partition(
                control.image,
                IsrChange(proposal.leader_epoch, FIRST, tuple(members)),
                brokers,
                sender=sender,
                sender_epoch=told.get(sender, BrokerEpoch(-2)),
                min_insync_replicas=self._min_insync,
            )
        except KafkaError:
            return number
        return self._decide(control, image, control.brokers)
