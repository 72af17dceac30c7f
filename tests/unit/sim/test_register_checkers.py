"""What answers may say of a value that somebody wrote: MetadataNeverGoesBack, OwnWritesSeen, RevokedStaysDenied."""

from __future__ import annotations

from tidelog.base.ids import Offset
from tidelog.sim.checkers.registers import Registers, Sight

RULE = "rule"
ALLOWED = Sight("that it may", lambda value: value == "allow", is_grant=True)
DENIED = Sight("that it may not", lambda value: value != "allow")


def write(registers: Registers, value: object, *, who: str = "X") -> None:
    registers.on_written(who, registers.begin_write(RULE, value))


def read(registers: Registers, sight: Sight, *, who: str = "X", token: int | None = None) -> list[str]:
    begun = registers.begin_read(who)
    found = registers.on_answered(begun, {RULE: sight}, None if token is None else Offset(token))
    return [str(one) for one in found]


def test_what_was_written_is_seen() -> None:
    registers = Registers()
    assert read(registers, Sight.of(None)) == []
    write(registers, "allow")
    assert read(registers, Sight.of("allow")) == []
    assert read(registers, Sight.of(None)) == ["OwnWritesSeen: X wrote 'allow' to rule, and was told None"]
    assert read(registers, DENIED) == ["OwnWritesSeen: X wrote 'allow' to rule, and was told that it may not"]


def test_what_was_revoked_stays_denied() -> None:
    registers = Registers()
    write(registers, "allow")
    begun = registers.begin_read("X")
    write(registers, None)
    assert list(registers.on_answered(begun, {RULE: ALLOWED})) == []
    assert read(registers, DENIED) == []
    assert read(registers, ALLOWED) == ["RevokedStaysDenied: X wrote None to rule, and was told that it may"]


def test_who_wrote_nothing_only_goes_forward() -> None:
    registers = Registers()
    write(registers, 1)
    write(registers, 2)
    assert read(registers, Sight.of(1), who="Y") == []
    assert read(registers, Sight.of(2), who="Y") == []
    assert read(registers, Sight.of(1), who="Y") == ["MetadataNeverGoesBack: Y was told 1 of rule, after 2"]
    assert read(registers, Sight.of(1), who="Z") == []


def test_a_value_that_comes_back_may_be_the_first_or_the_last() -> None:
    registers = Registers()
    write(registers, 1, who="W")
    assert read(registers, Sight.of(None), who="Y") == []
    assert read(registers, Sight.of(1), who="Y") == []
    assert read(registers, Sight.of(None), who="Y") == ["MetadataNeverGoesBack: Y was told None of rule, after 1"]
    registers.begin_write(RULE, None)
    assert read(registers, Sight.of(None), who="Y") == []


def test_a_write_without_an_answer_may_have_happened() -> None:
    registers = Registers()
    write(registers, 1)
    registers.begin_write(RULE, 2)
    assert read(registers, Sight.of(1)) == []
    assert read(registers, Sight.of(2)) == []
    assert read(registers, Sight.of(1)) == ["MetadataNeverGoesBack: X was told 1 of rule, after 2"]


def test_what_nobody_ever_wrote_is_not_seen() -> None:
    registers = Registers()
    assert read(registers, Sight.of(3)) == ["OwnWritesSeen: X wrote None to rule, and was told 3"]


def test_of_two_reads_that_overlap_either_may_be_newer() -> None:
    registers = Registers()
    write(registers, 1, who="W")
    early, late = registers.begin_read("X"), registers.begin_read("X")
    assert list(registers.on_answered(late, {RULE: Sight.of(1)})) == []
    assert list(registers.on_answered(early, {RULE: Sight.of(None)})) == []
    assert read(registers, Sight.of(None)) != []


def test_tokens_only_grow() -> None:
    registers = Registers()
    assert read(registers, Sight.of(None), token=5) == []
    assert read(registers, Sight.of(None), token=4) == ["MetadataNeverGoesBack: X was answered as of offset 4, after 5"]
