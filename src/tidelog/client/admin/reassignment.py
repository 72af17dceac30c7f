"""Partitions that move to other brokers, as an Admin tells of them: plain values."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.base.errors import KafkaError


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A reassignment under way.

    Attributes:
        replicas: all that hold the partition, those that only begin to included.
        adding_replicas: which of them it did not have before.
        removing_replicas: which of them it will not have afterwards.
    """

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """Who holds it once it is done."""
        return tuple(broker for broker in self.replicas if broker not in self.removing_replicas)


@dataclass(frozen=True, slots=True)
class ReassignmentOutcome:
    """What became of one partition that was to move, or to move no longer.

    Attributes:
        error: why it was refused; None if it was not.
        waits_for: what it has to wait for, in the controller's words; None where that is nothing, or is not told.
    """

    error: KafkaError | None = None
    waits_for: str | None = None
