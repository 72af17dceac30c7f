"""The search for the topics of patterns, some names at a time: other requests have their turn in between."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from tidelog.base.errors import KafkaError
from tidelog.base.linear_pattern import LinearPattern
from tidelog.coordinator.groups.consumer.known_topics import KnownTopics

STEP_NAMES_MAX = 500
"""Names that are matched in one go at most, about a millisecond; fewer where they are long, or the pattern is hard."""

STATES_MAX = 2_000
"""Of a pattern, and its characters: it may list a hundred topics. Apache Kafka has no such bound."""
PATTERNS_KEPT = 16


@lru_cache(PATTERNS_KEPT)
def topic_pattern(pattern: str) -> LinearPattern:
    """A pattern of topics (KIP-848). Those that were asked for last are kept, with what they learnt of names.

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION.
    """
    return LinearPattern(pattern, length_max=STATES_MAX, states_max=STATES_MAX, steps_max=None)


class PatternTopics(NamedTuple):
    """The topics of a pattern of a group were looked up."""

    group_id: str
    pattern: str
    topics: frozenset[str]


@dataclass(slots=True)
class _Search:
    expression: str
    found: set[str]
    pattern: LinearPattern | None = None  # once its turn has come
    is_refused: bool = False  # another broker took it: it matches nothing
    names: list[tuple[str, ...]] = field(default_factory=list)  # shared with other searches
    at: int = 0
    matching: Iterator[None] | None = None  # of the name at hand, where that takes long

    def compile(self) -> None:
        try:
            self.pattern = topic_pattern(self.expression)
        except KafkaError:
            self.is_refused = True
            self.found.clear()
            self.names.clear()

    def match_next(self) -> bool:
        """Match the next name, or a piece of it. Returns whether it was the last piece."""
        assert self.pattern is not None
        name = self.names[0][self.at]
        pieces = self.pattern.matching(name) if self.matching is None else self.matching
        try:
            next(pieces)
        except StopIteration as end:
            if end.value:
                self.found.add(name)
            self.at += 1
            self.matching = None
            return True
        self.matching = pieces
        return False


class PatternSearches:
    """All searches of one coordinator, one after the other. What is looked up twice at once is looked up once."""

    def __init__(self, known: KnownTopics) -> None:
        self._known = known
        self._searches: dict[tuple[str, str], _Search] = {}
        self._all: tuple[int, tuple[str, ...]] = (-1, ())

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to look up."""
        return not self._searches

    def search(self, group_id: str, pattern: str) -> None:
        """Look a pattern of a group up in all topics, unless that is under way."""
        if (group_id, pattern) not in self._searches:
            self._searches[group_id, pattern] = _Search(pattern, set(), names=[self._all_names()])

    def look_again(self, group_id: str, pattern: str, matched: Collection[str], changed: tuple[str, ...]) -> None:
        """Some topics were made or deleted.

        Args:
            matched: the topics that matched before.
        """
        search = self._searches.get((group_id, pattern))
        if search is None:
            search = self._searches[group_id, pattern] = _Search(pattern, set(matched))
        search.names.append(changed)

    def forget(self, group_id: str, pattern: str) -> None:
        """Nobody is subscribed to it any more."""
        self._searches.pop((group_id, pattern), None)

    def step(self) -> Iterator[PatternTopics]:
        """Match the next names. Returns what has been looked up completely."""
        left = STEP_NAMES_MAX
        known = self._known
        while self._searches and left > 0:
            (group_id, pattern), search = next(iter(self._searches.items()))
            if search.pattern is None and not search.is_refused:
                search.compile()  # a millisecond or a few
                return
            if search.is_refused or not search.names:
                del self._searches[group_id, pattern]
                yield PatternTopics(group_id, pattern, known.still_matchable(search.found))
                left -= 1
            elif search.at >= len(search.names[0]):
                del search.names[0]
                search.at = 0
            elif search.match_next():
                left -= 1
            else:
                self._searches[group_id, pattern] = self._searches.pop((group_id, pattern))  # others have their turn
                return

    def _all_names(self) -> tuple[str, ...]:
        version, names = self._all
        if version != self._known.version:
            names = tuple(self._known.matchable())
            self._all = (self._known.version, names)
        return names
