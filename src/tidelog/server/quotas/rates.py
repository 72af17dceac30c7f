"""How a rate is measured, and how long whoever exceeds it is held back.

```
 samples   │ 0.4 s ─ 1.3 s │ 1.6 s ─ 1.9 s │ 2.7 s ─ now      each begins with the first event that is not of the last
 rate      = all that is in them / (now − the begin of the oldest one), at least as long as all windows but one
 held back = (rate − limit) / limit × that time               after which the rate would be the limit, were nothing done
```

Kafka: `Rate`, `SampledStat`, `TokenBucket`, `QuotaUtils`.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from tidelog.metadata.configs import BrokerSettings
from tidelog.metadata.configs import quotas as keys


class Windows(NamedTuple):
    """How long what was done counts: `quota.window.num` windows of `quota.window.size.seconds`."""

    number: int
    size_ms: int

    @property
    def span_ms(self) -> int:
        return self.number * self.size_ms


DEFAULT_WINDOWS = Windows(11, 1_000)

THROTTLE_MS_MAX = (1 << 31) - 1
"""The longest time that an answer can tell, some 25 days."""


def windows_of(settings: BrokerSettings) -> tuple[Windows, Windows]:
    """Those of a node: for what clients send and are sent, and for partitions that they make and delete."""
    return (
        Windows(settings[keys.QUOTA_WINDOW_NUM], settings[keys.QUOTA_WINDOW_SIZE_SECONDS] * 1_000),
        Windows(
            settings[keys.CONTROLLER_QUOTA_WINDOW_NUM], settings[keys.CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS] * 1_000
        ),
    )


class RateMeter:
    """How much was done lately. Times are in ms, and never go back."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[list[float]] = deque()  # [begin, last event, amount] of each

    def record(self, amount: float, windows: Windows, now_ms: int) -> None:
        """So much was done; a negative amount takes it back."""
        self._forget(windows, now_ms)
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= windows.size_ms:
            samples.append([now_ms, now_ms, 0.0])
        sample = samples[-1]
        sample[1] = now_ms
        sample[2] += amount

    def rate(self, windows: Windows, now_ms: int) -> float:
        """Per second."""
        self._forget(windows, now_ms)
        return sum(sample[2] for sample in self._samples) * 1_000 / self._elapsed_ms(windows, now_ms)

    def throttle_ms(self, limit: float, windows: Windows, now_ms: int) -> int:
        """For how long to do nothing, so that the rate is the limit again; 0 if it is not exceeded."""
        rate = self.rate(windows, now_ms)
        if rate <= limit:
            return 0
        return round(min((rate - limit) / limit * self._elapsed_ms(windows, now_ms), THROTTLE_MS_MAX))

    def is_forgotten(self, windows: Windows, now_ms: int) -> bool:
        """Whether all that was done is too long ago to count."""
        self._forget(windows, now_ms)
        return not self._samples

    def _forget(self, windows: Windows, now_ms: int) -> None:
        samples = self._samples
        while samples and now_ms - samples[0][1] >= windows.span_ms:
            samples.popleft()

    def _elapsed_ms(self, windows: Windows, now_ms: int) -> float:
        """At least as long as all windows but the one that has begun: a first event is no high rate."""
        elapsed_ms = now_ms - self._samples[0][0] if self._samples else 0.0
        missing = windows.number - 1 - int(elapsed_ms // windows.size_ms)
        if missing > 0:
            elapsed_ms += missing * windows.size_ms
        return max(elapsed_ms, 1.0)


class TokenBucket:
    """How much may be done yet: what comes in by the second, and is saved up for as long as the windows last.

    Whoever has any left may do what they want, and is in debt by what that was too much.
    """

    __slots__ = ("_filled_ms", "_tokens")

    def __init__(self) -> None:
        self._tokens: float | None = None
        self._filled_ms = 0

    def record(self, amount: float, limit: float, windows: Windows, now_ms: int) -> None:
        """So much was done; a negative amount takes it back."""
        most = limit * windows.span_ms / 1_000
        self._tokens = min(self.tokens(limit, windows, now_ms) - amount, most)
        self._filled_ms = now_ms

    def tokens(self, limit: float, windows: Windows, now_ms: int) -> float:
        """What may be done yet; below 0 whoever did too much is in debt."""
        most = limit * windows.span_ms / 1_000
        if self._tokens is None:
            return most
        return min(self._tokens + limit * (now_ms - self._filled_ms) / 1_000, most)

    def throttle_ms(self, limit: float, windows: Windows, now_ms: int) -> int:
        """For how long to do nothing, until the debt is paid."""
        tokens = self.tokens(limit, windows, now_ms)
        return 0 if tokens >= 0 else round(min(-tokens / limit * 1_000, THROTTLE_MS_MAX))

    def is_forgotten(self, limit: float, windows: Windows, now_ms: int) -> bool:
        """Whether it is as full as a new one."""
        return self.tokens(limit, windows, now_ms) >= limit * windows.span_ms / 1_000
