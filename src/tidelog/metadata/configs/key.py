"""One setting: its type, its default, what values it takes, and what it means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from re import fullmatch
from typing import Any, Generic, TypeVar, cast

from tidelog.base.errors import ConfigError

T_co = TypeVar("T_co", covariant=True)

ConfigValue = bool | int | float | str | tuple[str, ...]

INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1
TEXT_SIZE_BYTES_MAX = 32_767
"""What a string of the older versions of DescribeConfigs can carry: of more, no stock client would be told."""


class ConfigType(IntEnum):
    """The types of settings, with the numbers of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


@dataclass(frozen=True, slots=True)
class ValueKind(Generic[T_co]):
    """A type of settings together with that of their values here."""

    type: ConfigType
    is_optional: bool = False

    @property
    def or_none(self) -> ValueKind[T_co | None]:
        """Of a setting that has no value unless one is set."""
        return ValueKind(self.type, is_optional=True)


BOOLEAN: ValueKind[bool] = ValueKind(ConfigType.BOOLEAN)
STRING: ValueKind[str] = ValueKind(ConfigType.STRING)
INT: ValueKind[int] = ValueKind(ConfigType.INT)
SHORT: ValueKind[int] = ValueKind(ConfigType.SHORT)
LONG: ValueKind[int] = ValueKind(ConfigType.LONG)
DOUBLE: ValueKind[float] = ValueKind(ConfigType.DOUBLE)
LIST: ValueKind[tuple[str, ...]] = ValueKind(ConfigType.LIST)
CLASS: ValueKind[str] = ValueKind(ConfigType.CLASS)
PASSWORD: ValueKind[str] = ValueKind(ConfigType.PASSWORD)


class Support(Enum):
    """What becomes of a setting of Kafka's here."""

    SERVED = "served"
    WITHOUT_EFFECT = "without effect"
    """Taken, with a warning: it is about sizes and times, and nothing here goes by it."""
    REFUSED = "refused"
    """Only its default is taken: who sets it would believe in what is not so."""


