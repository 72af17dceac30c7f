"""What can be wrong with schemas, and with those who keep them."""

from __future__ import annotations

from tidelog.base.errors import TidelogError


class SchemaError(TidelogError):
    """Data does not fit a schema, or bytes are not what a serializer with a registry writes."""


class SchemaRegistryError(TidelogError):
    """The registry cannot be reached, or refuses.

    Attributes:
        status: of HTTP; None if no answer came.
        error_code: the registry's own, such as 40401 for a subject that it does not know; None if it named none.
    """

    def __init__(self, message: str, *, status: int | None = None, error_code: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.error_code = error_code
