"""A client of a schema registry that speaks Confluent's API: Confluent's own, Karapace, Apicurio, Redpanda's.

What was found is kept for good: an id never means another schema.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlsplit

from tidelog.base.errors import ConfigError
from tidelog.schemas.bounded_http import HttpAnswer, exchange
from tidelog.schemas.errors import SchemaRegistryError

if TYPE_CHECKING:
    from ssl import SSLContext

AVRO, JSON_SCHEMA, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
ID_MAX = 2**31 - 1
ANSWER_BYTES_MAX = 16 * 1024 * 1024
_FORMAT = ("", "?format=serialized")
_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


class Reference(NamedTuple):
    """A schema that another one uses."""

    name: str
    """As the other one calls it."""
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as the registry has it."""

    text: str
    kind: str
    """`AVRO`, `JSON` or `PROTOBUF`."""
    references: tuple[Reference, ...] = ()


class SchemaRegistry:
    """Asks a registry, and remembers the answers. Thread-safe.

    Args:
        urls: `http://host:port` or `https://…`, several as a list: asked in turn until one answers.
        auth: a user's name and password.
        ssl_context: for `https`; by default the system's authorities are trusted.
        timeout_ms: how long one of them may take for a request, from the connection to the last byte of the answer.

    Raises:
        ConfigError: a URL is none.
    """

    def __init__(
        self,
        urls: str | Iterable[str],
        *,
        auth: tuple[str, str] | None = None,
        ssl_context: SSLContext | None = None,
        timeout_ms: int = 10_000,
    ) -> None:
        self._urls = [_checked(url) for url in ([urls] if isinstance(urls, str) else urls)]
        if not self._urls:
            raise ConfigError(
                "SchemaRegistry: there is no URL; name one, as in SchemaRegistry('http://127.0.0.1:8081')"
            )
        self._headers = {"Accept": _MEDIA_TYPE, "Content-Type": _MEDIA_TYPE}
        if auth is not None:
            self._headers["Authorization"] = "Basic " + b64encode(":".join(auth).encode()).decode()
        self._ssl_context = ssl_context
        self._timeout_ms = timeout_ms
        self._by_id: dict[tuple[int, bool], RegisteredSchema] = {}  # and whether in the serialized form
        self._ids: dict[tuple[str, RegisteredSchema], int] = {}

    def __repr__(self) -> str:
        return f"SchemaRegistry({', '.join(self._urls)})"

    def schema(self, schema_id: int, *, serialized: bool = False) -> RegisteredSchema:
        """The schema of an id. Raises SchemaRegistryError.

        Args:
            schema_id: as it stands before a value.
            serialized: have one of Protobuf as a FileDescriptorProto in base64, if the registry can do that.
        """
        key = schema_id, serialized
        found = self._by_id.get(key)
        if found is None:
            answer = self._ask("GET", f"/schemas/ids/{schema_id}{_FORMAT[serialized]}")
            found = self._by_id[key] = _schema_of(answer)
        return found

    def register(self, subject: str, schema: RegisteredSchema) -> int:
        """The id of a schema, which is registered if it was not.

        Raises:
            SchemaRegistryError: with status 409, it is incompatible with those that were registered before.
        """
        return self._id_of(subject, schema, f"/subjects/{quote(subject, safe='')}/versions")

    def look_up(self, subject: str, schema: RegisteredSchema) -> int:
        """The id of a schema that is registered. Raises SchemaRegistryError: 40403, it is not."""
        return self._id_of(subject, schema, f"/subjects/{quote(subject, safe='')}")

    def version(
        self, subject: str, version: int | str = "latest", *, serialized: bool = False
    ) -> tuple[int, RegisteredSchema]:
        """The id and the schema of a subject's version. Each call asks. Raises SchemaRegistryError.

        Args:
            subject: whose.
            version: its number, or "latest".
            serialized: as for `schema`.
        """
        path = f"/subjects/{quote(subject, safe='')}/versions/{version}{_FORMAT[serialized]}"
        answer = self._ask("GET", path)
        found = _schema_of(answer)
        schema_id = _id_in(answer)
        self._by_id[schema_id, serialized] = found
        return schema_id, found

    def version_of(self, subject: str, schema: RegisteredSchema) -> int:
        """Which version of a subject a schema is. Each call asks. Raises SchemaRegistryError: 40403, it is none."""
        answer = self._ask("POST", f"/subjects/{quote(subject, safe='')}", _described(schema))
        try:
            return _whole(answer["version"])
        except (KeyError, TypeError, ValueError):
            raise SchemaRegistryError(f"the registry answered {answer!r}, which has no 'version'") from None

    def subjects(self) -> list[str]:
        """The names of all subjects. Raises SchemaRegistryError."""
        answer = self._ask("GET", "/subjects")
        if not isinstance(answer, list):
            raise SchemaRegistryError(f"{self!r} answered {answer!r}, where a list of subjects was expected")
        return [str(subject) for subject in answer]

    def _id_of(self, subject: str, schema: RegisteredSchema, path: str) -> int:
        key = subject, schema
        found = self._ids.get(key)
        if found is None:
            found = self._ids[key] = _id_in(self._ask("POST", path, _described(schema)))
            if schema.kind != PROTOBUF:  # of which the registry has two forms
                self._by_id.setdefault((found, False), schema)
        return found

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        """The answer, from the first registry that gives one."""
        data = None if body is None else json.dumps(body).encode()
        unreached: list[str] = []
        for base in self._urls:
            url = base + path
            try:
                answer = exchange(
                    method,
                    url,
                    self._headers,
                    data,
                    timeout_s=self._timeout_ms / 1000,
                    size_bytes_max=ANSWER_BYTES_MAX,
                    ssl_context=self._ssl_context,
                )
            except TimeoutError:
                unreached.append(f"{url}: there was no whole answer within {self._timeout_ms} ms")
                continue
            except (OSError, HTTPException) as error:
                unreached.append(f"{base}: {error}")
                continue
            if answer.status >= 300:
                refused = _refusal(url, answer)
                if answer.status < 500:
                    raise refused
                unreached.append(str(refused))
                continue
            if len(answer.body) > ANSWER_BYTES_MAX:
                raise SchemaRegistryError(
                    f"{url}: the answer has more than {ANSWER_BYTES_MAX} bytes", status=answer.status
                )
            try:
                return json.loads(answer.body)
            except (ValueError, RecursionError):
                raise SchemaRegistryError(
                    f"{url}: the answer is not JSON: {answer.body[:80]!r}", status=answer.status
                ) from None
        raise SchemaRegistryError(f"no schema registry answered: {'; '.join(unreached)}")


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or True)
    except ValueError:
        is_url = False
    if is_url and "@" in parts.netloc:
        raise ConfigError("SchemaRegistry: the URL has a user in it: give auth=(name, password) instead")
    if not is_url:
        raise ConfigError(f"SchemaRegistry: {url!r} is no URL of http or https, as 'http://127.0.0.1:8081' is")
    return url.rstrip("/")


