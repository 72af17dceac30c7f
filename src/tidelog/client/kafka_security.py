"""`kafka.security.*`, `kafka.ssl.*` and `kafka.sasl.*` for our clients. Pure; no error shows a secret.

Kafka: `SslConfigs`, `SaslConfigs`. Nothing here is ignored that would make a connection less secure than it says.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

from tidelog.base.errors import ConfigError
from tidelog.security.jaas import LoginModule, parse_jaas

_TO_PKCS12 = (
    "convert a JKS store by `keytool -importkeystore -srckeystore store.jks -destkeystore store.p12 -deststoretype "
    "PKCS12`"
)
_TLS_TEXTS = (
    "ssl.truststore.location",
    "ssl.truststore.certificates",
    "ssl.keystore.location",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.key.password",
)
_STORE_TYPES = ("ssl.truststore.type", "ssl.keystore.type")
_STORE_PASSWORDS = ("ssl.truststore.password", "ssl.keystore.password")
_IDENTIFICATION = "ssl.endpoint.identification.algorithm"
_ONLY_VALUES: Mapping[str, tuple[str, ...]] = {
    "security.providers": ("",),
    "ssl.cipher.suites": ("",),
    "ssl.enabled.protocols": ("tlsv1.2,tlsv1.3", "tlsv1.3,tlsv1.2"),
    "ssl.engine.factory.class": ("",),
    "ssl.keymanager.algorithm": ("sunx509", "pkix"),
    "ssl.protocol": ("tls", "tlsv1.2", "tlsv1.3"),
    "ssl.provider": ("",),
    "ssl.secure.random.implementation": ("",),
    "ssl.trustmanager.algorithm": ("pkix",),
}
_OAUTH = (
    "sasl.login.callback.handler.class",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.header.urlencode",
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.token.endpoint.url",
)
_UNSUPPORTED_SASL = (
    "sasl.client.callback.handler.class",
    "sasl.login.class",
    "sasl.oauthbearer.assertion.algorithm",
    "sasl.oauthbearer.assertion.claim.aud",
    "sasl.oauthbearer.assertion.claim.exp.seconds",
    "sasl.oauthbearer.assertion.claim.iss",
    "sasl.oauthbearer.assertion.claim.jti.include",
    "sasl.oauthbearer.assertion.claim.nbf.seconds",
    "sasl.oauthbearer.assertion.claim.sub",
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.private.key.file",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.template.file",
)
_OF_THE_BROKER = (
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.jwt.validator.class",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.sub.claim.name",
)
_TIMING = (
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.service.name",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.login.retry.backoff.max.ms",
    "sasl.login.retry.backoff.ms",
)
"""Of Kerberos, which is refused by its mechanism, and of when Kafka's client renews tokens."""
WITHOUT_EFFECT = {
    key: "Kerberos is not supported" if ".kerberos." in key else "the client renews tokens in its own time"
    for key in _TIMING
} | dict.fromkeys(_OF_THE_BROKER, "the broker judges tokens")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_HANDLER = "OAuthBearerLoginCallbackHandler"
_RETRIEVERS = ("", "DefaultJwtRetriever", "FileJwtRetriever", "ClientCredentialsJwtRetriever")
_UNSECURED_HANDLER = "OAuthBearerUnsecuredLoginCallbackHandler"

USED = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.jaas.config",
        _IDENTIFICATION,
        *_TLS_TEXTS,
        *_STORE_TYPES,
        *_OAUTH,
    }
)
SECURITY_KEYS = USED.union(_STORE_PASSWORDS, _ONLY_VALUES, _UNSUPPORTED_SASL, WITHOUT_EFFECT)


def security_settings(given: Mapping[str, str]) -> dict[str, object]:
    """Arguments for our clients. `sasl_oauth`, which is none of theirs, is what `oauth.token_source` takes.

    Args:
        given: keys of `SECURITY_KEYS`, to text.

    Raises:
        ConfigError: a value has no counterpart, is missing, or contradicts another. Names the key, after a mark in the
            place of its prefix: ¶ of the first in a sentence, § of the others.
    """
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise ConfigError(f"¶security.protocol={protocol}: one of {', '.join(_PROTOCOLS)} is expected")
    is_tls, is_sasl = protocol.endswith("SSL"), protocol.startswith("SASL")
    for key in given:
        if (key in _TLS_TEXTS or key in _STORE_PASSWORDS) and not is_tls:
            wanted = "SASL_SSL" if is_sasl or "sasl.mechanism" in given else "SSL"
            raise ConfigError(f"¶{key} has no effect without TLS: set §security.protocol={wanted}")
        if key in {"sasl.mechanism", "sasl.jaas.config"} and not is_sasl:
            wanted = "SASL_SSL" if is_tls else "SASL_SSL or SASL_PLAINTEXT"
            raise ConfigError(f"¶{key} has no effect without SASL: set §security.protocol={wanted}")
    settings: dict[str, object] = {} if protocol == "PLAINTEXT" else {"security_protocol": protocol}
    if settings:
        _check_only_values(given)
    if is_tls:
        settings |= _tls(given)
    if is_sasl:
        settings |= _sasl(given)
    return settings


