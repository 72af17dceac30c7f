"""A principal in bytes: how the nodes of a cluster tell each other who sent a request (KIP-590).

```
 version │ type, name, whether a delegation token authenticated it
  int16
```

Kafka: `DefaultKafkaPrincipalBuilder`, whose bytes these are.
"""

from __future__ import annotations

from tidelog.base.errors import Code, CorruptLogError, refusal
from tidelog.base.principals import Principal
from tidelog.journal.versioned_records import decode_value, encode_value
from tidelog.wire.schema import boolean, field, message, string

VERSION = 0
SIZE_BYTES_MAX = 64 << 10
"""Two strings of Kafka's at most."""


@message(api_key=0, versions="0", flexible="0+")
class DefaultPrincipalData:
    """Who authenticated to a broker."""

    type: str = field(string, doc="The principal's type, as User.")
    name: str = field(string, doc="Its name, as alice.")
    token_authenticated: bool = field(boolean, doc="Whether a delegation token authenticated it (KIP-48).")


def encode_principal(principal: Principal, *, by_token: bool) -> bytes:
    """A principal as any node of the cluster reads it, those of Apache Kafka included."""
    data = DefaultPrincipalData(type=principal.type, name=principal.name, token_authenticated=by_token)
    return encode_value(data, VERSION)


def decode_principal(raw: bytes | None) -> tuple[Principal, bool]:
    """The principal, and whether a delegation token authenticated it.

    Raises:
        KafkaError: PRINCIPAL_DESERIALIZATION_FAILURE: the bytes are none that `encode_principal` of this release
            writes; the sender has another builder of principals, or is newer.
    """
    if raw is None:
        raise refusal(Code.PRINCIPAL_DESERIALIZATION_FAILURE, "it names no principal")
    if len(raw) > SIZE_BYTES_MAX:
        raise refusal(
            Code.PRINCIPAL_DESERIALIZATION_FAILURE,
            f"its principal has {len(raw)} bytes; {SIZE_BYTES_MAX} are the most that are read",
        )
    try:
        data = decode_value(DefaultPrincipalData, raw)
    except CorruptLogError as error:
        raise refusal(Code.PRINCIPAL_DESERIALIZATION_FAILURE, f"its principal cannot be read: {error}") from None
    return Principal(data.type, data.name), data.token_authenticated
