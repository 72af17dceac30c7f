"""Serializers with schemas, against a registry: bytes, what is asked how often, and everything that can be wrong."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from support.fixtures.certificates import Authority, missing_openssl
from support.fixtures.schema_registry import RegistryServer, schema_registry
from tidelog import ConfigError
from tidelog.schemas import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    RegisteredSchema,
    SchemaError,
    SchemaRegistry,
    SchemaRegistryError,
)

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "price", "type": "double"}],
}
ORDER_WITH_NOTE = ORDER | {"fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": "none"}]}
ORDER_AS_JSON: dict[str, Any] = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "price": {"type": "number"}},
    "required": ["id"],
}


@dataclass
class Order:
    id: int
    price: float


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with schema_registry() as server:
        yield server


@pytest.fixture
def registry(server: RegistryServer) -> SchemaRegistry:
    return SchemaRegistry(server.url)


def test_avro_is_written_behind_the_id_of_its_schema(server: RegistryServer, registry: SchemaRegistry) -> None:
    serializer = AvroSerializer[dict[str, Any]](registry, "orders-value", ORDER)
    assert server.asked == []  # it asks when there is something to write
    assert serializer({"id": 1, "price": 0.0}) == b"\x00" + b"\x00\x00\x00\x01" + b"\x02" + b"\x00" * 8
    assert serializer({"id": 2, "price": 0.0})[5:6] == b"\x04"
    assert server.asked == ["POST /subjects/orders-value/versions"]


def test_what_is_written_is_read_with_a_class_of_ones_own(registry: SchemaRegistry) -> None:
    serializer = AvroSerializer[Order](registry, "orders-value", json.dumps(ORDER), to_dict=asdict)
    deserializer = AvroDeserializer(registry, from_dict=lambda read: Order(**read))
    assert deserializer(serializer(Order(7, 1.5))) == Order(7, 1.5)
    assert deserializer(None) is None


def test_each_schema_is_asked_for_once(server: RegistryServer, registry: SchemaRegistry) -> None:
    written = [AvroSerializer(registry, "o", schema)({"id": 1, "price": 2.0}) for schema in (ORDER, ORDER_WITH_NOTE)]
    reader = AvroDeserializer(SchemaRegistry(server.url))
    server.asked.clear()
    read = [reader(data) for data in written * 3]
    assert read[:2] == [{"id": 1, "price": 2.0}, {"id": 1, "price": 2.0, "note": "none"}]
    assert server.asked == ["GET /schemas/ids/1", "GET /schemas/ids/2"]


def test_a_reader_resolves_what_was_written_into_its_own_schema(registry: SchemaRegistry) -> None:
    old = AvroSerializer(registry, "o", ORDER)({"id": 1, "price": 2.0})
    new = AvroSerializer(registry, "o", ORDER_WITH_NOTE)({"id": 1, "price": 2.0, "note": "x"})
    assert AvroDeserializer(registry, ORDER_WITH_NOTE)(old) == {"id": 1, "price": 2.0, "note": "none"}
    assert AvroDeserializer(registry, ORDER)(new) == {"id": 1, "price": 2.0}


def test_the_latest_schema_of_a_subject_serves_who_has_none(server: RegistryServer, registry: SchemaRegistry) -> None:
    for schema in (ORDER, ORDER_WITH_NOTE):
        server.register("orders-value", {"schema": json.dumps(schema)})
    written = AvroSerializer(registry, "orders-value")({"id": 1, "price": 2.0, "note": "x"})
    assert written[:5] == b"\x00\x00\x00\x00\x02"
    with pytest.raises(SchemaRegistryError, match=r"Subject 'nobody' not found. \(HTTP 404\)") as missing:
        AvroSerializer(registry, "nobody")
    assert (missing.value.status, missing.value.error_code) == (404, 40401)


def test_who_may_not_register_looks_up(server: RegistryServer, registry: SchemaRegistry) -> None:
    serializer = AvroSerializer(registry, "o", ORDER, auto_register=False)
    with pytest.raises(SchemaRegistryError, match="Schema not found"):
        serializer({"id": 1, "price": 2.0})
    server.register("o", {"schema": json.dumps(ORDER)})
    assert serializer({"id": 1, "price": 2.0})[:5] == b"\x00\x00\x00\x00\x01"
    assert server.asked == ["POST /subjects/o"] * 2


def test_schemas_use_others(server: RegistryServer, registry: SchemaRegistry) -> None:
    price = {"type": "record", "name": "Price", "fields": [{"name": "cents", "type": "int"}]}
    server.register("price", {"schema": json.dumps(price)})
    priced = {"type": "record", "name": "Priced", "fields": [{"name": "price", "type": "Price"}]}
    references = [{"name": "Price", "subject": "price", "version": 1}]
    server.register("priced", {"schema": json.dumps(priced), "references": references})
    written = AvroSerializer(registry, "priced")({"price": {"cents": 150}})
    assert AvroDeserializer(registry)(written) == {"price": {"cents": 150}}
    price_json = {"type": "object", "required": ["cents"]}
    server.register("price-json", {"schema": json.dumps(price_json), "schemaType": "JSON"})
    priced_json = {"type": "object", "properties": {"price": {"$ref": "price.json"}}}
    references = [{"name": "price.json", "subject": "price-json", "version": 1}]
    server.register("p", {"schema": json.dumps(priced_json), "schemaType": "JSON", "references": references})
    as_json = JsonSchemaSerializer(registry, "p")
    assert JsonSchemaDeserializer(registry)(as_json({"price": {"cents": 150}})) == {"price": {"cents": 150}}
    with pytest.raises(SchemaError, match=r"does not fit its schema at \$.price: 'cents' is a required property"):
        as_json({"price": {}})


def test_a_bare_primitive_is_a_schema(registry: SchemaRegistry) -> None:
    assert AvroDeserializer(registry)(AvroSerializer[str](registry, "key", "string")("ä")) == "ä"
    assert AvroDeserializer(registry)(AvroSerializer[str](registry, "key", '"string"')("ä")) == "ä"


def test_json_is_written_compactly_and_checked_on_both_sides(server: RegistryServer, registry: SchemaRegistry) -> None:
    serializer = JsonSchemaSerializer[Order](registry, "o", ORDER_AS_JSON, to_dict=asdict)
    written = serializer(Order(7, 1.5))
    assert written == b'\x00\x00\x00\x00\x01{"id":7,"price":1.5}'
    reader = JsonSchemaDeserializer(registry, from_dict=lambda read: Order(**read))
    assert reader(written) == Order(7, 1.5)
    assert reader(None) is None
    with pytest.raises(SchemaError, match=r"a value of 'o' does not fit its schema at \$.id: 'x' is not of type"):
        serializer(Order("x", 1.0))  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match=r"bytes that name schema 1 does not fit|does not fit its schema at \$"):
        reader(b'\x00\x00\x00\x00\x01{"price":1.5}')
    with pytest.raises(SchemaError, match="cannot be written as JSON"):
        JsonSchemaSerializer(registry, "any", {})({"at": float("nan")})


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b'{"id":1}', "these 8 bytes name no schema: they begin with 7b 22 69 64 22"),
        (b"\x00\x00\x01", "these 3 bytes name no schema"),
        (b"", "these 0 bytes name no schema: they begin with nothing"),
        (b"\x00\x00\x00\x00\x01\x02\x00", "bytes that name schema 1 cannot be read: EOFError"),
        (b"\x00\x00\x00\x00\x01\x02" + b"\x00" * 9, "bytes that name schema 1 go on for 1 bytes behind the value"),
        (b"\x00\x00\x00\x00\x02\x02", "schema 2 is of kind JSON, not AVRO: it takes another deserializer"),
    ],
)
def test_bytes_that_are_not_what_they_should_be(
    server: RegistryServer, registry: SchemaRegistry, data: bytes, told: str
) -> None:
    server.register("o", {"schema": json.dumps(ORDER)})
    server.register("j", {"schema": json.dumps(ORDER_AS_JSON), "schemaType": "JSON"})
    with pytest.raises(SchemaError, match=told):
        AvroDeserializer(registry)(data)


def test_a_schema_that_nobody_knows_is_named(registry: SchemaRegistry) -> None:
    with pytest.raises(SchemaRegistryError, match=r"/schemas/ids/77: Schema not found \(HTTP 404\)"):
        AvroDeserializer(registry)(b"\x00\x00\x00\x00\x4d\x02")


def test_a_value_that_does_not_fit_is_refused(registry: SchemaRegistry) -> None:
    serializer = AvroSerializer(registry, "o", ORDER)
    for wrong in ({"id": "x", "price": 1.0}, {"id": 1}, 5, None, {"id": 2**70, "price": 1.0}):
        with pytest.raises(SchemaError, match="a value of 'o' does not fit its schema: "):
            serializer(wrong)


@pytest.mark.parametrize("text", ['{"type": "recor"}', "{", "nothing"])
def test_what_is_no_avro_schema_is_refused_at_once(registry: SchemaRegistry, text: str) -> None:
    with pytest.raises(ConfigError, match="is no Avro schema: "):
        AvroSerializer(registry, "o", text)


@pytest.mark.parametrize("text", ['{"type": "recor"}', "{", "5"])
def test_what_is_no_json_schema_is_refused_at_once(registry: SchemaRegistry, text: str) -> None:
    with pytest.raises(ConfigError, match="is no JSON Schema: "):
        JsonSchemaSerializer(registry, "o", text)


def test_a_schema_of_another_kind_is_refused(server: RegistryServer, registry: SchemaRegistry) -> None:
    server.register("j", {"schema": "{}", "schemaType": "JSON"})
    with pytest.raises(ConfigError, match="the latest schema of 'j' is of kind JSON, not AVRO"):
        AvroSerializer(registry, "j")


def test_the_next_registry_is_asked_where_one_is_silent_or_broken(server: RegistryServer) -> None:
    with schema_registry() as broken:
        broken.refuses = (500, b"<html>")
        registry = SchemaRegistry(["http://127.0.0.1:1", broken.url, server.url + "/"], auth=("ada", "secret"))
        assert registry.register("o", RegisteredSchema('"string"', "AVRO")) == 1
        assert server.headers_of["Authorization"] == "Basic YWRhOnNlY3JldA=="
        server.refuses = (503, b"")
        with pytest.raises(
            SchemaRegistryError, match=r"no schema registry answered: .*127.0.0.1:1: .*HTTP 500.*HTTP 503"
        ):
            registry.schema(5)
    assert "secret" not in repr(registry)


def test_answers_that_are_none(server: RegistryServer, registry: SchemaRegistry) -> None:
    for body, told in (
        (b"<html>", "is not JSON"),
        (b"[]", "where a schema was expected"),
        (b"{}", "where a schema was"),
    ):
        server.refuses = (200, body)
        with pytest.raises(SchemaRegistryError, match=told):
            registry.schema(1)
    server.refuses = (200, b"{}")
    with pytest.raises(SchemaRegistryError, match="has no 'id'"):
        registry.register("o", RegisteredSchema('"string"', "AVRO"))
    with pytest.raises(SchemaRegistryError, match="a list of subjects"):
        registry.subjects()


def test_subjects_are_listed_whatever_their_names(server: RegistryServer, registry: SchemaRegistry) -> None:
    registry.register("a/b c", RegisteredSchema('"string"', "AVRO"))
    assert registry.subjects() == ["a/b c"]
    assert registry.version("a/b c")[0] == 1
    assert registry.look_up("a/b c", RegisteredSchema('"string"', "AVRO")) == 1


@pytest.mark.parametrize("urls", ["127.0.0.1:8081", "", "ftp://host", "http://", "http://host:port", []])
def test_what_is_no_url_is_refused(urls: Any) -> None:
    with pytest.raises(ConfigError, match="SchemaRegistry: "):
        SchemaRegistry(urls)


def test_a_password_is_given_apart(server: RegistryServer) -> None:
    with pytest.raises(ConfigError, match=r"give auth=\(name, password\) instead") as refused:
        SchemaRegistry(server.url.replace("//", "//ada:secret@"))
    assert "secret" not in str(refused.value)


def record(name: str, **fields: str) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


def reference(name: str) -> dict[str, Any]:
    return {"name": name, "subject": name, "version": 1}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (["Bought", "Sold"], {"at": {"cents": 1}}),
        ("Price", {"cents": 1}),
        ({"type": "array", "items": "Price"}, [{"cents": 1}, {"cents": 2}]),
        ({"type": "map", "values": ["null", "Price"]}, {"a": None, "b": {"cents": 2}}),
        (record("Both", bought="Bought", sold="Sold"), {"bought": {"at": {"cents": 1}}, "sold": {"for": {"cents": 2}}}),
    ],
)
def test_a_schema_of_any_shape_uses_others(
    server: RegistryServer, registry: SchemaRegistry, schema: Any, value: Any
) -> None:
    """What is referred to twice is asked for once."""
    price = reference("Price")
    server.register("Price", {"schema": json.dumps(record("Price", cents="int"))})
    server.register("Bought", {"schema": json.dumps(record("Bought", at="Price")), "references": [price]})
    server.register("Sold", {"schema": json.dumps(record("Sold", **{"for": "Price"})), "references": [price]})
    references = [reference("Bought"), reference("Sold"), price]
    server.register("o", {"schema": json.dumps(schema), "references": references})
    serializer = AvroSerializer(registry, "o")
    assert server.asked.count("GET /subjects/Price/versions/1") == 1
    assert AvroDeserializer(registry)(serializer(value)) == value


def test_schemas_that_use_each_other_without_end_are_refused(server: RegistryServer, registry: SchemaRegistry) -> None:
    server.register("Loop", {"schema": json.dumps(record("Loop", of="Loop2")), "references": [reference("Loop2")]})
    server.register("Loop2", {"schema": json.dumps(record("Loop2", of="Loop")), "references": [reference("Loop")]})
    with pytest.raises(ConfigError, match="is no Avro schema: UnknownType"):
        AvroSerializer(registry, "Loop")
    for number in range(1_000):
        server.register(f"{number}", {"schema": "{}", "schemaType": "JSON", "references": [reference(f"{number + 1}")]})
    with pytest.raises(ConfigError, match="more than 200 other schemas"):
        JsonSchemaSerializer(registry, "0")


@pytest.mark.parametrize("text", ["{}", '{"type": "enum", "name": "e"}', '{"type": ["x"]}', "[5]", "[" * 100_000])
def test_whatever_avro_says_of_a_schema_it_is_refused_at_once(registry: SchemaRegistry, text: str) -> None:
    with pytest.raises(ConfigError, match="is no Avro schema: "):
        AvroSerializer(registry, "o", text)


def test_json_that_is_too_deep_is_refused(registry: SchemaRegistry) -> None:
    with pytest.raises(ConfigError, match="is no JSON Schema: "):
        JsonSchemaSerializer(registry, "o", "[" * 100_000)
    with pytest.raises(SchemaError, match="cannot be checked"):
        JsonSchemaSerializer(registry, "o", {"$ref": "#"})(1)
    anything = JsonSchemaSerializer(registry, "any", {})
    with pytest.raises(SchemaError, match="bytes that name schema 1 are not JSON"):
        JsonSchemaDeserializer(registry)(anything(1)[:5] + b"[" * 100_000)


@pytest.mark.parametrize("found", ["-1", "4294967296", "1e999", "true", '"7"', "1.5", "null"])
def test_an_id_that_is_none_is_refused_and_forgotten(
    server: RegistryServer, registry: SchemaRegistry, found: str
) -> None:
    serializer = AvroSerializer[str](registry, "o", "string")
    server.refuses = (200, b'{"schema": "{}", "id": %s}' % found.encode())
    with pytest.raises(SchemaRegistryError, match="has no 'id'"):
        serializer("x")
    with pytest.raises(SchemaRegistryError, match="has no 'id'"):
        registry.version("o")
    server.refuses = None
    assert serializer("x")[:5] == b"\x00\x00\x00\x00\x01"


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (200, b"[" * 100_000, "the answer is not JSON"),
        (200, b'{"schema": "", "references": [{"name": "", "subject": "", "version": 1e999}]}', "where a schema was"),
        (200, b'{"schema": {}}', "where a schema was"),
        (404, b'{"message": "x", "error_code": 1e999}', "1e999} (HTTP 404)"),
        (404, b"[" * 100_000, "[[[ (HTTP 404)"),
        (200, b" " * (16 * 1024 * 1024 + 1), "the answer has more than 16777216 bytes"),
    ],
)
def test_answers_that_are_meant_to_hurt(
    server: RegistryServer, registry: SchemaRegistry, status: int, body: bytes, told: str
) -> None:
    server.refuses = (status, body)
    with pytest.raises(SchemaRegistryError, match=re.escape(told)):
        registry.schema(1)


def test_a_registry_that_sends_elsewhere_is_not_followed(server: RegistryServer) -> None:
    """The password is not for whoever that is; and a POST would become a GET."""
    with schema_registry() as elsewhere:
        server.refuses, server.location = (302, b""), elsewhere.url + "/there"
        registry = SchemaRegistry(server.url, auth=("ada", "secret"))
        for ask in (registry.subjects, lambda: registry.register("o", RegisteredSchema('"string"', "AVRO"))):
            with pytest.raises(
                SchemaRegistryError, match=rf"sends to {elsewhere.url}/there: name that URL instead.*HTTP 302"
            ):
                ask()
        assert elsewhere.asked == []


def test_a_refusal_that_is_cut_short_is_one(server: RegistryServer, registry: SchemaRegistry) -> None:
    server.refuses, server.length = (404, b"{}"), 10
    with pytest.raises(SchemaRegistryError, match=r"HTTP 404"):
        registry.schema(1)


@pytest.mark.parametrize(
    ("start", "drop"),
    [
        (b"", b""),
        (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 1000000\r\n\r\n", b" "),
    ],
    ids=["silence", "headers", "continue", "body", "chunks", "refusal"],
)
def test_an_answer_that_never_ends_is_given_up(server: RegistryServer, start: bytes, drop: bytes) -> None:
    """Each byte comes in time, and they are never all there."""
    server.drips = start, drop
    registry = SchemaRegistry(server.url, timeout_ms=100)
    told = rf"no schema registry answered: {server.url}/schemas/ids/1: there was no whole answer within 100 ms"
    with pytest.raises(SchemaRegistryError, match=told):
        registry.schema(1)


def test_the_next_registry_is_asked_where_one_has_no_end(server: RegistryServer) -> None:
    server.drips = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b" "
    with schema_registry() as other:
        other.register("o", {"schema": '"string"'})
        assert SchemaRegistry([server.url, other.url], timeout_ms=2_000).schema(1).text == '"string"'


@pytest.mark.skipif(missing_openssl() is not None, reason=str(missing_openssl()))
def test_over_tls_too(server: RegistryServer, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.sign("registry", hosts="IP:127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate, own.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.register("o", {"schema": '"string"'})
    url = server.url.replace("http", "https")
    trusting = ssl.create_default_context(cafile=authority.certificate)
    registry = SchemaRegistry(url, ssl_context=trusting)
    assert registry.schema(1).text == '"string"'
    with pytest.raises(SchemaRegistryError, match="certificate verify failed"):
        SchemaRegistry(url).schema(1)
    server.drips = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b" "
    with pytest.raises(SchemaRegistryError, match="there was no whole answer within 1000 ms"):
        SchemaRegistry(url, ssl_context=trusting, timeout_ms=1000).schema(2)