def idle_keys(given: Mapping[str, str]) -> dict[str, str]:
    """The keys that change nothing, with the reason."""
    protocol, mechanism = given.get("security.protocol", "PLAINTEXT").upper(), given.get("sasl.mechanism", "").upper()
    idle = {**WITHOUT_EFFECT}
    idle |= dict.fromkeys(_ONLY_VALUES, "it is so anyway")
    if not protocol.endswith("SSL"):
        idle |= dict.fromkeys((*_STORE_TYPES, _IDENTIFICATION), "there is no TLS")
    if mechanism != "OAUTHBEARER":
        idle |= dict.fromkeys(_OAUTH, "there is no token")
    return {key: idle[key] for key in given if key in idle}


def accepted_values() -> dict[str, str]:
    """The keys that are refused unless they have one of these values."""
    accepted = {key: " or ".join(f"`{one}`" for one in values if one) for key, values in _ONLY_VALUES.items()}
    accepted |= dict.fromkeys(_UNSUPPORTED_SASL, "")
    return {key: values or "an empty value" for key, values in accepted.items()}


def _check_only_values(given: Mapping[str, str]) -> None:
    for key, allowed in _ONLY_VALUES.items():
        if key in given and given[key].lower().replace(" ", "") not in allowed:
            only = " or ".join(value for value in allowed if value) or "nothing"
            raise ConfigError(
                f"¶{key} is not supported: connections use TLS 1.2 or 1.3 as Python's ssl does by default; "
                f"only {only} is accepted"
            )


def _tls(given: Mapping[str, str]) -> dict[str, object]:
    for which in ("truststore", "keystore"):
        _check_store(given, which)
    for one, other in (
        ("ssl.truststore.location", "ssl.truststore.certificates"),
        ("ssl.keystore.location", "ssl.keystore.certificate.chain"),
        ("ssl.keystore.location", "ssl.keystore.key"),
    ):
        if one in given and other in given:
            raise ConfigError(f"¶{one} and §{other} are two ways to say the same: give one")
    chain, key = "ssl.keystore.certificate.chain", "ssl.keystore.key"
    if (chain in given) != (key in given):
        raise ConfigError(f"¶{chain} and §{key} go together: give both")
    if "ssl.key.password" in given and key not in given and "ssl.keystore.location" not in given:
        raise ConfigError("¶ssl.key.password: there is no key to decrypt: give §ssl.keystore.location")
    texts = (*_TLS_TEXTS, *_STORE_PASSWORDS)
    settings: dict[str, object] = {key.replace(".", "_"): given[key] for key in texts if given.get(key)}
    types = {key: given.get(key, "PEM").upper() for key in _STORE_TYPES}
    settings |= {key.replace(".", "_"): kind for key, kind in types.items() if kind != "PEM"}
    if _IDENTIFICATION in given:
        algorithm = given[_IDENTIFICATION].lower()
        if algorithm not in {"https", ""}:
            raise ConfigError(f"¶{_IDENTIFICATION}={algorithm}: https is expected, or nothing")
        settings[_IDENTIFICATION.replace(".", "_")] = algorithm
    return settings


def _check_store(given: Mapping[str, str], which: str) -> None:
    location, kind = given.get(f"ssl.{which}.location"), given.get(f"ssl.{which}.type")
    has_text = f"ssl.{which}.certificates" in given or f"ssl.{which}.certificate.chain" in given
    if location is None and not has_text:
        return
    if kind is None and location is not None and not location.lower().endswith((".pem", ".crt", ".cer")):
        raise ConfigError(
            f"¶ssl.{which}.location={location}: JKS, which is the default of §ssl.{which}.type, is "
            f"not supported: set it to PEM or PKCS12 if that is what the file holds, or {_TO_PKCS12}"
        )
    if kind is not None and kind.upper() not in ("PEM", "PKCS12"):
        raise ConfigError(f"¶ssl.{which}.type={kind} is not supported, PEM and PKCS12 are: {_TO_PKCS12}")
    if kind is not None and kind.upper() == "PKCS12" and location is None:
        raise ConfigError(f"¶ssl.{which}.type={kind}: §ssl.{which}.location is missing: a text is PEM")
    if given.get(f"ssl.{which}.password") and (kind is None or kind.upper() == "PEM"):
        raise ConfigError(
            f"¶ssl.{which}.password: a PEM store has no password, as in Kafka; §ssl.key.password is that of the key"
        )


