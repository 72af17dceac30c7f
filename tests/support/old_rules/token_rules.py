"""What brokers and clients did before consistency tokens, or would do without some of their rules (KIP-1243)."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from tidelog.base.errors import KafkaError
from tidelog.server.api.dispatch import Dispatcher
from tidelog.server.api.request_context import Handler, RequestContext
from tidelog.server.api.tokens import TokenGate
from tidelog.server.node import Node
from tidelog.wire import decode
from tidelog.wire.api import Api, ApiKey


@dataclass(frozen=True)
class TokenRules:
    """What a story goes by; the defaults are production's.

    Attributes:
        sends_tokens: whether clients tell what they have seen.
        stamps_own_writes: whether a broker that passes a change on waits for it before it answers, and so stamps it.
        waits_before_denials: whether requests beside the ten reads of the proposal wait where they would be denied.
        hangs_up: whether a broker that cannot say STALE_METADATA says nothing at all.
        waits_before_permits: whether a broker with an authorizer waits before it allows something as well.
        waits_before_logins: whether it waits before it says whether a password is right.
    """

    sends_tokens: bool = True
    stamps_own_writes: bool = True
    waits_before_denials: bool = True
    hangs_up: bool = True
    waits_before_permits: bool = True
    waits_before_logins: bool = True

    def weaken(self, node: Node) -> None:
        """Have a node that was made, and not started, go by these."""
        if not self.stamps_own_writes:
            node.caught_up = _at_once  # type: ignore[method-assign]
        new_dispatcher = node._new_dispatcher

        def weakened(role: str) -> Dispatcher:
            dispatcher = new_dispatcher(role)
            gate = dispatcher._tokens
            if not self.hangs_up:
                dispatcher._tokens = gate = AnswersAllTheSame(node)
            if not self.waits_before_denials:
                gate._denials = {}
            if not self.waits_before_permits:
                gate._authorized = frozenset()
            if not self.waits_before_logins:
                gate._denials.pop(ApiKey.SASL_AUTHENTICATE)
            return dispatcher

        node.listeners._new_dispatcher = weakened


class AnswersAllTheSame(TokenGate):
    """Where there is no place for the error, the answer is what there is."""

    def hold(
        self, known: Api, handle: Handler, context: RequestContext, sent: tuple[memoryview, int]
    ) -> Awaitable[Any]:
        frame, position = memoryview(bytearray(sent[0])), sent[1]
        held = super().hold(known, handle, context, sent)

        async def answer() -> Any:
            try:
                return await held
            except KafkaError:
                request = decode(known.request, frame, context.api_version, position, ignores_trailing_bytes=True)
                response = handle(self._node, request, context)
                return await response if isinstance(response, Awaitable) else response

        return answer()


async def _at_once() -> None:
    """Wait for nothing."""


OLD_TOKEN_RULES = {
    "without-tokens": TokenRules(sends_tokens=False),
    "monotonic-reads-only": TokenRules(stamps_own_writes=False),
    "ten-reads-only": TokenRules(waits_before_denials=False),
    "answers-without-a-slot": TokenRules(hangs_up=False),
}
"""Before KIP-1243; its text to the letter, twice; and an error that is left out where it has no place."""

OLD_SECURITY_RULES = {
    "permits-at-once": TokenRules(waits_before_permits=False),
    "logins-at-once": TokenRules(waits_before_logins=False),
}
"""What the text has no word of: what is allowed, and who is let in, by what a broker knows."""
