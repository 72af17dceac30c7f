"""What a controller remembers of its brokers beyond the metadata."""

from __future__ import annotations

from uuid import UUID

import pytest

from tidelog.base.ids import BrokerEpoch, BrokerId, Offset
from tidelog.controller import BrokerSessions
from tidelog.controller.sessions import REPLACED_MAX
from tidelog.metadata import MetadataDraft, MetadataImage
from tidelog.metadata.records import RegisterBrokerRecord

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
EPOCH, NEXT_EPOCH = BrokerEpoch(11), BrokerEpoch(12)


def sessions(*registered: BrokerId, fenced: tuple[BrokerId, ...] = (), now_ms: int = 0) -> BrokerSessions:
    """Of a controller that became active with these brokers; a session lasts for 100 ms."""
    metadata = MetadataDraft(MetadataImage.empty())
    for broker_id in registered:
        metadata.apply(
            RegisterBrokerRecord(
                broker_id=broker_id,
                broker_epoch=EPOCH,
                incarnation_id=UUID(int=broker_id),
                end_points=[],
                features=[],
                fenced=broker_id in fenced,
            )
        )
    return BrokerSessions(metadata, end_offset=Offset(50), now_ms=now_ms, session_timeout_ms=100)


def test_a_new_controller_gives_a_whole_session_to_all_that_are_not_fenced() -> None:
    known = sessions(ONE, TWO, fenced=(TWO,), now_ms=7)
    assert [known.is_alive(one, 7) for one in (ONE, TWO, THREE)] == [True, False, False]
    assert known.next_deadline_ms() == 107
    assert known.expired(106) == ()
    assert known.is_alive(ONE, 106)
    assert known.expired(107) == ((ONE, EPOCH),)
    assert not known.is_alive(ONE, 107)
    assert sessions(now_ms=7).next_deadline_ms() is None


def test_who_is_heard_of_begins_its_session_anew_and_the_first_to_end_is_waited_for() -> None:
    known = sessions(ONE, TWO)
    known.on_contact(ONE, EPOCH, None, 60)
    assert known.next_deadline_ms() == 100
    assert known.expired(100) == ((TWO, EPOCH),)
    known.on_contact(ONE, EPOCH, None, 50)  # overtaken: it takes nothing back
    assert known.is_alive(ONE, 159)
    known.on_ended(TWO)
    assert known.next_deadline_ms() == 160
    assert known.expired(160) == ((ONE, EPOCH),)


def test_a_turn_grows_with_whatever_is_heard_of_and_is_0_before_the_first_time() -> None:
    known = sessions(ONE, TWO)
    assert [known.turn(one) for one in (ONE, TWO, THREE)] == [0, 0, 0]
    turns = []
    for broker_id, epoch in ((ONE, EPOCH), (TWO, EPOCH), (ONE, EPOCH), (ONE, NEXT_EPOCH)):
        known.on_contact(broker_id, epoch, None, 5)
        turns.append(known.turn(broker_id))
    assert turns == sorted(set(turns))
    assert turns[0] > 0


@pytest.mark.parametrize(
    ("told", "knows"), [([], False), ([None], False), ([48], False), ([49], True), ([49, 3], True)]
)
def test_a_new_controller_waits_until_brokers_have_seen_all_that_there_was_when_it_began(
    told: list[int | None], *, knows: bool
) -> None:
    known = sessions(ONE, TWO)
    for offset in told:
        known.on_contact(TWO, EPOCH, None if offset is None else Offset(offset), 5)
    assert known.know_of_move(ONE, [TWO]) == knows
    assert known.know_of_move(ONE, [])
    assert not known.know_of_move(ONE, [TWO, THREE]), "nobody has heard of 3"


def test_brokers_have_to_have_seen_the_last_move_of_that_broker() -> None:
    known = sessions(ONE, TWO, THREE)
    known.on_contact(TWO, EPOCH, Offset(70), 5)
    known.on_leaderships_moved(ONE, Offset(71))
    assert known.know_of_move(ONE, [TWO])
    known.on_leaderships_moved(ONE, Offset(72))
    assert not known.know_of_move(ONE, [TWO])
    assert known.know_of_move(THREE, [TWO]), "that moved nothing"
    known.on_contact(TWO, EPOCH, Offset(71), 6)
    known.on_contact(TWO, EPOCH, None, 7)
    assert known.know_of_move(ONE, [TWO]), "what it saw it has seen"
    known.on_contact(TWO, NEXT_EPOCH, Offset(60), 8)
    assert not known.know_of_move(ONE, [TWO]), "its next incarnation has yet to"


@pytest.mark.parametrize("is_ended", [False, True])
def test_what_a_broker_moved_before_it_registered_anew_or_ended_is_over(*, is_ended: bool) -> None:
    known = sessions(ONE, TWO)
    known.on_contact(TWO, EPOCH, Offset(60), 5)
    known.on_leaderships_moved(ONE, Offset(72))
    assert not known.know_of_move(ONE, [TWO])
    if is_ended:
        known.on_ended(ONE)
    else:
        known.on_contact(ONE, NEXT_EPOCH, None, 6)
    assert known.know_of_move(ONE, [TWO])


def test_an_incarnation_that_is_leaving_does_so_until_nothing_was_done_for_a_session() -> None:
    known = sessions(ONE)
    assert not known.is_leaving(ONE, EPOCH, 0)
    known.on_leaving(ONE, EPOCH, 10)
    assert known.is_leaving(ONE, EPOCH, 109)
    assert not known.is_leaving(ONE, EPOCH, 110)
    assert not known.is_leaving(ONE, NEXT_EPOCH, 10), "that is another incarnation"
    known.on_leaving(ONE, EPOCH, 50)
    assert known.is_leaving(ONE, EPOCH, 149)
    known.on_ended(ONE)
    assert not known.is_leaving(ONE, EPOCH, 50)


def test_the_last_incarnations_that_were_replaced_are_remembered() -> None:
    known = sessions(ONE)
    for number in range(REPLACED_MAX + 1):
        known.on_replaced(ONE, UUID(int=number))
    assert not known.was_replaced(ONE, UUID(int=0))
    assert all(known.was_replaced(ONE, UUID(int=number)) for number in range(1, REPLACED_MAX + 1))
    assert not known.was_replaced(TWO, UUID(int=1))
