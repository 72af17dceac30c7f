"""Whose a token of OAUTHBEARER is: a JSON Web Token (RFC 7519), by the keys of who signs them (RFC 7517).

Pure. Which algorithms count is said here, and not by the token: only such whose keys are made public. A token without a
signature, or with one that the public key itself could have made (HMAC), is refused. Keys that a token brings along
count for nothing. Kafka: `BrokerJwtValidator`.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import MissingExtraError, SaslAuthenticationError
from tidelog.security.sasl_server import Identity

if TYPE_CHECKING:
    from joserfc.jwk import Key

TOKEN_SIZE_BYTES_MAX = 32 * 1024
"""Longer ones are refused unread: one is checked in a step of the event loop."""

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA")
_KEY_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""Of a key, by the first letters of the algorithm."""


class UnknownKeyError(SaslAuthenticationError):
    """No key is there that could have signed the token: the keys may have changed."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token has to say.

    Attributes:
        issuer: its claim `iss`; None for any.
        audiences: one of them is in its claim `aud`; empty for any.
        clock_skew_seconds: by how much its clock may differ.
        sub_claim: which claim names the user.
        scope_claim: which one has the scopes.
    """

    issuer: str | None = None
    audiences: Sequence[str] = ()
    clock_skew_seconds: int = 0
    sub_claim: str = "sub"
    scope_claim: str = "scope"


class TokenKeys:
    """The keys of who signs tokens.

    Args:
        document: a JSON Web Key Set. Keys that are secret, or for anything but signatures, are left out.

    Raises:
        ValueError: it is none, or has no key that could be used.
        MissingExtraError: what checks signatures is not installed.
    """

    def __init__(self, document: bytes) -> None:
        self._keys = _keys_of(document)

    def identity(self, token: str, rules: TokenRules, wall_ms: int) -> Identity:
        """Whose a token is, and until when.

        Raises:
            SaslAuthenticationError: it is not good. The text says why, for the log of the node alone.
            UnknownKeyError: it was signed with another key.
        """
        if len(token) > TOKEN_SIZE_BYTES_MAX:
            raise _refused(f"it has {len(token)} bytes, and at most {TOKEN_SIZE_BYTES_MAX} are read")
        return _identity(self._claims(token), rules, wall_ms)

    def _claims(self, token: str) -> Mapping[str, Any]:
        from joserfc import jws
        from joserfc.errors import JoseError, SecurityWarning

        registry = jws.JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
        registry.max_header_length = TOKEN_SIZE_BYTES_MAX  # it may have a chain of certificates, which nobody reads
        try:
            signed = jws.extract_compact(token.encode(), registry=registry)
            header = signed.headers()
        except (JoseError, ValueError, TypeError, RecursionError):
            raise _refused("it is no signed JSON Web Token") from None
        algorithm = header.get("alg")
        if algorithm not in ALGORITHMS:
            raise _refused(f"its algorithm is {str(algorithm)[:32]!r}; allowed are {', '.join(ALGORITHMS)}")
        key = self._key(algorithm, header.get("kid"))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SecurityWarning)  # of EdDSA, whose name RFC 9864 has changed
                jws.deserialize_compact(token, key, registry=registry)
            claims = json.loads(signed.payload)
        except (JoseError, ValueError, TypeError, RecursionError) as error:
            raise _refused(f"its signature is not good: {type(error).__name__}") from None
        if not isinstance(claims, dict):
            raise _refused("its claims are no JSON object")
        return claims

    def _key(self, algorithm: str, kid: object) -> Key:
        fitting = [
            key
            for key in self._keys
            if key.key_type == _KEY_TYPES[algorithm[:2]]
            and key.get("alg", algorithm) == algorithm
            and (kid is None or key.get("kid") == kid)
        ]
        if len(fitting) != 1:
            named = "it names no key" if kid is None else f"it names the key {str(kid)[:64]!r}"
            raise UnknownKeyError(f"the token is refused: {named}, and {len(fitting)} keys fit")
        return fitting[0]


def require_joserfc() -> None:
    """Raises MissingExtraError: what checks signatures is not installed."""
    try:
        import joserfc.jwk
        import joserfc.jws  # noqa: F401
    except ImportError:
        raise MissingExtraError("OAUTHBEARER", "security") from None


def _keys_of(document: bytes) -> list[Key]:
    require_joserfc()
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key

    try:
        found = json.loads(document)
        listed = found["keys"]
        if not isinstance(listed, list):
            raise TypeError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("it is no JSON Web Key Set, which is a JSON object with a list `keys`") from None
    keys = []
    for one in listed:
        if not isinstance(one, dict) or one.get("kty") not in _KEY_TYPES.values() or one.get("use", "sig") != "sig":
            continue
        try:
            keys.append(import_key(one))
        except (JoseError, ValueError, TypeError, KeyError):
            continue  # of a kind that is not known here, beside others that are
    if not keys:
        raise ValueError("it has no public key for signatures (RSA, EC or OKP)")
    return keys


def _identity(claims: Mapping[str, Any], rules: TokenRules, wall_ms: int) -> Identity:
    skew_ms = rules.clock_skew_seconds * 1000
    expires_at_ms = _time_ms(claims, "exp")
    issued_at_ms = _time_ms(claims, "iat")
    not_before_ms = _time_ms(claims, "nbf") if "nbf" in claims else issued_at_ms
    if expires_at_ms + skew_ms <= wall_ms:
        raise _refused(f"it expired {(wall_ms - expires_at_ms) / 1000:.0f} s ago")
    if max(not_before_ms, issued_at_ms) - skew_ms > wall_ms:
        raise _refused(f"it is good in {(max(not_before_ms, issued_at_ms) - wall_ms) / 1000:.0f} s only")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise _refused(f"its issuer is {str(claims.get('iss'))[:128]!r}, and not {rules.issuer!r}")
    told = claims.get("aud", [])
    if rules.audiences and not set(rules.audiences) & set(_texts("aud", told)):
        raise _refused(f"it was made for {str(told)[:128]!r}, and not for {' or '.join(rules.audiences)}")
    if rules.scope_claim in claims:
        _texts(rules.scope_claim, claims[rules.scope_claim])
    name = claims.get(rules.sub_claim)
    if not isinstance(name, str) or not name.strip():
        raise _refused(f"its claim {rules.sub_claim} names no user")
    return Identity(name, expires_at_ms + skew_ms)


def _time_ms(claims: Mapping[str, Any], name: str) -> int:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise _refused(f"its claim {name} is no time in seconds")
    return int(value * 1000)


def _texts(name: str, value: object) -> list[str]:
    texts = value if isinstance(value, list) else [value]
    found = [text for text in texts if isinstance(text, str)]
    if len(found) != len(texts):
        raise _refused(f"its claim {name} is neither a text nor a list of texts")
    return found


def _refused(why: str) -> SaslAuthenticationError:
    return SaslAuthenticationError(f"the token is refused: {why}")
