"""Tokens for OAUTHBEARER, as Kafka's two login handlers get them. What asks for them is plain data, so Spark can
send it to its tasks; the function that returns a token is made where a client is.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote_plus, urlencode, urlsplit
from urllib.request import Request, urlopen

from tidelog.base.errors import SaslAuthenticationError

ANSWER_SECONDS_MAX = 10.0
LIFETIME_SECONDS = 3_600
TOKEN_SIZE_MAX = 1024 * 1024
Token = tuple[str, float | None, Mapping[str, str]]


def token_source(asked: Mapping[str, Any]) -> Callable[[], Token]:
    """A function that returns a token, until when it is good, and its extensions.

    Args:
        asked: what `security_settings` returned as `sasl_oauth`: `claims` of a token without a signature, which only
            test brokers accept; a `file` with a token, which is read each time; or the `url` of a token server with
        `client_id`, `client_secret` and `scope`.
    """

    def unsecured() -> Token:
        now = int(time.time())
        claims = {"iat": now, "exp": now + LIFETIME_SECONDS, **asked["claims"]}
        parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in ({"alg": "none"}, claims)]
        return b".".join([*parts, b""]).decode(), now + LIFETIME_SECONDS, asked["extensions"]

    if "claims" in asked:
        return unsecured
    return (lambda: _of_file(asked)) if "file" in asked else (lambda: _by_credentials(asked))


def _of_file(asked: Mapping[str, Any]) -> Token:
    """Until when it is good, the token itself says. An `OSError` is retried by the client: it may come yet."""
    with open(asked["file"], encoding="ascii", errors="replace") as file:
        token = file.read(TOKEN_SIZE_MAX).strip()
    try:
        claims = token.split(".")[1]
        expires = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"]
    except (IndexError, ValueError, KeyError, TypeError):
        raise SaslAuthenticationError(f"{asked['file']} holds no JSON Web Token that says when it expires") from None
    return token, float(expires), asked["extensions"]


def _by_credentials(asked: Mapping[str, Any]) -> Token:
    """RFC 6749, 4.4. An `OSError`, as for a server that is down, is retried by the client."""
    form = {"grant_type": "client_credentials"} | ({"scope": asked["scope"]} if asked["scope"] else {})
    # RFC 6749, 2.3.1 has both encoded before they are put together; Kafka's client does so if it is told to.
    parts = (asked["client_id"], asked["client_secret"])
    pair = ":".join(map(quote_plus, parts) if asked["is_encoded"] else parts)
    authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
    host = urlsplit(asked["url"]).hostname  # the rest of an address may be secret
    headers = {"Authorization": authorization, "Accept": "application/json"}
    request = Request(asked["url"], urlencode(form).encode(), headers)  # noqa: S310 - http(s) was checked
    try:
        with urlopen(request, timeout=ANSWER_SECONDS_MAX) as answer:  # noqa: S310
            content = answer.read(1024 * 1024)
    except HTTPError as error:
        if error.code >= 500:
            raise
        raise SaslAuthenticationError(
            f"{host} gave no token: HTTP {error.code} {error.reason}; check clientId and clientSecret"
        ) from None
    try:
        found = json.loads(content)
        token, lifetime = found["access_token"], found.get("expires_in")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise SaslAuthenticationError(f"{host} answered with no access_token in JSON") from None
    return token, None if lifetime is None else time.time() + float(lifetime), asked["extensions"]
