"""Listeners to the changes of a partition: each is told once, in the order in which they came.

Kafka: `DelayedOperationPurgatory`.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar


class PartitionListener(Protocol):
    """Is told of the next change, once: whoever wants to know of the one after it watches again."""

    def on_changed(self) -> None: ...


class LogEndListener(PartitionListener, Protocol):
    """A follower, which waits for records, and hears of the high watermark when it is answered for another reason."""

    def on_committed(self) -> None:
        """The high watermark moved; the next change is still to be told."""
        ...


W = TypeVar("W", bound=PartitionListener)


class PartitionListeners(Generic[W]):
    """Some of them. A change costs nothing where those who once watched are gone, or have not looked since the last."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: dict[W, None] = {}

    def add(self, listener: W) -> None:
        self.waiting[listener] = None

    def remove(self, listener: W) -> None:
        self.waiting.pop(listener, None)

    def notify(self) -> None:
        """Notify all listeners of a change, and forget them."""
        waiting = self.waiting
        if waiting:
            self.waiting = {}
            for listener in waiting:
                listener.on_changed()
