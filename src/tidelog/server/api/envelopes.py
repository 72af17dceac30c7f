"""What a broker sends to the controller for a client: the client's request, and whose it is (KIP-590).

The controller sees the client's id, principal and address, and what the client has seen (KIP-1243), as if it were asked
by the client itself. What it answers in the envelope goes to the client; what it says of the envelope does not: that is
between the nodes.

Kafka: `ForwardingManager`, `EnvelopeRequest`.
"""

from __future__ import annotations

import ipaddress
import logging
from dataclasses import dataclass
from functools import partial
from typing import Any

from tidelog.base.errors import Code, MalformedMessageError, refusal
from tidelog.base.ports import Executor
from tidelog.base.principals import Requester
from tidelog.security.principal_data import encode_principal
from tidelog.wire import RequestHeader, decode, decode_response_header, encode_request
from tidelog.wire.messages.api_58_envelope import EnvelopeRequest, EnvelopeResponse
from tidelog.wire.schema import layout_of

logger = logging.getLogger("tidelog.server.forwarding")

UNKNOWN_ADDRESS = bytes(4)
"""Of a client that came over what has no addresses of IP."""

READ_AT_ONCE_BYTES_MAX = 32 << 10
"""Of an answer that is read on the event loop, in a millisecond or two. A longer one is read on another thread."""

_SIZE_BYTES = 4
_BETWEEN_NODES = frozenset(
    {Code.CLUSTER_AUTHORIZATION_FAILED, Code.PRINCIPAL_DESERIALIZATION_FAILURE, Code.INVALID_REQUEST}
)
"""What is wrong between this broker and the controller, whatever a client asks."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A request that a broker sends on, with what its client said and is.

    Attributes:
        header: of what the client sent: its id, its number for this request, what it has seen.
    """

    message: object
    response: type[Any]
    header: RequestHeader
    requester: Requester
    executor: Executor

    def sealed(self, version: int) -> EnvelopeRequest:
        """With the request in this version."""
        pieces = encode_request(
            self._api_key,
            version,
            self.header.correlation_id,
            self.header.client_id,
            self.message,
            consistency_state=self.header.consistency_state,
        )
        request = b"".join(pieces)  # type: ignore[arg-type]  # nothing that a client orders lies on disk
        return EnvelopeRequest(
            request_data=memoryview(request)[_SIZE_BYTES:],
            request_principal=encode_principal(self.requester.principal, by_token=self.requester.by_token),
            client_host_address=_address(self.requester.host),
        )

    async def opened(self, answer: EnvelopeResponse, version: int) -> Any:
        """The answer to the request that was in it, in this version.

        Raises:
            KafkaError: NOT_CONTROLLER: another one is to be asked. UNKNOWN_SERVER_ERROR: the controller refuses what
                this broker forwards, or answers what cannot be read; the log says why. Others: what the controller
                says of the request as a whole.
        """
        if answer.error_code:
            code = Code(answer.error_code)
            if code not in _BETWEEN_NODES:
                raise refusal(code, f"the controller answered {code.name}")
            logger.warning("the controller refuses what this broker forwards for its clients: %s", code.name)
            raise refusal(Code.UNKNOWN_SERVER_ERROR, "the controller refuses what this broker forwards: see its log")
        raw = memoryview(answer.response_data or b"")  # type: ignore[arg-type]  # as it was received
        read = partial(self._read, raw, version)
        try:
            return read() if len(raw) <= READ_AT_ONCE_BYTES_MAX else await self.executor.compute(read)
        except MalformedMessageError as error:
            logger.warning("the controller answered what cannot be read: %s", error)
            raise refusal(Code.UNKNOWN_SERVER_ERROR, "the controller answered what cannot be read") from None

    @property
    def _api_key(self) -> int:
        return layout_of(type(self.message)).api_key

    def _read(self, raw: memoryview, version: int) -> Any:
        correlation_id, _, position = decode_response_header(raw, self._api_key, version)
        if correlation_id != self.header.correlation_id:
            raise MalformedMessageError(f"correlation id {correlation_id} instead of {self.header.correlation_id}")
        return decode(self.response, raw, version, position)


def _address(host: str) -> bytes:
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        return UNKNOWN_ADDRESS
