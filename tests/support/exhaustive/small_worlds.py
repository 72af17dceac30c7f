"""The small worlds, with their sizes: those that every run of the tests explores, and those of `make worlds`."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from support.exhaustive.small_quorum import QuorumBounds, SmallQuorum
from support.exhaustive.small_stop_world import StopBounds, StopWorld
from support.exhaustive.small_transactions import SmallTransactions, TransactionBounds
from support.exhaustive.small_world import Bounds, SmallWorld
from support.exhaustive.small_world_search import World
from support.old_rules.replica_rules import OLD_RULES
from tidelog.coordinator.transactions.transaction import EPOCH_MAX


class Size(NamedTuple):
    """A world under today's rules: nothing is broken in it."""

    name: str
    bounds: Bounds | StopBounds | QuorumBounds | TransactionBounds

    def world(self) -> World:
        if isinstance(self.bounds, QuorumBounds):
            return SmallQuorum(self.bounds)
        if isinstance(self.bounds, TransactionBounds):
            return SmallTransactions(self.bounds)
        return StopWorld(self.bounds) if isinstance(self.bounds, StopBounds) else SmallWorld(self.bounds)

    @property
    def text(self) -> str:
        """The bounds, as the tables show them."""
        bounds = self.bounds
        if isinstance(bounds, QuorumBounds | TransactionBounds):
            return bounds.text
        if isinstance(bounds, StopBounds):
            kind = "orders as served" if bounds.is_tagged else "orders as in the text"
            restarts = "a restart" if bounds.crashes == 1 else f"{bounds.crashes} restarts"
            return f"{bounds.changes} changes, {bounds.topics} topics of one name, {restarts}, {kind}"
        records = "1 record" if bounds.records == 1 else f"{bounds.records} records"
        epochs = "1 epoch" if bounds.epochs == 1 else f"{bounds.epochs} epochs"
        said = [f"{bounds.replicas} replicas, log {bounds.log}, {records}, {epochs}"]
        said += [f"min.insync.replicas {bounds.min_insync}"] if bounds.min_insync > 1 else []
        for count, one, many in (
            (bounds.crashes, "a crash", "crashes"),
            (bounds.power_losses, "a loss of power", "losses of power"),
            (bounds.unclean, "an unclean election", "unclean elections"),
            (bounds.fencings, "a broker fenced alive", "brokers fenced alive"),
            (bounds.given_up, "a proposal given up", "proposals given up"),
        ):
            said += [one if count == 1 else f"{count} {many}"] if count else []
        said += ["late answers"] if bounds.is_answer_late else []
        said += ["late fetches"] if bounds.is_request_late else []
        said += ["late writes"] if bounds.is_write_late else []
        return ", ".join(said)


class Refutation(NamedTuple):
    """A world under a rule that was replaced, what is broken in it, and by how many steps at least.

    Attributes:
        tolerated: what is broken sooner, and is no loss.
    """

    rule: str
    invariant: str
    depth: int
    bounds: Bounds
    tolerated: frozenset[str] = frozenset({"LineageTellsTheLog", "WeakIsr"})

    def world(self) -> SmallWorld:
        return SmallWorld(self.bounds, OLD_RULES[self.rule].rules, self.tolerated)


LAST_EPOCH = EPOCH_MAX - 1
"""That a producer gets under one producer id."""

_power = partial(Bounds, min_insync=2, log=1, records=1, epochs=1, crashes=1, power_losses=1)
"""Two must be in sync, and the power of one may be lost: it is promised that all survives."""

REFUTATIONS = (
    Refutation("high-watermark", "StrongIsr", 7, Bounds(log=1, records=1, epochs=2)),
    Refutation("kip-101-alone", "StrongIsr", 11, Bounds(log=1)),
    Refutation("kip-279-alone", "StrongIsr", 11, Bounds(log=1)),
    Refutation("kip-320-first-try", "StrongIsr", 11, Bounds(log=1, records=1)),
    Refutation("joins-at-the-high-watermark", "StrongIsr", 9, Bounds(log=1, records=1, epochs=2)),
    Refutation("fetches-ahead-of-all", "StrongIsr", 3, Bounds(2, 1, 1, 2, is_write_late=True)),
    Refutation("fetches-ahead-to-the-end", "StrongIsr", 4, Bounds(2, 1, 1, 2, is_write_late=True)),
    Refutation("forgotten-proposals", "StrongIsr", 7, Bounds(2, 1, 1, 1, is_isr_late=True, given_up=1)),
    Refutation("returns-in-its-epoch", "EpochOffsetUnique", 4, _power(2, records=2)),
    Refutation("last-one-keeps-its-seat", "StrongIsr", 12, _power(2, crashes=2)),
    Refutation("commits-alone", "StrongIsr", 2, _power(2)),
)
"""Rules that were replaced, in the smallest worlds that refute them."""