def _refusal(url: str, answer: HttpAnswer) -> SchemaRegistryError:
    message, code = answer.body[:200].decode(errors="replace"), None
    try:
        said = json.loads(answer.body)
        message, code = str(said["message"]), _whole(said["error_code"])
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    if answer.status < 400:
        message = f"it sends to {answer.location}: name that URL instead, if it is to be trusted"
    return SchemaRegistryError(f"{url}: {message} (HTTP {answer.status})", status=answer.status, error_code=code)


def _described(schema: RegisteredSchema) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": schema.text}
    if schema.kind != AVRO:  # the default, which old registries do not take by name
        body["schemaType"] = schema.kind
    if schema.references:
        body["references"] = [reference._asdict() for reference in schema.references]
    return body


def _schema_of(answer: Any) -> RegisteredSchema:
    try:
        references: Sequence[Any] = answer.get("references") or ()
        return RegisteredSchema(
            _text(answer["schema"]),
            _text(answer.get("schemaType") or AVRO),
            tuple(Reference(_text(one["name"]), _text(one["subject"]), _whole(one["version"])) for one in references),
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise SchemaRegistryError(f"the registry answered {answer!r}, where a schema was expected") from None


def _id_in(answer: Any) -> int:
    try:
        found = _whole(answer["id"])
    except (KeyError, TypeError, ValueError):
        found = -1
    if not 0 <= found <= ID_MAX:
        raise SchemaRegistryError(f"the registry answered {answer!r}, which has no 'id' from 0 to {ID_MAX}")
    return found


def _whole(value: Any) -> int:
    """Raises ValueError: it is no whole number."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{value!r} is no whole number")
    return value


def _text(value: Any) -> str:
    """Raises ValueError: it is no text."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value
