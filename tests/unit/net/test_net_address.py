"""Addresses as users write them."""

from __future__ import annotations

import pytest

from tidelog.base.errors import ConfigError
from tidelog.net.address import Address, parse_address, parse_bootstrap


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9092", Address("127.0.0.1", 9092)),
        (" broker-1.example ", Address("broker-1.example", 9092)),
        ("[::1]:19092", Address("::1", 19092)),
        ("[::1]", Address("::1", 9092)),
    ],
)
def test_addresses_are_read(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", ":9092", "host:", "host:0", "host:65536", "host:x", "::1", "[::1", "[::1]x", "http://host:1", "a b:1"]
)
def test_what_is_no_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match="host:port is expected") as error:
        parse_address(text)
    assert repr(text) in str(error.value)


def test_an_address_prints_as_it_is_written() -> None:
    assert [str(address) for address in parse_bootstrap("[::1]:1,h:2")] == ["[::1]:1", "h:2"]


def test_bootstrap_servers_may_be_one_string_or_several() -> None:
    expected = (Address("a", 1), Address("b", 2), Address("c", 3))
    assert parse_bootstrap("a:1, b:2,c:3,a:1") == expected
    assert parse_bootstrap(["a:1", "b:2,c:3"]) == expected


@pytest.mark.parametrize("servers", ["", " , ", []])
def test_no_bootstrap_server_is_an_error(servers: str | list[str]) -> None:
    with pytest.raises(ConfigError, match="names no server"):
        parse_bootstrap(servers)
