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
A process that is killed in between has written nothing that counts. The next one registers as the same incarnation: it
is told broker epoch 20 if that was committed, and presents 12 if not. By 12 alone it would be taken for one that lost
its log.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from tidelog.base.ids import BrokerEpoch

INCARNATION_VERSION = 0


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


def format_incarnation(incarnation: Incarnation, boot_id: str) -> bytes:
    """The file, with the run of the machine that keeps what was written."""
    broker_epoch = incarnation.broker_epoch
    content: dict[str, object] = {
        "version": INCARNATION_VERSION,
        "brokerEpoch": -1 if broker_epoch is None else broker_epoch,
        "bootId": boot_id,
    }
    if incarnation.incarnation_id is not None:
        content["incarnation"] = str(incarnation.incarnation_id)
    if incarnation.registers is not None:
        content["registers"] = str(incarnation.registers)
        content["directories"] = sorted(map(str, incarnation.directory_ids))
    return json.dumps(content, separators=(",", ":")).encode()


def parse_incarnation(data: bytes) -> tuple[Incarnation, str] | None:
    """The incarnation and the boot id; None when it holds nothing that can be read: then it proves nothing."""
    try:
        content = json.loads(data)
        known = content["version"] == INCARNATION_VERSION
        broker_epoch, boot_id = content["brokerEpoch"], content["bootId"]
        incarnation_id, registers = (_uuid(content.get(key)) for key in ("incarnation", "registers"))
        directory_ids = frozenset(UUID(text) for text in content.get("directories", ()))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    if not known or not isinstance(broker_epoch, int) or not isinstance(boot_id, str):
        return None
    if broker_epoch < 0 and registers is None:
        return None
    shown = BrokerEpoch(broker_epoch) if broker_epoch >= 0 else None
    return Incarnation(shown, registers, directory_ids, incarnation_id), boot_id


def _uuid(text: str | None) -> UUID | None:
    return None if text is None else UUID(text)