TESTED = (
    Size("elections, fetches, loss", Bounds(log=1, records=1)),
    Size("late answers", Bounds(replicas=2, is_answer_late=True)),
    Size("fetches ahead", Bounds(2, 3, 3, is_write_late=True)),
    Size("fetches ahead", _power(2, log=2, records=2, epochs=2, unclean=1, is_write_late=True)),
    Size("asynchronous ISR", Bounds(2, 1, 1, 2, is_isr_late=True, given_up=2)),
    Size("asynchronous ISR", Bounds(3, 1, 1, 1, is_isr_late=True, given_up=1)),
    Size("crashes and power", _power(2, crashes=2, log=2, records=2)),
    Size("crashes and power", _power(2, crashes=2, records=2, unclean=1)),
    Size("crashes and power", _power(3)),
    Size("StopReplica", StopBounds()),
    Size("StopReplica", StopBounds(is_tagged=False)),
    Size("metadata quorum", QuorumBounds(epochs=2)),
    Size("metadata quorum", QuorumBounds(records=0, epochs=2, candidates=2, has_pre_votes=True, is_told=True)),
    Size("metadata quorum", QuorumBounds(records=0, epochs=2, losses=0, late_answers=1)),
    Size("metadata quorum", QuorumBounds(nodes=2, is_sync_late=True)),
    Size("metadata quorum", QuorumBounds(nodes=2, epochs=2, snapshots=2)),
    Size("metadata quorum", QuorumBounds(epochs=2, candidates=2, losses=0, amnesia="log")),
    Size("metadata quorum", QuorumBounds(epochs=2, candidates=2, losses=0, amnesia="votes")),
    Size("transactions", TransactionBounds(late_markers=0, transactions=(1, 0))),
    Size("transactions", TransactionBounds(leaders=1)),
    Size("transactions", TransactionBounds(leaders=1, late_markers=0, transactions=(1, 0), late_requests=1)),
    Size("transactions", TransactionBounds(leaders=1, late_markers=0, transactions=(1, 0), losses=1, pending=2)),
    Size("transactions", TransactionBounds(leaders=1, late_markers=0, transactions=(2, 0), losses=1, epoch=LAST_EPOCH)),
    Size("transactions", TransactionBounds(leaders=1, late_markers=0, recovers=True, epoch=LAST_EPOCH)),
    Size("transactions", TransactionBounds(version=1, leaders=1, late_markers=0, recovers=True)),
    Size("transactions", TransactionBounds(version=1, late_markers=0, transactions=(1, 0))),
)
"""What every run of the tests explores."""

FULL = (
    Size("elections, fetches, loss", Bounds()),
    Size("late answers", Bounds(is_answer_late=True)),
    Size("asynchronous ISR", Bounds(epochs=2, is_isr_late=True, given_up=1)),
    Size("asynchronous ISR", Bounds(log=1, records=1, is_isr_late=True, given_up=1)),
    Size("fetches ahead", Bounds(2, 2, 2, 2, is_request_late=True, is_write_late=True, crashes=1, fencings=1)),
    Size("fetches ahead", _power(3, log=2, records=2, is_request_late=True, is_write_late=True)),
    Size("crashes and power", _power(2, epochs=2, is_request_late=True, fencings=1)),
    Size("crashes and power", _power(2, crashes=2, epochs=2, unclean=1, records=2)),
    Size("crashes and power", _power(3, epochs=2)),
    Size("crashes and power", _power(3, crashes=2, unclean=1)),
    Size("StopReplica", StopBounds(changes=9, topics=4, crashes=2)),
    Size("StopReplica", StopBounds(changes=9, topics=4, crashes=2, is_tagged=False)),
    Size("metadata quorum", QuorumBounds(records=0, losses=0)),
    Size("metadata quorum", QuorumBounds(candidates=2, losses=0)),
    Size("metadata quorum", QuorumBounds(epochs=2, losses=0, late_answers=1)),
    Size("metadata quorum", QuorumBounds(epochs=2, losses=0, has_pre_votes=True, is_told=True)),
    Size("metadata quorum", QuorumBounds(epochs=2, snapshots=1)),
    Size("metadata quorum", QuorumBounds(epochs=2, records=0, snapshots=2)),
    Size("metadata quorum", QuorumBounds(epochs=2, amnesia="log")),
    Size("metadata quorum", QuorumBounds(epochs=2, amnesia="votes")),
    Size("transactions", TransactionBounds()),
    Size("transactions", TransactionBounds(transactions=(2, 0))),
    Size("transactions", TransactionBounds(transactions=(1, 0), late_requests=1, losses=1)),
    Size("transactions", TransactionBounds(leaders=1, transactions=(2, 1), pending=2)),
    Size("transactions", TransactionBounds(leaders=3, late_markers=0, transactions=(1, 0), pending=2)),
    Size("transactions", TransactionBounds(leaders=1, late_markers=0, transactions=(2, 1), losses=1, epoch=LAST_EPOCH)),
    Size("transactions", TransactionBounds(version=1, late_markers=0, losses=1)),
)
"""What `make worlds` explores."""
