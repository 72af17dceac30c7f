"""The settings of listeners with TLS. Each may be set for one listener alone, as `listener.name.NAME.ssl.…`.

A node asks other nodes with those of the listener that it asks them on: its certificate there is that of a client too.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.base.certificates import Certificates
from tidelog.base.errors import ConfigError
from tidelog.metadata.configs.key import LIST, PASSWORD, STRING, ConfigKey, keys_in

PEM = "PEM"
PKCS12 = "PKCS12"
_ANEW = "Its file is looked at every two seconds, and read anew when it has changed."

SSL_KEYSTORE_TYPE = ConfigKey(
    "ssl.keystore.type",
    STRING,
    "JKS",
    "The format of ssl.keystore.location. PEM and PKCS12 are served; the default is Kafka's.",
    choices=("JKS", PKCS12, PEM),
    is_dynamic=True,
)
SSL_KEYSTORE_LOCATION = ConfigKey(
    "ssl.keystore.location",
    STRING.or_none,
    None,
    f"A file with the node's private key and its certificate, and those that lead to the authority. {_ANEW}",
    is_dynamic=True,
)
SSL_KEYSTORE_PASSWORD = ConfigKey(
    "ssl.keystore.password",
    PASSWORD.or_none,
    None,
    "The password of ssl.keystore.location in PKCS12, and of the key in it.",
    is_dynamic=True,
)
SSL_KEYSTORE_KEY = ConfigKey(
    "ssl.keystore.key",
    PASSWORD.or_none,
    None,
    "The node's private key in PEM, in the place of ssl.keystore.location.",
    is_dynamic=True,
)
SSL_KEYSTORE_CERTIFICATE_CHAIN = ConfigKey(
    "ssl.keystore.certificate.chain",
    PASSWORD.or_none,
    None,
    "The node's certificate in PEM, and those that lead to the authority, in the place of ssl.keystore.location.",
    is_dynamic=True,
)
SSL_KEY_PASSWORD = ConfigKey(
    "ssl.key.password", PASSWORD.or_none, None, "The password of the private key, if it has one.", is_dynamic=True
)
SSL_TRUSTSTORE_TYPE = ConfigKey(
    "ssl.truststore.type",
    STRING,
    "JKS",
    "The format of ssl.truststore.location. PEM and PKCS12 are served; the default is Kafka's.",
    choices=("JKS", PKCS12, PEM),
    is_dynamic=True,
)
SSL_TRUSTSTORE_LOCATION = ConfigKey(
    "ssl.truststore.location",
    STRING.or_none,
    None,
    f"A file with the authorities that are trusted; those of the system unless it is set. {_ANEW}",
    is_dynamic=True,
)
SSL_TRUSTSTORE_PASSWORD = ConfigKey(
    "ssl.truststore.password",
    PASSWORD.or_none,
    None,
    "The password of ssl.truststore.location in PKCS12, if it has one.",
    is_dynamic=True,
)
SSL_TRUSTSTORE_CERTIFICATES = ConfigKey(
    "ssl.truststore.certificates",
    PASSWORD.or_none,
    None,
    "The authorities that are trusted, in PEM, in the place of ssl.truststore.location.",
    is_dynamic=True,
)
SSL_CLIENT_AUTH = ConfigKey(
    "ssl.client.auth",
    STRING,
    "none",
    "Whether who connects has to show a certificate of a trusted authority: none, requested (one that is shown has to "
    "be good) or required.",
    choices=("none", "requested", "required"),
    is_dynamic=True,
)
SSL_ENABLED_PROTOCOLS = ConfigKey(
    "ssl.enabled.protocols",
    LIST,
    "TLSv1.2,TLSv1.3",
    "The versions of TLS that are spoken.",
    choices=("TLSv1.2", "TLSv1.3"),
    is_dynamic=True,
)
SSL_ENDPOINT_IDENTIFICATION_ALGORITHM = ConfigKey(
    "ssl.endpoint.identification.algorithm",
    STRING,
    "https",
    "https: another node's certificate has to be for the host that it is asked on. Empty: for any.",
    choices=("https", ""),
    is_dynamic=True,
)
SSL_PRINCIPAL_MAPPING_RULES = ConfigKey(
    "ssl.principal.mapping.rules",
    STRING,
    "DEFAULT",
    "Who shows a certificate: the first rule that matches its distinguished name, of DEFAULT (the name itself) and "
    "RULE:PATTERN/REPLACEMENT/ with L or U behind it for small or capital letters.",
)

TLS_CONFIGS = keys_in(globals())
TLS_NAMES = frozenset(key.name for key in TLS_CONFIGS)


def certificates_of(texts: Mapping[str, str], listener_name: str) -> Certificates:
    """What is set for a listener, and behind it for all.

    Args:
        texts: what is in force at a node, by Kafka's keys.

    Raises:
        ConfigError: two settings contradict each other, or a format is not served.
    """
    prefix = f"listener.name.{listener_name.lower()}."

    def value(key: ConfigKey[str] | ConfigKey[str | None]) -> str | None:
        text = texts.get(prefix + key.name, texts.get(key.name))
        return key.fallback if text is None else key.parse(text)

    store_passwords: list[str | None] = []
    for kind, location, password in (
        (SSL_KEYSTORE_TYPE, SSL_KEYSTORE_LOCATION, SSL_KEYSTORE_PASSWORD),
        (SSL_TRUSTSTORE_TYPE, SSL_TRUSTSTORE_LOCATION, SSL_TRUSTSTORE_PASSWORD),
    ):
        is_store = value(location) is not None and value(kind) == PKCS12
        store_passwords.append((value(password) or "") if is_store else None)
        if value(location) is not None and value(kind) not in (PEM, PKCS12):
            raise ConfigError(
                f"{prefix}{kind.name}={value(kind)}: PEM and PKCS12 are read. Set it to what the file is. A JKS store "
                "becomes PKCS#12 by "
                "`keytool -importkeystore -srckeystore store.jks -destkeystore store.p12 -deststoretype PKCS12`"
            )
        if value(password) is not None and not is_store:
            raise ConfigError(
                f"{prefix}{password.name}: a PEM store has no password; that of the key is {SSL_KEY_PASSWORD.name}. "
                f"Set {kind.name}={PKCS12} if {location.name} is such a file"
            )
    for one, other in (
        (SSL_KEYSTORE_LOCATION, SSL_KEYSTORE_CERTIFICATE_CHAIN),
        (SSL_TRUSTSTORE_LOCATION, SSL_TRUSTSTORE_CERTIFICATES),
    ):
        if value(one) is not None and value(other) is not None:
            raise ConfigError(f"{prefix}{one.name} and {other.name} are two ways to say the same: set one of them")
    if (value(SSL_KEYSTORE_KEY) is None) != (value(SSL_KEYSTORE_CERTIFICATE_CHAIN) is None):
        raise ConfigError(f"{prefix}{SSL_KEYSTORE_KEY.name} and {SSL_KEYSTORE_CERTIFICATE_CHAIN.name} go together")
    versions = texts.get(prefix + SSL_ENABLED_PROTOCOLS.name, texts.get(SSL_ENABLED_PROTOCOLS.name))
    return Certificates(
        authorities_path=value(SSL_TRUSTSTORE_LOCATION),
        authorities=value(SSL_TRUSTSTORE_CERTIFICATES),
        certificate_path=value(SSL_KEYSTORE_LOCATION),
        certificate_chain=value(SSL_KEYSTORE_CERTIFICATE_CHAIN),
        key=value(SSL_KEYSTORE_KEY),
        key_password=value(SSL_KEY_PASSWORD),
        certificate_store_password=store_passwords[0],
        authorities_store_password=store_passwords[1],
        checks_host_name=value(SSL_ENDPOINT_IDENTIFICATION_ALGORITHM) == "https",
        client_authentication=value(SSL_CLIENT_AUTH) or "none",
        versions=SSL_ENABLED_PROTOCOLS.fallback if versions is None else SSL_ENABLED_PROTOCOLS.parse(versions),
        of_listener=prefix,
    )
