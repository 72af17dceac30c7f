"""StoppedMeansStopped: no replica is deleted that the metadata assigns, and none that was stopped serves on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tidelog.base.ids import BrokerId
from tidelog.metadata.image import MetadataImage, PartitionImage
from tidelog.replica import ReplicaId
from tidelog.sim.checkers.views import Broken


class BrokerView(NamedTuple):
    """What one broker holds.

    Attributes:
        held: the logs that are there.
        stopped: of those, what it was told to stop, and has not heard since that it may go on.
        serving: of those, what it leads, follows, or serves consumers from.
        applied: the committed metadata, up to where this broker has applied it. As the controller wrote it, not as the
            broker says that it is.
        name: of the broker, in what is said about it.
    """

    broker_id: BrokerId
    held: frozenset[ReplicaId]
    stopped: frozenset[ReplicaId]
    serving: frozenset[ReplicaId]
    applied: MetadataImage
    name: str = ""

    @property
    def called(self) -> str:
        return self.name or f"broker {self.broker_id}"


class StoppedMeansStopped:
    """Look at all brokers after every step.

    A log that is gone had to be unassigned in what its broker had applied, and may be in no ISR of the latest metadata.
    So an order that was overtaken deletes nothing, nor does one whose records were never committed.
    """

    name = "StoppedMeansStopped"

    def __init__(self) -> None:
        self._held: dict[BrokerId, frozenset[ReplicaId]] = {}

    def check(self, views: list[BrokerView], latest: MetadataImage) -> Iterator[Broken]:
        """Compare with the last look.

        Args:
            views: of the brokers that are up; the others are looked at when they are again.
            latest: all that the controller has committed.
        """
        for view in views:
            for log in sorted(self._held.get(view.broker_id, frozenset()) - view.held):
                state = _state(view.applied, log)
                if state is not None and view.broker_id in state.replicas:
                    what = f"{view.called} deleted {_name(view.applied, log)}, which the metadata assigns to it"
                    yield Broken(self.name, f"{what} in leader epoch {state.leader_epoch}")
                newest = _state(latest, log)
                if newest is not None and view.broker_id in newest.isr:
                    yield Broken(self.name, f"{view.called} deleted {_name(latest, log)}, of which it is in sync")
            for log in sorted(view.stopped & view.serving):
                yield Broken(self.name, f"{view.called} was told to stop {_name(view.applied, log)}, and serves on")
            self._held[view.broker_id] = view.held


def _state(image: MetadataImage, log: ReplicaId) -> PartitionImage | None:
    topic = image.topic_by_id(log.topic_id)
    if topic is None or log.partition >= len(topic.partitions):
        return None
    return topic.partitions[log.partition]


def _name(image: MetadataImage, log: ReplicaId) -> str:
    topic = image.topic_by_id(log.topic_id)
    return f"{log.topic_id if topic is None else topic.name}-{log.partition}"


def what_is_wrong_with_deleting(
    log: ReplicaId, broker: BrokerId, known: Iterable[MetadataImage], latest: MetadataImage
) -> str | None:
    """As `StoppedMeansStopped`, of one log at the moment that it goes; None if nothing is.

    Args:
        known: committed metadata, from what the broker answers from to the newest that has reached it: of some of it
            the broker must have learned that the replica is not its own.
        latest: all that is committed.
    """
    states = (_state(image, log) for image in known)
    if all(state is not None and broker in state.replicas for state in states):
        return "which all the metadata that it knows of assigns to it"
    newest = _state(latest, log)
    return "of which it is in sync" if newest is not None and broker in newest.isr else None
