"""Requests are looked at by the rights of their requesters before their handlers run, and some answers afterwards.

    request ──► needs of the whole ──► needs of its rows ──► handler ──► rows that may be shown ──► answer
                     │ denied               │ denied rows                                             ▲
                     └──► denied answer     └────────────────── in their places ──────────────────────┘

`needs.py` says what each API needs. What is denied never comes to a handler. A request that is divided is looked at
piece by piece; one that lists much and cannot be divided, on another thread.

Kafka: `KafkaApis`, `ControllerApis`, `AuthHelper`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

from tidelog.base.errors import KafkaError
from tidelog.metadata.acls import AclOperation, AclResourceType
from tidelog.security.authorizer import ANYTHING
from tidelog.server.api.apis import APIS
from tidelog.server.api.audit_log import CHANGES
from tidelog.server.api.denied_answers import NAMES, blank, denied_answer, denied_row, in_place, row_class
from tidelog.server.api.division import Division, with_value
from tidelog.server.api.rights import Rights
from tidelog.server.transport.listener_roles import CONTROLLER
from tidelog.wire.api import Api
from tidelog.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.server.api.ports import ServerApi
    from tidelog.server.api.request_context import Handler, RequestContext

T = TypeVar("T")

LOOKED_AT_ONCE_MAX = 256
"""Questions to the authorizer on the event loop: a millisecond or two."""


Asks = frozenset[AclOperation] | None
"""The operations whose denial a need looks for; None where nobody has said, which is taken for all."""


class Need(Protocol):
    """Part of what an API needs."""

    @property
    def asks(self) -> Asks: ...

    def guarding(self, known: Api, handle: Handler) -> Handler:
        """A handler that lets through to the other what is allowed. It waits for nothing if the other does not."""
        ...


Needs = tuple[Need, ...]
"""What an API needs, in the order in which it is looked at."""


def guarded(known: Api, handle: Handler, needs: Needs, deniable: frozenset[AclOperation] = ANYTHING) -> Handler:
    """The handler of an API, for those who may have it do what they ask for.

    Args:
        deniable: what the authorizer may deny. A need that asks for nothing of that costs nothing.
    """
    if known.key in CHANGES and deniable == ANYTHING:
        handle = _telling(known, handle)
    for need in reversed(needs):
        if need.asks is None or need.asks & deniable:
            handle = need.guarding(known, handle)
    return handle


def _telling(known: Api, handle: Handler) -> Handler:
    """Tells the audit log of what is allowed, where it was asked: not where a broker passes it on to."""

    def serve(node: ServerApi, request: Any, context: RequestContext) -> Any:
        if context.forwarded_for is None:
            division = APIS[known.key].division
            named = None if division is None else division.of(request)
            node.audit.on_allowed(known, context.requester, request, named)
        return handle(node, request, context)

    return serve


class Asked(NamedTuple):
    """One request, on its way to the handler."""

    known: Api
    handle: Handler
    node: ServerApi
    request: Any
    context: RequestContext

    @property
    def rights(self) -> Rights:
        return Rights(self.node, self.context)

    @property
    def division(self) -> Division | None:
        """How it lists much; None where it does not."""
        division = APIS[self.known.key].division
        return None if division is None else division.of(self.request)

    def handled(self) -> Any:
        """The answer of the handler, or what is to be awaited for it."""
        return self.handle(self.node, self.request, self.context)

    def elsewhere(self, work: Callable[[], T]) -> Awaitable[T]:
        """What takes long, done on another thread."""
        return self.node.executor.compute(work)


# The whole of a request.

WholeDenial = Callable[[Rights, Any, int], "KafkaError | None"]
"""(rights, request, its version) to why nothing of it is allowed."""
DenyWhole = Callable[[Api, Any, KafkaError, int], Any]
"""(API, request, why not, version) to the answer that says so."""


class Whole(NamedTuple):
    """Nothing of a request is allowed, or this need is fulfilled.

    Attributes:
        denial: why nothing is allowed.
        in_rows: the rows of the answer say it too, where the answer as a whole does.
        division: how the request lists, if not as `APIS` says.
        weigh: how much there is to be looked at; None where it is little.
        deny: the answer that says so, where it does not list what the request lists.
        asks: see `Asks`.
    """

    denial: WholeDenial
    in_rows: bool = False
    division: Division | None = None
    weigh: Callable[[Any], int] | None = None
    deny: DenyWhole | None = None
    asks: Asks = None

    def guarding(self, known: Api, handle: Handler) -> Handler:
        def serve(node: ServerApi, request: Any, context: RequestContext) -> Any:
            asked = Asked(known, handle, node, request, context)
            look = partial(self.denial, asked.rights, request, context.api_version)
            if self.weigh is not None and self.weigh(request) > LOOKED_AT_ONCE_MAX:
                return self._answer_later(asked.elsewhere(look), asked)
            return self._answer(look(), asked)

        return serve

    async def _answer_later(self, denial: Awaitable[KafkaError | None], asked: Asked) -> Any:
        answer = self._answer(await denial, asked)
        return await answer if isinstance(answer, Awaitable) else answer

    def _answer(self, error: KafkaError | None, asked: Asked) -> Any:
        if error is None:
            return asked.handled()
        asked.node.audit.on_denied(asked.known, str(error))
        version = asked.context.api_version
        in_rows, division, response = self.in_rows, self.division or asked.division, asked.known.response
        if self.deny is None:
            answer = partial(denied_answer, response, division, asked.request, error, version, in_rows=in_rows)
        else:
            answer = partial(self.deny, asked.known, asked.request, error, version)
        return asked.elsewhere(answer) if asked.context.is_long else answer()


def whole(operation: AclOperation, resource_type: AclResourceType, field: str) -> Whole:
    """An operation on the resource that a field of the request names."""

    def denial(rights: Rights, request: Any, version: int) -> KafkaError | None:
        return rights.denial(operation, resource_type, getattr(request, field) or "")

    return Whole(denial, asks=frozenset({operation}))


def cluster(*operations: AclOperation, in_rows: bool = False, division: Division | None = None) -> Whole:
    """One of these operations on the cluster."""
    return Whole(
        lambda rights, request, version: rights.cluster_denial(*operations),
        in_rows,
        division,
        asks=frozenset(operations),
    )


# Its rows.

RowDenial = Callable[[Rights, Any, Any], "KafkaError | None"]
"""(rights, request, one of those that it lists) to why that one is not allowed."""
DenyRow = Callable[[Rights, type[Any], Any, KafkaError, int], Any]
"""(rights, class of the row, what was listed, why not, version) to the row of the answer."""


class Rows(NamedTuple):
    """Each of those that a request lists is allowed, or not.

    Attributes:
        denial: why one is not.
        division: how the request lists, if not as `APIS` says.
        deny: the row that says so, where it is not as the others are.
        runs_anyway: the answer has more than these rows, so it is wanted though all of them are denied.
        is_sorted: the answer is in an order of its own: what is denied comes behind the rest.
        asks: see `Asks`.
    """

    denial: RowDenial
    division: Division | None = None
    deny: DenyRow | None = None
    runs_anyway: bool = False
    is_sorted: bool = False
    asks: Asks = None

    def guarding(self, known: Api, handle: Handler) -> Handler:
        def serve(node: ServerApi, request: Any, context: RequestContext) -> Any:
            asked = Asked(known, handle, node, request, context)
            division = self.division or asked.division
            assert division is not None
            listed = getattr(request, division.listed)
            if not listed:
                return asked.handled()
            if context.is_long and (division.is_whole or len(listed) > LOOKED_AT_ONCE_MAX):
                return self._answer_elsewhere(asked, division)
            rows = self._denied_rows(asked.rights, asked, division)
            if rows is None:
                return asked.handled()
            answer = self._answer(asked, division, rows)
            if isinstance(answer, Awaitable):
                return self._join_later(answer, asked, division, rows)
            return self._joined(answer, asked, division, rows)

        return serve

    def _denied_rows(self, rights: Rights, asked: Asked, division: Division) -> list[Any] | None:
        """A row for each that is denied, None for each that is not; None if all are allowed."""
        listed = getattr(asked.request, division.listed)
        denials = [self.denial(rights, asked.request, one) for one in listed]
        if denials.count(None) == len(denials):
            return None
        for why in dict.fromkeys(str(error) for error in denials if error is not None):
            asked.node.audit.on_denied(asked.known, why)
        cls, version = row_class(asked.known.response, division.answered), asked.context.api_version
        deny = partial(denied_row, division) if self.deny is None else partial(self.deny, rights)
        return [
            None if error is None else deny(cls, one, error, version)
            for one, error in zip(listed, denials, strict=True)
        ]

    def _answer(self, asked: Asked, division: Division, rows: Sequence[Any]) -> Any:
        """The answer to what is allowed."""
        listed = getattr(asked.request, division.listed)
        allowed = [one for one, row in zip(listed, rows, strict=True) if row is None]
        if not allowed and not self.runs_anyway:
            return blank(asked.known.response)
        return asked._replace(request=with_value(asked.request, division.listed, allowed)).handled()

    def _joined(self, answer: Any, asked: Asked, division: Division, rows: Sequence[Any]) -> Any:
        """One answer. Nobody waits for that of a Produce with acks=0, so it is None."""
        joined = blank(asked.known.response) if answer is None else answer
        # A handler that is asked for nothing may take that for all that there is.
        answered = getattr(joined, division.answered) if None in rows else []
        if self.is_sorted:
            answered += [row for row in rows if row is not None]
        else:
            answered = in_place(rows, answered)
        setattr(joined, division.answered, answered)
        return joined

    async def _join_later(self, answer: Awaitable[Any], asked: Asked, division: Division, rows: Sequence[Any]) -> Any:
        return self._joined(await answer, asked, division, rows)

    async def _answer_elsewhere(self, asked: Asked, division: Division) -> Any:
        rows = await asked.elsewhere(partial(self._denied_rows, asked.rights, asked, division))
        answer = asked.handled() if rows is None else self._answer(asked, division, rows)
        if isinstance(answer, Awaitable):
            answer = await answer
        if rows is None:
            return answer
        return await asked.elsewhere(partial(self._joined, answer, asked, division, rows))


def topic_of(one: Any) -> str | UUID:
    """What a request calls a topic that it lists: its name, or its id."""
    if isinstance(one, str):
        return one
    topic_id: UUID = getattr(one, "topic_id", ZERO_UUID)
    if topic_id != ZERO_UUID:
        return topic_id
    for field in NAMES:
        if hasattr(one, field):
            name: str | None = getattr(one, field)
            return name or ""
    return topic_id


def topic_denial(rights: Rights, operation: AclOperation, one: Any) -> KafkaError | None:
    """Why the requester may not do this to a topic that it lists. Whoever names an id does not learn the name."""
    topic = topic_of(one)
    if isinstance(topic, UUID):
        return rights.denial_by_id(operation, topic)
    return rights.denial(operation, AclResourceType.TOPIC, topic)


def topic_rows(
    operation: AclOperation, *, division: Division | None = None, unless: AclOperation | None = None
) -> Rows:
    """An operation on each topic that a request lists.

    Args:
        unless: on the cluster, it makes up for it.
    """

    def denial(rights: Rights, request: Any, one: Any) -> KafkaError | None:
        error = topic_denial(rights, operation, one)
        return None if error is None or (unless is not None and rights.on_cluster(unless)) else error

    return Rows(denial, division, asks=frozenset({operation}))


def named_rows(operation: AclOperation, resource_type: AclResourceType, division: Division | None = None) -> Rows:
    """An operation on each group, or transactional id, that a request lists."""

    def denial(rights: Rights, request: Any, one: Any) -> KafkaError | None:
        return rights.denial(operation, resource_type, one if isinstance(one, str) else one.group_id)

    return Rows(denial, division, asks=frozenset({operation}))


# Its answer.

Look = Callable[[Rights, Any, Any, int], None]
"""(rights, request, answer, version): takes out of the answer what the requester may not see."""


class Answered(NamedTuple):
    """The answer is looked at: it shows what the request does not name.

    Attributes:
        look: takes out what is not to be shown.
        rows: the field that says how much there is to be looked at.
        asks: see `Asks`.
    """

    look: Look
    rows: str
    asks: Asks = None

    def guarding(self, known: Api, handle: Handler) -> Handler:
        def serve(node: ServerApi, request: Any, context: RequestContext) -> Any:
            answer = handle(node, request, context)
            if isinstance(answer, Awaitable):
                return self._look_later(answer, node, request, context)
            return self._looked_at(answer, node, request, context)

        return serve

    async def _look_later(self, answer: Awaitable[Any], node: ServerApi, request: Any, context: RequestContext) -> Any:
        looked_at = self._looked_at(await answer, node, request, context)
        return await looked_at if isinstance(looked_at, Awaitable) else looked_at

    def _looked_at(self, answer: Any, node: ServerApi, request: Any, context: RequestContext) -> Any:
        look = partial(self.look, Rights(node, context), request, answer, context.api_version)
        if context.is_long or len(getattr(answer, self.rows)) > LOOKED_AT_ONCE_MAX:
            return self._look_elsewhere(node, look, answer)
        look()
        return answer

    async def _look_elsewhere(self, node: ServerApi, look: Callable[[], None], answer: Any) -> Any:
        await node.executor.compute(look)
        return answer


def shown(
    operation: AclOperation,
    resource_type: AclResourceType,
    rows: str,
    name: str,
    *,
    unless: AclOperation | None = None,
) -> Answered:
    """The answer has a row of each resource with this operation, and tells of no other.

    Args:
        rows: the field of the answer that lists, and `name` that of a row.
        unless: on the cluster, it shows all.
    """

    def look(rights: Rights, request: Any, answer: Any, version: int) -> None:
        if unless is None or not rights.on_cluster(unless):
            listed = getattr(answer, rows)
            listed[:] = [row for row in listed if rights.may(operation, resource_type, getattr(row, name))]

    return Answered(look, rows, frozenset({operation}))


# Whatever else there is.


class Guard(NamedTuple):
    """A need of one API.

    Attributes:
        guarding: as that of a `Need`; `asks` likewise.
    """

    guarding: Callable[[Api, Handler], Handler]
    asks: Asks = None


class InHandler(NamedTuple):
    """The handler itself asks.

    Attributes:
        where: it does so.
    """

    where: str

    @property
    def asks(self) -> Asks:
        return frozenset()

    def guarding(self, known: Api, handle: Handler) -> Handler:
        return handle


class AtControllers(NamedTuple):
    """What an API needs that is another one at the listeners of controllers.

    Attributes:
        there: what it needs at these.
        elsewhere: what it needs at those of brokers.
    """

    there: Need
    elsewhere: Need

    @property
    def asks(self) -> Asks:
        return None if self.there.asks is None or self.elsewhere.asks is None else self.there.asks | self.elsewhere.asks

    def guarding(self, known: Api, handle: Handler) -> Handler:
        there, elsewhere = self.there.guarding(known, handle), self.elsewhere.guarding(known, handle)

        def serve(node: ServerApi, request: Any, context: RequestContext) -> Any:
            return (there if context.listener_role == CONTROLLER else elsewhere)(node, request, context)

        return serve
