"""Regular expressions whose matching takes time in proportion to the text, whatever the expression: RE2's promise.

A broker matches names by expressions that strangers send. Python's `re` needs exponential time for some of them, and
nothing else runs meanwhile. Here an expression is an automaton without backtracking:

    expression ──pattern_syntax──► tree ──► states ──match──► the set of states after each character

The sets that come up are kept, with what each character makes of them, and forgotten when they are many.

Source: Thompson's construction.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.pattern_syntax import WORD, Either, Node, OneOf, Place, Repeated, Sequence, parsed

LENGTH_MAX = 1_000
STATES_MAX = 1_000
"""Counted repetitions are written out, so `(a{30}){30}` has more."""
CACHED_MAX = 200_000
"""Places that are remembered, each with its states: some megabytes."""
STEPS_MAX = 300_000
"""Of one pattern, over all texts: a fraction of a second. Steps that were taken before are cached, and not counted."""
PIECE = 2_000
"""Steps and characters that are looked at in one go: about a millisecond."""
WORK_OF_TEXT = 5

_Step = tuple[OneOf, int]
"""A set of characters, and where one of them leads."""
_Demand = tuple[Place, int]


class _Place:
    """Between two characters: the states that one may be in, and what is known of where that leads.

    Attributes:
        before: what can be seen of the character before: nothing, "w" for one of a word, or "." for another.
    """

    __slots__ = ("before", "is_end", "leads_to", "states")

    def __init__(self, states: frozenset[int], before: str) -> None:
        self.states = states
        self.before = before
        self.leads_to: dict[str, _Place] = {}
        self.is_end: bool | None = None


class LinearPattern:
    """An expression that whole texts are matched against.

    Args:
        length_max: of the expression, in characters.
        states_max: of the automaton.
        steps_max: over all texts; None where whoever matches sees to it that others have their turn (`matching`).

    Raises:
        KafkaError: INVALID_REGULAR_EXPRESSION: it is none, or too large; says where and why.
    """

    def __init__(
        self,
        expression: str,
        *,
        length_max: int = LENGTH_MAX,
        states_max: int = STATES_MAX,
        steps_max: int | None = STEPS_MAX,
    ) -> None:
        if len(expression) > length_max:
            raise _refused(f"{expression[:40]}…", f"it has more than {length_max} characters")
        self.expression = expression
        self._states_max = states_max
        self._steps_left = steps_max
        self._steps: dict[int, _Step] = {}
        self._branches: dict[int, tuple[int, ...]] = {}
        self._demands: dict[int, _Demand] = {}
        self._made = 1  # state 0 is the end
        self._first = _Place(frozenset((self._make(parsed(expression), 0),)), "")
        self._places: dict[tuple[frozenset[int], str], _Place] = {}
        self._kept_count = 0
        self._work = 0

    def matches(self, text: str) -> bool:
        """Whether the whole of a text matches.

        Raises:
            KafkaError: INVALID_REGULAR_EXPRESSION: this pattern has taken too much time in all.
        """
        pieces = self.matching(text)
        while True:
            try:
                next(pieces)
            except StopIteration as end:
                return bool(end.value)

    def matching(self, text: str) -> Generator[None, None, bool]:
        """As `matches`, in pieces of about a millisecond. Several short texts make up one piece."""
        place, work = self._first, self._work + WORK_OF_TEXT
        for character in text:
            found = place.leads_to.get(character)
            if found is None:
                steps, found = self._after(place, character)
                work += steps
                if self._steps_left is not None:
                    self._steps_left -= steps
                    if self._steps_left < 0:
                        raise _refused(self.expression, "it takes too long; use a simpler one")
            work += 1
            if work >= PIECE:
                work = 0
                yield
            place = found
            if not place.states:
                break
        self._work = work
        return bool(place.states) and self._is_end(place)

    def _after(self, place: _Place, character: str) -> tuple[int, _Place]:
        """How many steps were taken, and where they lead."""
        steps = self._steps
        reached = self._reached(place.states, place.before, character)
        states = frozenset(steps[one][1] for one in reached if one in steps and steps[one][0].has(character))
        if self._kept_count >= CACHED_MAX:
            self._places.clear()
            self._first.leads_to.clear()
            self._kept_count = 0
        self._kept_count += 1 + len(states)
        key = states, _kind(character)
        found = self._places.get(key)
        if found is None:
            found = self._places[key] = _Place(*key)
        place.leads_to[character] = found
        return len(reached), found

    def _is_end(self, place: _Place) -> bool:
        if place.is_end is None:
            place.is_end = 0 in self._reached(place.states, place.before, "")
        return place.is_end

    def _reached(self, states: Iterable[int], before: str, after: str) -> set[int]:
        """Where the states lead without a character, between two characters; empty for an end of the text."""
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
        match node:
            case OneOf():
                state = self._new_state()
                self._steps[state] = (node, then)
            case Place():
                state = self._new_state()
                self._demands[state] = (node, then)
            case Sequence(parts):
                for part in reversed(parts):
                    then = self._make(part, then)
                state = self._new_state()  # needed or not: what is visited is bounded as well
                self._branches[state] = (then,)
            case Either(options):
                state = self._new_state()
                self._branches[state] = tuple(self._make(one, then) for one in options)
            case Repeated(part, least, most):
                state = self._new_state()
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
        if self._made >= self._states_max:
            raise _refused(self.expression, "it is too large")
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


def _refused(expression: str, why: str) -> KafkaError:
    return refusal(Code.INVALID_REGULAR_EXPRESSION, f"regular expression {expression!r}: {why}")
