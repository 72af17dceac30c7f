"""`controller_mutation_rate`: how many partitions a client makes and deletes in a second (KIP-599).

```
 tokens ≥ 0    the next topic of the request is decided, whatever it costs, and its partitions are taken off
 tokens < 0    newer versions: it is refused, and told when to ask again; older ones: it is decided all the same
               and then, in both, the connection is held back until the tokens are there again
```

What the controller refuses is given back. **Unlike Kafka**, whose active controller counts, each broker counts what
it was asked itself.

Kafka: `ControllerMutationQuota`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import Code, refusal
from tidelog.base.ids import TopicId
from tidelog.metadata.client_quotas import CONTROLLER_MUTATION_RATE
from tidelog.metadata.configs.broker import NUM_PARTITIONS
from tidelog.server.api.apis import APIS
from tidelog.server.api.division import Division, with_value
from tidelog.server.quotas.client_quotas import ClientQuotas
from tidelog.wire.api import Api, ApiKey

if TYPE_CHECKING:
    from tidelog.server.api.forwarding import Refuse
    from tidelog.server.api.ports import ServerApi
    from tidelog.server.api.request_context import Handler, RequestContext

Cost = Callable[["ServerApi", Any], int]
"""The partitions that are made or deleted for one of those that a request lists."""


def _created(node: ServerApi, topic: Any) -> int:
    if topic.assignments:
        return len(topic.assignments)
    count: int = topic.num_partitions if topic.num_partitions >= 0 else node.broker_settings[NUM_PARTITIONS]
    return count


def _grown(node: ServerApi, topic: Any) -> int:
    known = node.image.topic(topic.name)
    return 0 if known is None else max(topic.count - len(known.partitions), 0)


def _deleted(node: ServerApi, topic: Any) -> int:
    image = node.image
    if isinstance(topic, str):
        known = image.topic(topic)
    else:
        known = image.topic_by_id(TopicId(topic.topic_id)) if topic.name is None else image.topic(topic.name)
    return 0 if known is None else len(known.partitions)


COSTS: dict[int, tuple[Cost, int]] = {
    ApiKey.CREATE_TOPICS: (_created, 6),
    ApiKey.DELETE_TOPICS: (_deleted, 5),
    ApiKey.CREATE_PARTITIONS: (_grown, 3),
}
"""What each of these costs, and the version from which on it is refused where there are no tokens."""


def limiting_mutations(
    quotas: ClientQuotas,
    known: Api,
    handle: Handler,
    refused: Refuse,
    owner: Callable[[RequestContext], tuple[str, str]],
) -> Handler:
    """A handler that decides what there are tokens for.

    Args:
        refused: the answer in which every part of a request is refused.
        owner: the user and the client id that a request is charged to.
    """
    cost, strict_since = COSTS[known.key]
    api_division = APIS[known.key].division
    assert api_division is not None

    async def serve(node: ServerApi, request: Any, context: RequestContext) -> Any:
        user, client_id = owner(context)
        is_free = quotas.share(CONTROLLER_MUTATION_RATE, user, client_id) is None
        if is_free or getattr(request, "validate_only", False):
            return await _answered(handle(node, request, context))
        division = api_division.of(request)
        admitted: list[tuple[Any, int]] = []
        excess: list[Any] = []
        for one in getattr(request, division.listed):
            if context.api_version >= strict_since and quotas.mutations_throttle_ms(user, client_id):
                excess.append(one)
                continue
            admitted.append((one, cost(node, one)))
            quotas.charge_mutations(user, client_id, admitted[-1][1])
        answer = None
        if admitted or not excess:
            part = with_value(request, division.listed, [one for one, _ in admitted])
            answer = await _answered(handle(node, part, context))
            quotas.charge_mutations(user, client_id, -_not_done(division, admitted, answer))
        context.throttle_ms = quotas.mutations_throttle_ms(user, client_id)
        if context.throttle_ms:
            quotas.throttled[CONTROLLER_MUTATION_RATE].add(user, client_id, context.throttle_ms)
        if not excess:
            return answer
        error = refusal(
            Code.THROTTLING_QUOTA_EXCEEDED,
            f"controller_mutation_rate: user {user!r} with client id {client_id!r} has made or deleted too many "
            f"partitions; ask again in {context.throttle_ms} ms",
        )
        rest = refused(with_value(request, division.listed, excess), context, error)
        if answer is None:
            return rest
        getattr(answer, division.answered).extend(getattr(rest, division.answered))
        return answer

    return serve


async def _answered(answer: Any) -> Any:
    return await answer if isinstance(answer, Awaitable) else answer


def _not_done(division: Division, admitted: list[tuple[Any, int]], answer: Any) -> int:
    """The cost of what was refused."""
    rows = getattr(answer, division.answered)
    if len(rows) != len(admitted):
        return 0
    return sum(cost for (_, cost), row in zip(admitted, rows, strict=True) if row.error_code)
