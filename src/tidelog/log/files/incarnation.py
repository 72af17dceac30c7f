"""Which incarnation of a broker writes to a log directory: the file `.tidelog_incarnation`.

```
 {"brokerEpoch":12, "bootId":…}                        broker epoch 12 writes here
      │ before the next process registers
      ▼
 {"brokerEpoch":12, "registers":ID, "directories":…}   it presents 12, as the incarnation ID: whether that is committed
      │ before it serves                               is known to the controller alone
      ▼
 {"brokerEpoch":20, "incarnation":ID, "bootId":…}      broker epoch 20 writes here
```
The file has two halves, which are written in turn and in place: a full disk, on which a start may come to nothing again
and again, has room for that.

A process that is killed in between has written nothing that counts. The next one registers as the same incarnation: it
is told broker epoch 20 if that was committed, and presents 12 if not. By 12 alone it would be taken for one that lost
its log.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from tidelog.base.ids import BrokerEpoch
from tidelog.records.crc32c import crc32c

INCARNATION_VERSION = 1
SLOT_BYTES = 16_384
"""For each of two notes: enough for one of 400 directories."""


@dataclass(frozen=True, slots=True)
class Incarnation:
    """What a directory says of the process that had it last.

    Attributes:
        broker_epoch: that wrote to it last; None if what it wrote may be lost.
        registers: the incarnation that a process wanted to be, which had not served by then; None if none did.
        directory_ids: all that it had, of a process that wanted to register.
        incarnation_id: the incarnation that has `broker_epoch`, where it is known.
    """

    broker_epoch: BrokerEpoch | None
    registers: UUID | None = None
    directory_ids: frozenset[UUID] = frozenset()
    incarnation_id: UUID | None = None


NOTHING = Incarnation(None)
"""Nothing can be shown."""


def incarnation_of_all(found: Sequence[Incarnation]) -> Incarnation:
    """What several directories show together. The process may have been killed when only some were written.

    None of them is older than the registration that the others speak of: each was written before it was asked for.
    """
    if not found or NOTHING in found:
        return NOTHING
    registered = [each for each in found if each.registers is None]
    begun = [each for each in found if each.registers is not None]
    if begun and begun.count(begun[0]) != len(begun):
        return NOTHING
    if not registered:
        return begun[0]
    broker_epoch = registered[0].broker_epoch
    if any(each.broker_epoch != broker_epoch for each in registered):
        return NOTHING
    if not begun or begun[0].broker_epoch == broker_epoch:
        return Incarnation(broker_epoch)
    is_over = any(each.incarnation_id == begun[0].registers for each in registered)
    return Incarnation(broker_epoch) if is_over else NOTHING


class Note(NamedTuple):
    """What the file says.

    Attributes:
        boot_id: of the run of the machine that keeps what was written.
        number: of the note; the next has one more.
    """

    incarnation: Incarnation
    boot_id: str
    number: int


def slot_of(number: int) -> int:
    """Where in the file a note lies. The one before it lies in the other half, and holds until this one is whole."""
    return number % 2 * SLOT_BYTES


def format_note(note: Note) -> bytes:
    """One half of the file.

    Raises:
        ValueError: the node has so many directories that they have no room in it.
    """
    broker_epoch, registers = note.incarnation.broker_epoch, note.incarnation.registers
    content: dict[str, object] = {
        "version": INCARNATION_VERSION,
        "number": note.number,
        "brokerEpoch": -1 if broker_epoch is None else broker_epoch,
        "bootId": note.boot_id,
    }
    if note.incarnation.incarnation_id is not None:
        content["incarnation"] = str(note.incarnation.incarnation_id)
    if registers is not None:
        content["registers"] = str(registers)
        content["directories"] = sorted(map(str, note.incarnation.directory_ids))
    text = json.dumps(content, separators=(",", ":")).encode()
    slot = b"%s %08x\n" % (text, crc32c(text))
    if len(slot) > SLOT_BYTES:
        raise ValueError(f"a note of {len(slot)} bytes; {SLOT_BYTES} are kept for it")
    return slot.ljust(SLOT_BYTES)


def parse_notes(data: bytes) -> Note | None:
    """The newest note; None when there is none that can be read: then the file proves nothing."""
    if data.startswith(b"{") and data.endswith(b"}"):
        return _parse(data)  # of a release before version 1: one note, and nothing else
    notes = [_parse_slot(data[start : start + SLOT_BYTES]) for start in (0, SLOT_BYTES)]
    return max((note for note in notes if note is not None), key=lambda note: note.number, default=None)


def _parse_slot(slot: bytes) -> Note | None:
    text, _, checksum = slot.rstrip().rpartition(b" ")
    return _parse(text) if checksum == b"%08x" % crc32c(text) else None


def _parse(text: bytes) -> Note | None:
    try:
        content = json.loads(text)
        known = content["version"] in (0, INCARNATION_VERSION)
        broker_epoch, boot_id, number = content["brokerEpoch"], content["bootId"], content.get("number", 0)
        incarnation_id, registers = (_uuid(content.get(key)) for key in ("incarnation", "registers"))
        directory_ids = frozenset(UUID(text) for text in content.get("directories", ()))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    if not known or not isinstance(broker_epoch, int) or not isinstance(boot_id, str) or not isinstance(number, int):
        return None
    if broker_epoch < 0 and registers is None:
        return None
    shown = BrokerEpoch(broker_epoch) if broker_epoch >= 0 else None
    return Note(Incarnation(shown, registers, directory_ids, incarnation_id), boot_id, number)


def _uuid(text: str | None) -> UUID | None:
    return None if text is None else UUID(text)
