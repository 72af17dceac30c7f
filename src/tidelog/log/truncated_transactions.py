"""What became of transactions when records were truncated: a decided one may be open again, an open one lack records.

```
 before                [ a1 a2 b1 A b2 ]   A decides a; b is open
 truncated from A on   [ a1 a2 b1 ]        a is reopened: its coordinator has to write the marker again, or it hangs
                                           b is shortened: it lost b2, and will be decided without it
```

A leader that takes over has what was committed, so that this concerns what was acknowledged to nobody, unless the
election was unclean. Either way it is for the owner of the log to report.

Kafka: none; `ProducerStateManager.truncateAndReload` says nothing of it.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.base.ids import Offset, ProducerEpoch, ProducerId
from tidelog.log.producer_state import ProducerStates


class TruncatedTransaction(NamedTuple):
    """One of them."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    first_offset: Offset
    """Where it began."""


class TruncatedTransactions(NamedTuple):
    """Of all truncations since the last time they were asked for; one entry for each producer in either."""

    reopened: tuple[TruncatedTransaction, ...]
    """Their marker was truncated, but not all of their records: they are open again."""
    shortened: tuple[TruncatedTransaction, ...]
    """They were open, and some or all of their records were truncated."""

    def and_then(self, later: TruncatedTransactions) -> TruncatedTransactions:
        """Both; of a producer that is in both, what came later."""
        return TruncatedTransactions(_latest(self.reopened + later.reopened), _latest(self.shortened + later.shortened))


NO_TRANSACTION_TRUNCATED = TruncatedTransactions((), ())


def truncated_transactions(before: ProducerStates, after: ProducerStates) -> TruncatedTransactions:
    """What a truncation to the end of `after` did to the transactions of `before`."""
    open_before = {each.producer_id: each for each in before.open_transactions}
    shortened = []
    for producer_id, each in open_before.items():
        state = before.get(producer_id)
        last_offset = each.first_offset
        if state is not None and state.batches:
            last_offset = max(last_offset, state.batches[-1].last_offset)
        if last_offset >= after.end_offset:
            shortened.append(TruncatedTransaction(producer_id, each.producer_epoch, each.first_offset))
    reopened = []
    for each in after.open_transactions:
        known = open_before.get(each.producer_id)
        if known is None or known.first_offset != each.first_offset:
            reopened.append(TruncatedTransaction(each.producer_id, each.producer_epoch, each.first_offset))
    return TruncatedTransactions(tuple(reopened), tuple(shortened))


def _latest(entries: tuple[TruncatedTransaction, ...]) -> tuple[TruncatedTransaction, ...]:
    return tuple({each.producer_id: each for each in entries}.values())
