"""One topic that clients make and delete, brokers that hear of it when they do, and one client that asks any of them.

What was committed is a history, which every broker hears in its order. A controller that was deposed goes on refusing
by what it knew then, to brokers that have heard nothing of the next one; all else that it decides is never committed.
A request that waits is one that does not come to pass before the broker has heard more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

from support.clients.token_client import metadata, produce
from support.clients.token_requests import create, delete
from support.exhaustive.small_world_parts import Numbers
from support.exhaustive.small_world_search import Found, State
from support.old_rules.token_rules import TokenRules
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionEpoch, TopicId
from tidelog.metadata import PartitionImage
from tidelog.metadata.image import MetadataImage, TopicImage
from tidelog.security.authorizer import AllowEverything
from tidelog.server.api.apis import DENIALS
from tidelog.server.api.gated_apis import AreDenied
from tidelog.server.api.tokens import TokenGate
from tidelog.wire import ConsistencyState
from tidelog.wire.api import ApiKey, api

CLUSTER = "small"
TOPIC = "t"
REQUESTS = {
    ApiKey.METADATA: metadata(TOPIC),
    ApiKey.PRODUCE: produce(TOPIC),
    ApiKey.CREATE_TOPICS: create(TOPIC, BrokerId(1)),
    ApiKey.DELETE_TOPICS: delete(TOPIC),
}
NOTHING = -1


@dataclass(frozen=True)
class TokenBounds:
    """How small.

    Attributes:
        changes: that are committed, whoever asked for them.
    """

    brokers: int = 3
    changes: int = 4
    depositions: int = 1

    @property
    def text(self) -> str:
        """As the tables show it."""
        deposed = "a controller deposed" if self.depositions == 1 else f"{self.depositions} controllers deposed"
        return f"{self.brokers} brokers, {self.changes} changes, {deposed}"


class Now(NamedTuple):
    """A state, by what is in it.

    Attributes:
        history: by offset, which topic of the name there was from there on; 0 for none.
        applied: by broker, the last offset that it has heard.
        deposed_at: the last offset that the deposed controller knew; -1 if there is none.
        depositions: so far.
        token: that the client sends; -1 for none.
        seen: the last offset of whatever the client was told, as it is and not as it was stamped.
        fault: its number.
    """

    history: tuple[int, ...]
    applied: tuple[int, ...]
    deposed_at: int = NOTHING
    depositions: int = 0
    token: int = NOTHING
    seen: int = NOTHING
    fault: int = 0

    @property
    def last_offset(self) -> int:
        return len(self.history) - 1


class TokenWorld:
    """All that may happen, in any state.

    Args:
        denials: in the place of production's.
    """

    def __init__(
        self, bounds: TokenBounds, rules: TokenRules | None = None, denials: Mapping[int, AreDenied] = DENIALS
    ) -> None:
        self._bounds = bounds
        self._denials = denials
        self._rules = rules or TokenRules()
        self._states: Numbers[Now] = Numbers()
        self._faults: Numbers[str] = Numbers()
        fine = self._faults.of("")
        self.initial: State = (self._states.of(Now((0,), (0,) * bounds.brokers, fault=fine)),)

    def broken(self, state: State) -> str:
        """What does not hold, beginning with the name of the invariant; empty if all does."""
        return self._faults.values[self._states.values[state[0]].fault]

    def successors(self, state: State) -> Found:
        now = self._states.values[state[0]]
        found: list[tuple[tuple[object, ...], Now]] = []
        if now.last_offset < self._bounds.changes:
            found.append((("another changes it",), now._replace(history=self._changed(now))))
        if now.depositions < self._bounds.depositions:
            deposed = now._replace(deposed_at=now.last_offset, depositions=now.depositions + 1)
            found.append((("depose",), deposed))
        for broker, applied in enumerate(now.applied):
            if applied < now.last_offset:
                found.append((("learn", broker), now._replace(applied=_with(now.applied, broker, applied + 1))))
            found += self._asked(now, broker)
        return [(action, (self._states.of(after),)) for action, after in found]

    def _changed(self, now: Now) -> tuple[int, ...]:
        """One change more: what is there goes, or what is not there comes."""
        return (*now.history, 0 if now.history[-1] else max(now.history) + 1)

    # The client.

    def _asked(self, now: Now, broker: int) -> list[tuple[tuple[object, ...], Now]]:
        applied = now.applied[broker]
        found: list[tuple[tuple[object, ...], Now]] = []
        if not self._waits(now, applied, ApiKey.METADATA):
            found.append((("read", broker), self._told(now, applied, applied, "was told of it as of")))
        if not self._waits(now, applied, ApiKey.PRODUCE) and not now.history[applied]:
            found.append((("produce", broker), self._told(now, applied, applied, "was told that there is none as of")))
        for key in (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS):
            if not self._waits(now, applied, key):
                found += self._passed_on(now, broker, key)
        return found

    def _passed_on(self, now: Now, broker: int, key: ApiKey) -> list[tuple[tuple[object, ...], Now]]:
        """By a broker, to the controller, or to one that is none any more."""
        wants_it = key == ApiKey.CREATE_TOPICS
        found: list[tuple[tuple[object, ...], Now]] = []
        after: Now | None = now
        if bool(now.history[-1]) != wants_it:
            after = now._replace(history=self._changed(now)) if now.last_offset < self._bounds.changes else None
        if after is not None:
            found.append(((key.name, broker), self._answered(after, broker, after.last_offset)))
        knew = now.deposed_at
        if now.applied[broker] <= knew and bool(now.history[knew]) == wants_it:
            found.append(((key.name, broker, "deposed"), self._answered(now, broker, knew)))
        return found

    def _answered(self, now: Now, broker: int, offset: int) -> Now:
        """By a controller that knows all up to this offset: the broker waits for that before it passes it on."""
        stamp = now.applied[broker]
        if self._rules.stamps_own_writes and stamp < offset:
            stamp = offset
            now = now._replace(applied=_with(now.applied, broker, offset))
        return self._told(now, offset, stamp, "was answered by a controller as of")

    def _waits(self, now: Now, applied: int, key: ApiKey) -> bool:
        if now.token == NOTHING:
            return False
        image = _image(now.history[applied], applied)
        return _waits(image, now.token, key, self._denials if self._rules.waits_before_denials else {})

    def _told(self, now: Now, offset: int, stamp: int, what: str) -> Now:
        """The client was told something as of an offset. A contradiction to what it was told before is a fault."""
        if offset < now.seen and now.history[offset] != now.history[now.seen]:
            broken = "MetadataNeverGoesBack" if what.startswith("was told of") else "OwnWritesSeen"
            return now._replace(fault=self._faults.of(f"{broken}: the client {what} an offset before what it has seen"))
        token = max(now.token, stamp) if self._rules.sends_tokens else NOTHING
        return now._replace(token=token, seen=max(now.seen, offset))


def _with(applied: tuple[int, ...], broker: int, offset: int) -> tuple[int, ...]:
    return (*applied[:broker], offset, *applied[broker + 1 :])


@lru_cache(maxsize=10_000)
def _image(topic: int, offset: int) -> MetadataImage:
    if not topic:
        return MetadataImage(last_offset=Offset(offset))
    us = (BrokerId(1),)
    state = PartitionImage(us, us, us[0], LeaderEpoch(0), PartitionEpoch(0))
    image = TopicImage(TOPIC, TopicId(UUID(int=topic)), (state,))
    return MetadataImage({TOPIC: image}, {image.topic_id: image}, last_offset=Offset(offset))


def _waits(image: MetadataImage, token: int, key: ApiKey, denials: Mapping[int, AreDenied]) -> bool:
    """What production says to it."""
    node: Any = SimpleNamespace(image=image, cluster_id=CLUSTER, authorizer=AllowEverything())
    gate = TokenGate(node)
    gate._denials = dict(denials)
    state = ConsistencyState(CLUSTER, token)
    return not gate.is_reached(state) and gate.must_wait(api(key), REQUESTS[key], state) is not False