_RANGES = {
    ConfigType.INT: (-INT32_MAX - 1, INT32_MAX),
    ConfigType.SHORT: (-(1 << 15), (1 << 15) - 1),
    ConfigType.LONG: (-INT64_MAX - 1, INT64_MAX),
}


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker setting that a topic setting falls back to, in a unit of its own: `value * scale`."""

    name: str
    scale: int = 1


@dataclass(frozen=True, slots=True)
class ConfigKey(Generic[T_co]):
    """A setting that Tidelog knows. `T_co` is the type of its values.

    Attributes:
        default: as text; None where there is no value unless one is set.
        minimum: inclusive, for numbers.
        maximum: inclusive, for numbers.
        choices: the only values it takes (each element, for a list); empty when there are too many to name.
        may_be_empty: whether a list with choices takes none of them too.
        pattern: of a text, or of each element of a list: an expression that it has to match, and what that is in words.
        why: what to tell someone who asks for a value that Kafka takes and we do not, or that has no effect.
        synonyms: for a topic setting, the broker settings behind it, the strongest first.
        is_dynamic: whether it can be changed while brokers run.
    """

    name: str
    kind: ValueKind[T_co]
    default: str | None
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    may_be_empty: bool = False
    pattern: tuple[str, str] | None = None
    why: str = ""
    synonyms: tuple[Synonym, ...] = ()
    is_dynamic: bool = False
    support: Support = Support.SERVED

    @property
    def type(self) -> ConfigType:
        return self.kind.type

    @property
    def is_sensitive(self) -> bool:
        """Whether its value is never shown."""
        return self.type == ConfigType.PASSWORD

    def parse(self, text: str) -> T_co:
        """The value that `text` spells.

        Raises:
            ConfigError: it is not of the type, out of range, or none of the choices; names the key and what is allowed.
        """
        value = self._parse(text)
        if self.support == Support.REFUSED and (self.default is None or value != self._parse(self.default)):
            raise self._refuse(text)
        return cast(T_co, value)  # what `kind` says of it

    @property
    def fallback(self) -> T_co:
        """The value where none is set."""
        return cast(T_co, None if self.default is None else self._parse(self.default))

    def _parse(self, text: str) -> ConfigValue:
        size_bytes = len(text.encode())
        if size_bytes > TEXT_SIZE_BYTES_MAX:
            raise ConfigError(f"{self.name}: a value of {size_bytes} bytes is longer than {TEXT_SIZE_BYTES_MAX}")
        value = text.strip()
        if self.type == ConfigType.BOOLEAN:
            if value.lower() not in ("true", "false"):
                raise self._refuse(text)
            self._check_choice(value.lower(), text)
            return value.lower() == "true"
        if self.type == ConfigType.LIST:
            elements = tuple(element.strip() for element in value.split(",")) if value else ()
            for element in elements:
                self._check_choice(element, text)
            if self.pattern is not None and not all(fullmatch(self.pattern[0], element) for element in elements):
                raise self._refuse(text)
            if self.choices and not elements and not self.may_be_empty:
                raise self._refuse(text)
            return elements
        if self.type in (ConfigType.STRING, ConfigType.CLASS, ConfigType.PASSWORD):
            self._check_choice(value, text)
            if self.pattern is not None and not fullmatch(self.pattern[0], value):
                raise self._refuse(text)
            return value
        return self._parse_number(value, text)

    @property
    def allowed(self) -> str:
        """What values it takes, in words."""
        if self.support == Support.REFUSED:
            return "nothing" if self.default is None else f"{self.default!r}, the default"
        if self.pattern is not None:
            return self.pattern[1]
        if self.choices:
            one_of = ("any of " if self.type == ConfigType.LIST else "") + ", ".join(filter(None, self.choices))
            return f"{one_of}; or nothing" if self.may_be_empty or "" in self.choices else one_of
        if self.type == ConfigType.BOOLEAN:
            return "true, false"
        if self.type not in (*_RANGES, ConfigType.DOUBLE):
            return "a comma-separated list" if self.type == ConfigType.LIST else "text"
        low, high = _RANGES.get(self.type, (None, None))
        minimum = low if self.minimum is None else self.minimum
        maximum = high if self.maximum is None else self.maximum
        what = "a number" if self.type == ConfigType.DOUBLE else "a whole number"
        return f"{what} from {minimum} to {maximum}"

    def _parse_number(self, value: str, text: str) -> int | float:
        number: int | float
        if not value.isascii() or "_" in value:  # which Python would take
            raise self._refuse(text)
        try:
            number = float(value) if self.type == ConfigType.DOUBLE else int(value)
        except ValueError:
            raise self._refuse(text) from None
        self._check_choice(str(number), text)
        low, high = _RANGES.get(self.type, (-float("inf"), float("inf")))
        if not max(low, low if self.minimum is None else self.minimum) <= number:
            raise self._refuse(text)
        if not number <= min(high, high if self.maximum is None else self.maximum):
            raise self._refuse(text)
        return number

    def _check_choice(self, value: str, text: str) -> None:
        if self.choices and value not in self.choices:
            raise self._refuse(text)

    def _refuse(self, text: str) -> ConfigError:
        shown = "the value" if self.is_sensitive else repr(text)
        why = f" ({self.why})" if self.why and self.support != Support.WITHOUT_EFFECT else ""
        return ConfigError(f"{self.name}: {shown} is not allowed; allowed: {self.allowed}{why}")


def unserved(
    name: str,
    kind: ValueKind[Any],
    default: str | None,
    minimum: float | None = None,
    maximum: float | None = None,
    *,
    choices: tuple[str, ...] = (),
) -> ConfigKey[Any]:
    """A setting of Kafka's, for `without_effect` or `refused` to say what becomes of it."""
    return ConfigKey(name, kind if default is not None else kind.or_none, default, "", minimum, maximum, choices)


def unserved_dynamic(
    name: str, kind: ValueKind[Any], default: str | None, minimum: float | None = None, maximum: float | None = None
) -> ConfigKey[Any]:
    """Likewise, of one that can be changed while brokers run."""
    return replace(unserved(name, kind, default, minimum, maximum), is_dynamic=True)


def without_effect(why: str, *keys: ConfigKey[Any]) -> tuple[ConfigKey[Any], ...]:
    """Settings that are taken so that stock files and tools work, and do nothing here."""
    doc = f"Taken, without effect: {why}."
    return tuple(replace(key, doc=doc, why=why, support=Support.WITHOUT_EFFECT) for key in keys)


def refused(why: str, *keys: ConfigKey[Any]) -> tuple[ConfigKey[Any], ...]:
    """Settings of which nothing but the default is taken."""
    doc = f"Refused but for its default: {why}."
    return tuple(replace(key, doc=doc, why=why, support=Support.REFUSED) for key in keys)


def keys_in(module: Mapping[str, object]) -> tuple[ConfigKey[Any], ...]:
    """The settings that a module has names for, in their order."""
    return tuple(one for one in module.values() if isinstance(one, ConfigKey))
