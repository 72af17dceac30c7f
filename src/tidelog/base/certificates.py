"""Whom one side of a TLS connection trusts, and who it says that it is."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Certificates:
    """Whom one side trusts, and who it says that it is. Files in PEM or PKCS#12, or what would stand in them, in PEM.

    Attributes:
        authorities_path: a file of those who are trusted; None, like `authorities`, for those of the system.
        certificate_path: a file of the own certificate, those that lead to an authority, and its key.
        certificate_chain, key: the same in two parts.
        key_password: of the key, where that is encrypted.
        certificate_store_password, authorities_store_password: of files in PKCS#12; None for files in PEM. Empty for
            stores without a password.
        checks_host_name: of a client: whether the server's certificate has to be for the name that it is called by.
        client_authentication: of a server: whether clients show a certificate: `none`, `requested` or `required`.
        versions: of TLS that are spoken, as `TLSv1.3`.
        of_listener: for errors: a node's settings are spelled with dots, after this prefix; None: a client's options.
    """

    authorities_path: str | None = None
    authorities: str | None = None
    certificate_path: str | None = None
    certificate_chain: str | None = None
    key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    certificate_store_password: str | None = field(default=None, repr=False)
    authorities_store_password: str | None = field(default=None, repr=False)
    checks_host_name: bool = True
    client_authentication: str = "none"
    versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    of_listener: str | None = None

    def spelled(self, option: str) -> str:
        """How an option is spelled where it was set, as `ssl_keystore_location`."""
        return option if self.of_listener is None else f"{self.of_listener}{option.replace('_', '.')}"

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that are read."""
        return tuple(path for path in (self.authorities_path, self.certificate_path) if path is not None)
