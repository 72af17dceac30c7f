"""Patterns of topics (KIP-848), matched in time that grows with the length of the name.

A pattern becomes a non-deterministic automaton of bounded size; its deterministic twin is made as names need it, and
forgotten when it grows too large. Python's `re` would take exponential time for some patterns, and has another syntax.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.base.errors import Code, refusal
from tidelog.coordinator.groups.consumer.pattern_syntax import (
    WORD,
    Either,
    Node,
    OneOf,
    Place,
    Repeated,
    Sequence,
    parsed,
)

STATES_MAX = 10_000
"""Of the non-deterministic automaton."""

CACHED_STATES_MAX = 1_000
"""Of the deterministic automaton; at the limit all are forgotten."""

_Step = tuple[int, int]
"""A set of characters, and where one of them leads."""
_Branch = tuple[int, ...]
_Demand = tuple[Place, int]


class TopicPattern:
    """A pattern that names of topics match as a whole or not at all.

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION.
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        tree = parsed(pattern)
        self._steps: dict[int, _Step] = {}
        self._branches: dict[int, _Branch] = {}
        self._demands: dict[int, _Demand] = {}
        self._made = 1  # state 0 is the end
        self._first = self._make(tree, 0)
        self._cached: dict[tuple[frozenset[int], str], dict[str, frozenset[int]]] = {}

    def matches(self, name: str) -> bool:
        """Whether a name matches."""
        states, before = frozenset((self._first,)), ""
        for character in name:
            key = (states, _kind(before))
            leads_to = self._cached.get(key)
            if leads_to is None:
                if len(self._cached) >= CACHED_STATES_MAX:
                    self._cached.clear()
                leads_to = self._cached[key] = {}
            found = leads_to.get(character)
            if found is None:
                found = leads_to[character] = self._after(states, before, character)
            if not found:
                return False
            states, before = found, character
        return 0 in self._reached(states, before, "")

    # Running it.

    def _after(self, states: Iterable[int], before: str, character: str) -> frozenset[int]:
        code = ord(character)
        if code >= 128:
            return frozenset()
        steps = self._steps
        return frozenset(
            steps[one][1]
            for one in self._reached(states, before, character)
            if one in steps and steps[one][0] >> code & 1
        )

    def _reached(self, states: Iterable[int], before: str, after: str) -> set[int]:
        """Where the states lead without a character, between two characters; empty for an end of the name."""
        reached: set[int] = set()
        todo = list(states)
        while todo:
            state = todo.pop()
            if state in reached:
                continue
            reached.add(state)
            if state in self._branches:
                todo += self._branches[state]
            elif state in self._demands:
                place, then = self._demands[state]
                if _holds(place, before, after):
                    todo.append(then)
        return reached

    # Making it, from its end.

    def _make(self, node: Node, then: int) -> int:
        """The state in which the node begins; `then` follows it."""
        state = self._new_state()  # one for each visit, needed or not: what is visited is bounded as well
        match node:
            case OneOf(mask):
                self._steps[state] = (mask, then)
            case Place():
                self._demands[state] = (node, then)
            case Sequence(parts):
                for part in reversed(parts):
                    then = self._make(part, then)
                self._branches[state] = (then,)
            case Either(options):
                self._branches[state] = tuple(self._make(one, then) for one in options)
            case Repeated(part, least, most):
                self._branches[state] = (self._make_repeated(part, least, most, then),)
        return state

    def _make_repeated(self, part: Node, least: int, most: int | None, then: int) -> int:
        first = then
        if most is None:
            first = self._new_state()
            self._branches[first] = (self._make(part, first), then)
        else:
            for _ in range(most - least):
                option = self._new_state()
                self._branches[option] = (self._make(part, first), then)
                first = option
        for _ in range(least):
            first = self._make(part, first)
        return first

    def _new_state(self) -> int:
        if self._made == STATES_MAX:
            raise refusal(
                Code.INVALID_REGULAR_EXPRESSION, f"the pattern {self.pattern!r} has more than {STATES_MAX} states"
            )
        self._made += 1
        return self._made - 1


def _is_word(character: str) -> bool:
    return bool(character) and ord(character) < 128 and bool(WORD >> ord(character) & 1)


def _kind(before: str) -> str:
    """What a demand can see of the character before."""
    return "w" if _is_word(before) else before and "."


def _holds(place: Place, before: str, after: str) -> bool:
    match place:
        case Place.BEGIN:
            return not before
        case Place.END:
            return not after
        case Place.WORD_BOUNDARY:
            return _is_word(before) != _is_word(after)
        case Place.NO_WORD_BOUNDARY:
            return _is_word(before) == _is_word(after)
