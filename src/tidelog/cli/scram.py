"""SCRAM users as they are typed: Kafka's notation, and passwords that no history of a shell shall hold.

    SCRAM-SHA-256=[name=alice,iterations=8192,password=alice-secret]

A value with a comma or a bracket is quoted: `password="a,b"`. Kafka: `ScramParser`.
"""

from __future__ import annotations

import re
import secrets
import sys
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterable, Mapping

import click

from tidelog.base.errors import KafkaError
from tidelog.cli.command import UsageError
from tidelog.controller.scram_users import SaltedPassword, kept_of
from tidelog.metadata.records.scram_credentials import scram_record
from tidelog.metadata.scram_credentials import KEPT_ITERATIONS_MIN, MECHANISM_NUMBERS
from tidelog.security.scram import SALT_SIZE_BYTES, salted_password

STDIN = "-"

_WHOLE = re.compile(r"(?P<mechanism>[^=\[\]]+)=\[(?P<parts>.*)\]", re.DOTALL)
_PART = re.compile(r'\s*(?P<key>[a-z-]+)\s*=\s*(?:"(?P<quoted>[^"]*)"|(?P<plain>[^,"]*))\s*(?:,|$)')
_KEYS = ("name", "iterations", "password", "password-file", "salt", "saltedpassword")


def read_first_users(texts: Iterable[str]) -> tuple[object, ...]:
    """The records of users that are given in Kafka's notation.

    Raises:
        UsageError: one cannot be meant. What it says shows no password.
    """
    records: dict[tuple[str, str], object] = {}
    for number, text in enumerate(texts, start=1):
        where = f"--add-scram number {number}"
        mechanism, parts = _parsed(text, where)
        name = parts.get("name")
        if not name:
            raise UsageError(f"{where}: it names no user; say name=USER")
        if (mechanism, name) in records:
            raise UsageError(f"{where}: user {name!r} has a credential for {mechanism} already")
        try:
            credential = kept_of(mechanism, _salted(mechanism, parts, where))
        except KafkaError as error:
            raise UsageError(f"{where}: {error}") from None
        records[mechanism, name] = scram_record((mechanism, name), credential)
    return tuple(records.values())


def _parsed(text: str, where: str) -> tuple[str, dict[str, str]]:
    whole = _WHOLE.fullmatch(text.strip())
    if whole is None:
        raise UsageError(f"{where} is not of the form SCRAM-SHA-256=[name=USER,password=PASSWORD]")
    mechanism, inner = whole["mechanism"].strip(), whole["parts"]
    if mechanism not in MECHANISM_NUMBERS:
        raise UsageError(f"{where}: {mechanism!r} is no mechanism of SCRAM: there are {', '.join(MECHANISM_NUMBERS)}")
    parts: dict[str, str] = {}
    position = 0
    while position < len(inner):
        part = _PART.match(inner, position)
        if part is None or part["key"] not in _KEYS:
            raise UsageError(f"{where}: within the brackets stand KEY=VALUE, with commas between: {', '.join(_KEYS)}")
        if part["key"] in parts:
            raise UsageError(f"{where}: {part['key']} stands there twice")
        parts[part["key"]] = part["plain"].strip() if part["quoted"] is None else part["quoted"]
        position = part.end()
    return mechanism, parts


def _salted(mechanism: str, parts: Mapping[str, str], where: str) -> SaltedPassword:
    given = [key for key in ("password", "password-file", "saltedpassword") if key in parts]
    if len(given) != 1:
        raise UsageError(f"{where}: say one of password, password-file, and saltedpassword with salt")
    text = parts.get("iterations", str(KEPT_ITERATIONS_MIN))
    if not (text.isascii() and text.isdecimal()):
        raise UsageError(f"{where}: iterations={text} is no number")
    iterations = int(text)
    salt = _unbase64(parts["salt"], f"{where}: salt") if "salt" in parts else secrets.token_bytes(SALT_SIZE_BYTES)
    if given == ["saltedpassword"]:
        if "salt" not in parts:
            raise UsageError(f"{where}: saltedpassword needs the salt that it was made with")
        return SaltedPassword(salt, _unbase64(parts["saltedpassword"], f"{where}: saltedpassword"), iterations)
    password = parts["password"] if "password" in parts else read_password_file(parts["password-file"])
    if not password:
        raise UsageError(f"{where}: the password is empty")
    kept_of(
        mechanism, SaltedPassword(salt, bytes(_SIZES[mechanism]), iterations)
    )  # before it is hashed a billion times
    return SaltedPassword(salt, salted_password(mechanism, password, salt, iterations), iterations)


_SIZES = {"SCRAM-SHA-256": 32, "SCRAM-SHA-512": 64}


def _unbase64(text: str, where: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise UsageError(f"{where} is not base64") from None


def read_password(user: str, file: str | None) -> str:
    """A user's new password: from a file, from stdin, or from whoever types it, twice.

    Args:
        file: the first line of it; `-` for stdin, from which it is read without asking where nobody can type, too.

    Raises:
        UsageError: there is none, or what was typed twice differs.
    """
    if file is not None or not sys.stdin.isatty():
        password = read_password_file(STDIN if file is None else file)
    else:
        try:
            password = click.prompt(
                f"password of {user}", hide_input=True, confirmation_prompt="once more", err=True, default=""
            )
        except click.Abort:
            raise UsageError("no password was given") from None
    if not password:
        raise UsageError("the password is empty")
    return password


def read_password_file(path: str) -> str:
    """The first line of a file, or of stdin. Raises UsageError: it cannot be read."""
    try:
        if path == STDIN:
            return sys.stdin.readline().rstrip("\r\n")
        with open(path, encoding="utf-8") as file:
            return file.readline().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"{path or 'an empty name of a file'}: it cannot be read: {reason}") from None