def _sasl(given: Mapping[str, str]) -> dict[str, object]:
    mechanism = given.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in MECHANISMS:
        reason = "Kerberos is not supported" if mechanism == "GSSAPI" else "it is unknown"
        default = "" if "sasl.mechanism" in given else ", the default of Kafka"
        raise ConfigError(f"¶sasl.mechanism={mechanism}{default}: {reason}; one of {', '.join(MECHANISMS)} is expected")
    for key in _UNSUPPORTED_SASL:
        if given.get(key):
            why = "a client secret is" if ".assertion." in key else "Java classes cannot be loaded here"
            raise ConfigError(f"¶{key} is not supported: {why}")
    module = _module(given)
    if mechanism == "OAUTHBEARER":
        return {"sasl_mechanism": mechanism, "sasl_oauth": _oauth(given, module)}
    if given.get("sasl.login.callback.handler.class"):
        raise ConfigError("¶sasl.login.callback.handler.class is not supported: Java classes cannot be loaded here")
    if module.name not in {"PlainLoginModule", "ScramLoginModule"}:
        raise ConfigError(
            f"¶sasl.jaas.config: {mechanism} is for PlainLoginModule or ScramLoginModule, not {module.name}"
        )
    for name in ("username", "password"):
        if name not in module.options:
            raise ConfigError(f"¶sasl.jaas.config: {name} is missing in it")
    by_token = module.options.get("tokenauth", "").lower() == "true" and module.name == "ScramLoginModule"
    return {
        "sasl_mechanism": mechanism,
        "sasl_username": module.options["username"],
        "sasl_password": module.options["password"],
        **({"sasl_tokenauth": True} if by_token else {}),
    }


def _module(given: Mapping[str, str]) -> LoginModule:
    if "sasl.jaas.config" not in given:
        raise ConfigError(
            "¶sasl.jaas.config is missing: a JAAS file of the JVM is not seen here. It is of the form "
            '…PlainLoginModule required username="…" password="…";'
        )
    try:
        return parse_jaas(given["sasl.jaas.config"])
    except ValueError as error:
        raise ConfigError(f"¶sasl.jaas.config: {error}") from None


def _oauth(given: Mapping[str, str], module: LoginModule) -> dict[str, object]:
    """What `oauth.token_source` makes tokens of."""
    if module.name != "OAuthBearerLoginModule":
        raise ConfigError(f"¶sasl.jaas.config: OAUTHBEARER is for OAuthBearerLoginModule, not {module.name}")
    extensions = {
        name.removeprefix("extension_"): value
        for name, value in module.options.items()
        if name.startswith("extension_")
    }
    handler = given.get("sasl.login.callback.handler.class", _UNSECURED_HANDLER).rsplit(".", maxsplit=1)[-1]
    if handler == _UNSECURED_HANDLER:
        claims = {
            name.removeprefix("unsecuredLoginStringClaim_"): value
            for name, value in module.options.items()
            if name.startswith("unsecuredLoginStringClaim_")
        }
        if "sub" not in claims:
            raise ConfigError(
                "¶sasl.jaas.config: unsecuredLoginStringClaim_sub is missing in it; for tokens of a server "
                f"set §sasl.login.callback.handler.class to …{_HANDLER}, and §sasl.oauthbearer.token."
                "endpoint.url"
            )
        return {"claims": claims, "extensions": extensions}
    if handler != _HANDLER:
        raise ConfigError(
            "¶sasl.login.callback.handler.class is not supported: Java classes cannot be loaded here; "
            f"what …{_HANDLER} does is"
        )
    if given.get("sasl.oauthbearer.jwt.retriever.class", "").rsplit(".", maxsplit=1)[-1] not in _RETRIEVERS:
        raise ConfigError(
            "¶sasl.oauthbearer.jwt.retriever.class is not supported: Java classes cannot be loaded here; "
            f"what …{_RETRIEVERS[-1]} does is"
        )
    url = given.get("sasl.oauthbearer.token.endpoint.url", "")
    if url.startswith("file:///"):
        return {"file": unquote(url.removeprefix("file://")), "extensions": extensions}
    if not url.startswith(("https://", "http://")):
        raise ConfigError("¶sasl.oauthbearer.token.endpoint.url is missing, or no http(s) address, or file:///…")
    credentials = "sasl.oauthbearer.client.credentials.client"
    client_id = given.get(f"{credentials}.id") or module.options.get("clientId")
    secret = given.get(f"{credentials}.secret") or module.options.get("clientSecret")
    if not client_id or not secret:
        raise ConfigError("¶sasl.jaas.config: clientId and clientSecret are missing in it")
    return {
        "url": url,
        "client_id": client_id,
        "client_secret": secret,
        "scope": given.get("sasl.oauthbearer.scope") or module.options.get("scope"),
        "is_encoded": given.get("sasl.oauthbearer.header.urlencode", "").lower() == "true",
        "extensions": extensions,
    }
