"""Who wants to know when a partition changes: told once, in the order in which they came."""

from __future__ import annotations

from typing import Protocol


class Watcher(Protocol):
    """Is told of the next change, once: whoever wants to know of the one after it watches again."""

    def on_changed(self) -> None: ...


class Watchers:
    """Some of them. A change costs nothing where those who once watched are gone, or have not looked since the last."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[Watcher, None] = {}

    def add(self, watcher: Watcher) -> None:
        self._waiting[watcher] = None

    def remove(self, watcher: Watcher) -> None:
        self._waiting.pop(watcher, None)

    def tell(self) -> None:
        """Something changed."""
        waiting = self._waiting
        if waiting:
            self._waiting = {}
            for watcher in waiting:
                watcher.on_changed()
