"""How a client's connections are secured, as its options say. Loaded by clients that use one of them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from dataclasses import fields

from tidelog.base.certificates import Certificates
from tidelog.base.errors import ConfigError, NetworkError, SaslAuthenticationError, TidelogError
from tidelog.base.ports import Clock, Rng
from tidelog.client.options import CommonConfig
from tidelog.io.tls import TlsNetwork, client_context
from tidelog.net.logins import PlainLogin, ScramLogin
from tidelog.net.security import ConnectionSecurity, SaslLogin
from tidelog.security.sasl import OAuthBearerExchange, SaslExchange, check_credentials
from tidelog.security.scram import ScramSecret

_BY_CONTEXT = "make an ssl.SSLContext that says so, and give it as ssl_context"
_BOTH = "ssl_keystore_location names one PEM file with the certificate and the key, one after the other"
ADVICE: Mapping[str, str] = {
    "oauth_cb": "sasl_oauth_token_callback returns the token, and until when it is good",
    "sasl_jaas_config": "set sasl_username and sasl_password, or sasl_oauth_token_callback",
    "sasl_kerberos_service_name": "GSSAPI is not offered; sasl_mechanism says what is",
    "sasl_login_callback_handler_class": "sasl_oauth_token_callback returns the token",
    "sasl_mechanisms": "set sasl_mechanism",
    "sasl_oauth_token_provider": "sasl_oauth_token_callback is a function that returns the token",
    "sasl_plain_password": "set sasl_password, for PLAIN and for SCRAM",
    "sasl_plain_username": "set sasl_username, for PLAIN and for SCRAM",
    "ssl_ca_location": "ssl_truststore_location names a PEM file with the authorities",
    "ssl_ca_pem": "ssl_truststore_certificates is the text of the authorities' certificates",
    "ssl_cadata": "ssl_truststore_certificates is the text of the authorities' certificates",
    "ssl_cafile": "ssl_truststore_location names a PEM file with the authorities",
    "ssl_certfile": _BOTH,
    "ssl_certificate_location": _BOTH,
    "ssl_certificate_pem": "ssl_keystore_certificate_chain and ssl_keystore_key are the texts of both",
    "ssl_check_hostname": "ssl_endpoint_identification_algorithm is 'https', or '' to check no name",
    "ssl_cipher_suites": _BY_CONTEXT,
    "ssl_ciphers": _BY_CONTEXT,
    "ssl_crl_location": _BY_CONTEXT,
    "ssl_crlfile": _BY_CONTEXT,
    "ssl_enabled_protocols": _BY_CONTEXT,
    "ssl_key_location": _BOTH,
    "ssl_key_pem": "ssl_keystore_certificate_chain and ssl_keystore_key are the texts of both",
    "ssl_keyfile": _BOTH,
    "ssl_password": "set ssl_key_password",
    "ssl_protocol": _BY_CONTEXT,
}
"""Names that other clients have for it, or that Kafka has and these clients do not, to what to do."""

_REFRESHED_AFTER = 0.8  # of a token's time: before any session that ends with it is renewed


def check_security(owner: str, config: CommonConfig) -> None:
    """Raises ConfigError: the options contradict each other, or one is missing."""
    protocol, mechanism = config.security_protocol, config.sasl_mechanism
    is_tls, is_sasl = protocol.endswith("SSL"), protocol.startswith("SASL")
    where = f"{owner}(security_protocol={protocol!r})"
    set_ = {spec.name for spec in fields(config) if getattr(config, spec.name) != spec.default}
    ssl_options = sorted(name for name in set_ if name.startswith("ssl_"))
    sasl_options = sorted(name for name in set_ if name.startswith("sasl_"))
    if ssl_options and not is_tls:
        wanted = "SASL_SSL" if is_sasl or sasl_options else "SSL"
        raise ConfigError(f"{where}: {ssl_options[0]} has no effect without TLS: set security_protocol={wanted!r}")
    if sasl_options and not is_sasl:
        wanted = "SASL_SSL" if is_tls else "SASL_PLAINTEXT"
        raise ConfigError(f"{where}: {sasl_options[0]} has no effect without SASL: set security_protocol={wanted!r}")
    if config.ssl_context is not None and len(ssl_options) > 1:
        other = next(name for name in ssl_options if name != "ssl_context")
        raise ConfigError(f"{owner}({other}=…): ssl_context takes its place: give one of the two")
    for one, other in (
        ("ssl_truststore_location", "ssl_truststore_certificates"),
        ("ssl_keystore_location", "ssl_keystore_certificate_chain"),
        ("ssl_keystore_location", "ssl_keystore_key"),
    ):
        if one in set_ and other in set_:
            raise ConfigError(f"{owner}({one}=…, {other}=…): they are two ways to say the same: give one")
    for which in ("keystore", "truststore"):
        is_pem = getattr(config, f"ssl_{which}_type") == "PEM"
        if is_pem and f"ssl_{which}_password" in set_:
            raise ConfigError(
                f"{owner}(ssl_{which}_password=…): a PEM store has no password; that of the key is ssl_key_password. "
                f"Is it a store for ssl_{which}_type='PKCS12'?"
            )
        if not is_pem and f"ssl_{which}_location" not in set_:
            raise ConfigError(f"{owner}(ssl_{which}_type='PKCS12'): ssl_{which}_location is missing: a text is PEM")
    if ("ssl_keystore_key" in set_) != ("ssl_keystore_certificate_chain" in set_):
        raise ConfigError(f"{owner}: ssl_keystore_key and ssl_keystore_certificate_chain go together: give both")
    if "ssl_key_password" in set_ and not set_ & {"ssl_keystore_location", "ssl_keystore_key"}:
        raise ConfigError(f"{owner}(ssl_key_password=…): there is no key to decrypt: give ssl_keystore_location")
    if is_sasl:
        _check_sasl(owner, where, config, mechanism)


def _check_sasl(owner: str, where: str, config: CommonConfig, mechanism: str | None) -> None:
    if mechanism is None:
        raise ConfigError(f"{where}: sasl_mechanism is missing: how does the client say who it is?")
    needs_token = mechanism == "OAUTHBEARER"
    what = f"{owner}(sasl_mechanism={mechanism!r})"
    if config.sasl_tokenauth and not mechanism.startswith("SCRAM"):
        raise ConfigError(f"{what}: sasl_tokenauth has no effect: a delegation token is shown by SCRAM")
    callback, username, password = config.sasl_oauth_token_callback, config.sasl_username, config.sasl_password
    if needs_token:
        if callback is None:
            raise ConfigError(f"{what}: sasl_oauth_token_callback is missing: a function that returns the token")
        if username is not None or password is not None:
            raise ConfigError(f"{what}: sasl_username and sasl_password have no effect: the token says who it is")
        return
    if callback is not None:
        raise ConfigError(f"{what}: sasl_oauth_token_callback has no effect without sasl_mechanism='OAUTHBEARER'")
    if username is None or password is None:
        missing = "sasl_username" if username is None else "sasl_password"
        raise ConfigError(f"{what}: {missing} is missing")
    check_credentials(owner, username, password)


def connection_security(config: CommonConfig, clock: Clock, rng: Rng) -> ConnectionSecurity:
    """What the options say.

    Raises:
        ConfigError: a file cannot be used. Names its option.
    """
    tls = None
    if config.security_protocol.endswith("SSL"):
        tls = _tls(config)
    sasl = _login(config, clock, rng) if config.security_protocol.startswith("SASL") else None
    return ConnectionSecurity(tls, sasl, rng)


def _tls(config: CommonConfig) -> TlsNetwork:
    if config.ssl_context is not None:
        return TlsNetwork(config.ssl_context)
    certificates = Certificates(
        authorities_path=config.ssl_truststore_location,
        authorities=config.ssl_truststore_certificates,
        certificate_path=config.ssl_keystore_location,
        certificate_chain=config.ssl_keystore_certificate_chain,
        key=config.ssl_keystore_key,
        key_password=config.ssl_key_password,
        certificate_store_password=_store_password(config.ssl_keystore_type, config.ssl_keystore_password),
        authorities_store_password=_store_password(config.ssl_truststore_type, config.ssl_truststore_password),
        checks_host_name=config.ssl_endpoint_identification_algorithm == "https",
    )
    return TlsNetwork(client_context(certificates), certificates)


def _store_password(kind: str, password: str | None) -> str | None:
    return None if kind == "PEM" else password or ""


def _login(config: CommonConfig, clock: Clock, rng: Rng) -> SaslLogin:
    if config.sasl_mechanism == "OAUTHBEARER":
        return OAuthBearerLogin(config, clock)
    username, password = config.sasl_username, config.sasl_password
    assert username is not None
    assert password is not None
    if config.sasl_mechanism == "PLAIN":
        return PlainLogin(username, password)
    assert config.sasl_mechanism is not None
    return ScramLogin(ScramSecret(config.sasl_mechanism, username, password, by_token=config.sasl_tokenauth), rng)


class OAuthBearerLogin:
    """Whoever the token says. A token that says until when it is good serves all connections for most of that time.

    Kafka: `ExpiringCredentialRefreshingLogin`.
    """

    mechanism = "OAUTHBEARER"

    def __init__(self, config: CommonConfig, clock: Clock) -> None:
        assert config.sasl_oauth_token_callback is not None
        self._callback = config.sasl_oauth_token_callback
        self._clock = clock
        self._asking = asyncio.Lock()
        self._token: tuple[str, Mapping[str, str]] | None = None
        self._fresh_until_ms = 0.0

    async def start(self) -> SaslExchange:
        """Raises as `SaslLogin.start`: what the callback raised is the cause."""
        async with self._asking:
            if self._token is None or self._clock.wall_ms() >= self._fresh_until_ms:
                self._token = await self._ask()
            token, extensions = self._token
        return OAuthBearerExchange(token, extensions)

    async def _ask(self) -> tuple[str, Mapping[str, str]]:
        asked_ms = self._clock.wall_ms()
        try:
            if inspect.iscoroutinefunction(self._callback):
                answer = await self._callback()
            else:
                answer = await asyncio.to_thread(self._callback)
                if inspect.isawaitable(answer):
                    answer = await answer
        except TidelogError:
            raise
        except (OSError, TimeoutError) as error:
            told = f"sasl_oauth_token_callback has no token at the moment: {type(error).__name__}: {error}"
            raise NetworkError(told) from error
        except Exception as error:
            told = f"sasl_oauth_token_callback raised {type(error).__name__}: {error}"
            raise SaslAuthenticationError(told) from error
        parts = answer if isinstance(answer, tuple) else (answer,)
        token, expires, extensions = (*parts, None, None)[:3] if parts else (None, None, None)
        if (
            not isinstance(token, str)
            or not isinstance(expires, float | int | None)
            or not isinstance(extensions, Mapping | None)
            or len(parts) > 3
        ):
            kinds = ", ".join(type(part).__name__ for part in parts)
            raise SaslAuthenticationError(
                f"sasl_oauth_token_callback returned ({kinds}): a token is expected, or a tuple of"
                " it, until when it is good and extensions: text, seconds since 1970 or None, a dict"
            )
        self._fresh_until_ms = asked_ms
        if expires is not None:
            left_ms = expires * 1000 - asked_ms
            if left_ms <= 0:
                raise SaslAuthenticationError(
                    f"sasl_oauth_token_callback returned a token that was good until {-left_ms / 1000:.0f} s ago"
                    " (its second value is in seconds since 1970)"
                )
            self._fresh_until_ms = asked_ms + left_ms * _REFRESHED_AFTER
        return token, dict(extensions or {})
