"""What a program of a client is to do on a secured listener, and what it says of it.

Programs in other languages get it as arguments, `key=value` each, and say it in lines on stdout.

    work    describes the topic, writes 0 1 2, and 3 in a transaction after one that is aborted, if the client has
            transactions; then reads them all in a group, and commits:  "partitions N", "read VALUE" …, "committed"
    send    writes one record:  "sent 1"
    stay    writes a record every 100 ms, for `seconds`, each after the answer to the one before:  "sent N"
    list    describes the topic:  "partitions N"

What fails is "error NAME", with the client's own name of the error, and is the last line.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

__all__ = ["ABORTED", "PAUSE_SECONDS", "SECONDS_MAX", "VALUES", "Task"]

VALUES = ("0", "1", "2")
IN_TRANSACTION = "3"
ABORTED = "aborted"
SECONDS_MAX = 30
"""For whatever a client waits for: none is to hang."""

PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Task:
    """Of one program.

    Attributes:
        story: one of the four.
        authority: a file in PEM with the certificate to trust.
        password: with OAUTHBEARER, the token to show.
        topic: which also names the group and the transactional id.
    """

    story: str
    bootstrap: str
    authority: str
    mechanism: str
    username: str
    password: str
    tokenauth: bool
    topic: str
    transactional: bool
    seconds: float = 0.0

    @property
    def values(self) -> list[str]:
        """What `work` reads."""
        return [*VALUES, IN_TRANSACTION] if self.transactional else list(VALUES)

    @property
    def arguments(self) -> list[str]:
        """For a program in another language."""
        return [
            f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in asdict(self).items()
        ]
