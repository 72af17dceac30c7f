"""Hurt real clusters for a while: `python tests/chaos/run.py --minutes 60`. See README.md beside this file.

Each round has a seed, a cluster of its own, and one kind of fault, or all of them mixed. Ends with 1 if anything is
wrong in any round, with 130 if it was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from chaos.fault import Cost, Fault, Hurt
from chaos.kinds import FAULTS, MIXED
from chaos.leftovers import Home, clear_leftovers
from chaos.play import Plan, play
from chaos.report import Row, add_row, read_rows, table_of
from chaos.sandbox import STOPPED, StoppedError, can_seal, raise_when_stopped, run_apart
from support.fixtures.certificates import missing_openssl

ROOT = Path(__file__).parents[2]
OUTPUT = ROOT / "chaos-output"
CLIENTS_LOG = "clients.log"
ROUND_SECONDS = 40.0
SECURED = 0.3  # of the rounds are secured
MIXED_EVERY = 4  # one round in so many is mixed


def main(arguments: Sequence[str] | None = None) -> int:
    """Play rounds until the time is up. Returns the exit status."""
    options = _parser().parse_args(arguments)
    if options.list:
        print("\n".join(_describe(fault) for fault in FAULTS))
        return 0
    unknown = set(options.only) - {fault.kind for fault in FAULTS} - {MIXED}
    if unknown:
        print(f"error: there is no fault {', '.join(sorted(unknown))}; --list names them", file=sys.stderr)
        return 2
    raise_when_stopped()
    for line in clear_leftovers(options.home):
        print(f"cleared up after a run that was killed: {line}")
    is_sealed = not options.ports and can_seal()
    if not is_sealed:
        print("no network namespaces: nodes have ports of this machine, and no fault hurts the network")
    return _play_all(options, is_sealed=is_sealed)


def _play_all(options: argparse.Namespace, *, is_sealed: bool) -> int:
    deadline, wrong, is_stopped, played = time.monotonic() + options.minutes * 60, 0, False, 0
    home, commit = Home(options.home), _commit()
    try:
        plans = _plans(options, playable_faults(is_sealed=is_sealed))
        for planned in plans:
            if played == options.rounds or time.monotonic() >= deadline:
                break
            left = deadline - time.monotonic()
            plan = replace(planned, seconds=min(planned.seconds, left))
            print(f"{plan.kind}, seed {plan.seed}, for {plan.seconds:.0f} s", flush=True)
            row = _play_one(plan, home.path, is_sealed=is_sealed)
            if row is None:
                is_stopped = True
                break
            played += 1
            row.commit = commit
            add_row(options.report, row)
            print(row.summary(), flush=True)
            if row.error:
                wrong += 1
                print(f"  kept in {_keep(home.path, options.keep, row)}", flush=True)
            shutil.rmtree(home.path / "cluster", ignore_errors=True)
    finally:
        home.clear()
    print(f"\n{table_of(read_rows(options.report))}\n\nall runs so far are in {options.report}")
    return STOPPED if is_stopped else int(wrong > 0)


def _play_one(plan: Plan, home: Path, *, is_sealed: bool) -> Row | None:
    """In a process of its own. None if the run is to be stopped."""
    result = home / "round.json"
    result.unlink(missing_ok=True)

    def work() -> int:
        log = os.open(home / CLIENTS_LOG, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(log, sys.stderr.fileno())  # librdkafka tells of each connection that is lost
        try:
            row = play(plan, home, is_sealed=is_sealed)
        except StoppedError as stopped:
            print(f"stopped by {stopped}", flush=True)
            return STOPPED
        result.write_text(json.dumps(asdict(row)))
        return 0

    status = run_apart(work, is_sealed=is_sealed)
    if status == STOPPED:
        return None
    if not result.exists():
        return Row(kind=plan.kind, seed=plan.seed, nodes=0, is_sealed=is_sealed, error=f"ended with status {status}")
    return Row.of(json.loads(result.read_text()))


def _plans(options: argparse.Namespace, faults: Sequence[Fault]) -> Iterator[Plan]:
    """Round by round; a seed and a kind say all of a round.

    The kind that had the least time so far comes next, in all runs that the report knows; some rounds are mixed.
    """
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    mixed = [fault for fault in faults if fault.is_mixed and fault.cost is Cost.NOTHING]
    may_secure = missing_openssl() is None
    dice = random.Random(seed)
    by_kind = {fault.kind: [fault] for fault in faults}
    kinds = [kind for kind in by_kind if kind in options.only or not options.only]
    is_mixing = bool(mixed) and (MIXED in options.only or not options.only)
    if not kinds and not is_mixing:
        raise SystemExit("error: none of these faults can be played here")
    seconds = dict.fromkeys(kinds, 0.0)
    for row in read_rows(options.report):
        if row.kind in seconds:
            seconds[row.kind] += row.seconds
    for number in count(1):
        if is_mixing and (not kinds or number % MIXED_EVERY == 0):
            kind, played = MIXED, mixed
        else:
            kind = min(seconds, key=lambda one: seconds[one])
            seconds[kind] += options.round_seconds
            played = by_kind[kind]
        is_secured = played[0].is_secured if kind != MIXED else False
        if may_secure and all(fault.prepare is None or fault.is_secured for fault in played):
            is_secured = is_secured or options.secured or dice.random() < SECURED
        if not is_secured:
            played = [fault for fault in played if not fault.is_secured]
        yield Plan(
            kind=kind,
            faults=played,
            is_secured=is_secured,
            seed=seed + number - 1,
            seconds=options.round_seconds,
            is_bare=options.bare,
        )


def playable_faults(*, is_sealed: bool) -> list[Fault]:
    """Those that this machine can play; it is said why others are left out."""
    found = []
    for fault in FAULTS:
        why = fault.needs() if fault.needs is not None else None
        if fault.hurts is Hurt.NETWORK and not is_sealed:
            why = "there are no network namespaces"
        if why is None:
            found.append(fault)
        else:
            print(f"left out: {fault.kind}: {why}")
    return found


def _keep(home: Path, keep: Path, row: Row) -> Path:
    kept = keep / f"{row.seed}-{row.kind.replace(' ', '-')}"
    shutil.rmtree(kept, ignore_errors=True)
    kept.parent.mkdir(parents=True, exist_ok=True)
    if (home / "cluster").exists():
        shutil.copytree(home / "cluster", kept, symlinks=True)
    else:
        kept.mkdir()
    if (home / CLIENTS_LOG).exists():
        shutil.copy(home / CLIENTS_LOG, kept)
    (kept / "round.json").write_text(json.dumps(asdict(row), indent=1))
    return kept


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _describe(fault: Fault) -> str:
    doc = (getattr(fault.strike, "func", fault.strike).__doc__ or "").strip().splitlines()  # of what is partial, too
    least, most = fault.seconds
    return f"{fault.kind}: {doc[0] if doc else ''} ({least:g} to {most:g} s; may cost {fault.cost.value})"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="how long, in all")
    parser.add_argument("--seed", type=int, help="of the first round; the next one has the next")
    parser.add_argument("--only", action="append", default=[], metavar="KIND", help="this kind; may be repeated")
    parser.add_argument("--rounds", type=int, default=-1, help="no more rounds than these")
    parser.add_argument("--round-seconds", type=float, default=ROUND_SECONDS, help="how long each")
    parser.add_argument("--report", type=Path, default=OUTPUT / "report.json", help="what runs add up in")
    parser.add_argument("--keep", type=Path, default=OUTPUT, help="where to put what went wrong")
    parser.add_argument("--home", type=Path, help="where to put the files of nodes; the system's temporary directory")
    parser.add_argument("--ports", action="store_true", help="no namespaces, though there could be")
    parser.add_argument("--bare", action="store_true", help="no groups and no copies beside what is written and read")
    parser.add_argument("--secured", action="store_true", help="TLS, logins and rules wherever they can be")
    parser.add_argument("--list", action="store_true", help="name the faults")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except StoppedError:
        sys.exit(STOPPED)
