"""What must hold whatever anyone sends: if it does not, the bug is ours."""

from __future__ import annotations

from tidelog.base.errors import InvariantBrokenError


def invariant(holds: object, message: str, *args: object) -> None:
    """Stop if `holds` is false. Stays in force under `python -O`; is never caught to carry on.

    Args:
        holds: the condition.
        message: what is broken, with `{}` for `args` (formatted only when broken).

    Raises:
        InvariantBrokenError: always means a bug in Tidelog; the partition or the process stops.
    """
    if not holds:
        raise InvariantBrokenError(message.format(*args))
