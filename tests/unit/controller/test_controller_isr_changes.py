"""AlterPartition: what a leader believed is checked again, and what is granted says so in a new partition epoch."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, PartitionIndex, TopicId
from tidelog.controller import (
    BrokerToRegister,
    ControllerSettings,
    ControllerState,
    IsrChange,
    IsrMember,
    PartitionToAlter,
)
from tidelog.controller.isr_changes import alter_partition
from tidelog.controller.leaders import NO_DIRECTORY
from tidelog.metadata import BrokerImage, PartitionImage, RegisteredEndpoint
from tidelog.metadata.records import BrokerRegistrationChangeRecord, PartitionRecord, TopicRecord

ONE, TWO, THREE, FOUR = BrokerId(1), BrokerId(2), BrokerId(3), BrokerId(4)
TOPIC = TopicId(UUID(int=77))
PARTITION = PartitionImage((ONE, TWO, THREE), (ONE, TWO), ONE, LeaderEpoch(5), PartitionEpoch(9))
CHANGE = IsrChange(LeaderEpoch(5), PartitionEpoch(9), (IsrMember(ONE, BrokerEpoch(101)), IsrMember(TWO, None)))


def broker(number: int, *, is_fenced: bool = False, is_leaving: bool = False) -> BrokerImage:
    return BrokerImage(
        BrokerId(number),
        BrokerEpoch(100 + number),
        UUID(int=number),
        (),
        None,
        is_fenced,
        in_controlled_shutdown=is_leaving,
    )


BROKERS = {BrokerId(number): broker(number) for number in (1, 2, 3, 4)}


def isr_of(*members: tuple[BrokerId, int | None]) -> tuple[IsrMember, ...]:
    return tuple(IsrMember(one, None if epoch is None else BrokerEpoch(epoch)) for one, epoch in members)


def alter(
    change: IsrChange, partition: PartitionImage = PARTITION, *, sender: BrokerId = ONE, min_insync: int = 2
) -> PartitionImage:
    return alter_partition(
        partition,
        change,
        BROKERS,
        sender=sender,
        sender_epoch=BrokerEpoch(100 + sender),
        min_insync_replicas=min_insync,
    )


def refusal_of(change: IsrChange, partition: PartitionImage = PARTITION, *, sender: BrokerId = ONE) -> Code:
    with pytest.raises(KafkaError) as refused:
        alter(change, partition, sender=sender)
    return refused.value.code


def test_growing_is_granted_in_the_order_of_the_replicas() -> None:
    grown = alter(replace(CHANGE, isr=isr_of((THREE, 103), (TWO, 102), (ONE, 101))))
    assert grown == replace(PARTITION, isr=(ONE, TWO, THREE), partition_epoch=PartitionEpoch(10))


def test_who_leaves_while_too_few_stay_is_eligible_to_lead() -> None:
    alone = alter(replace(CHANGE, isr=isr_of((ONE, 101))))
    assert (alone.isr, alone.eligible_leader_replicas, alone.leader) == ((ONE,), (TWO,), ONE)
    assert alter(replace(CHANGE, isr=isr_of((ONE, 101))), min_insync=1).eligible_leader_replicas == ()
    joined = alter(replace(CHANGE, partition_epoch=PartitionEpoch(10), isr=isr_of((ONE, 101), (THREE, 103))), alone)
    assert (joined.isr, joined.eligible_leader_replicas) == ((ONE, THREE), ())


def test_the_same_isr_is_granted_in_a_new_partition_epoch() -> None:
    odd = replace(PARTITION, isr=(TWO, ONE))
    assert alter(CHANGE, odd) == replace(odd, partition_epoch=PartitionEpoch(10))


def test_a_leader_recovers_from_an_unclean_election_alone() -> None:
    recovering = replace(PARTITION, isr=(ONE,), is_recovering=True)
    alone = replace(CHANGE, isr=isr_of((ONE, 101)))
    assert not alter(alone, recovering).is_recovering
    assert alter(replace(alone, is_recovering=True), recovering).is_recovering
    assert refusal_of(CHANGE, recovering) == Code.INVALID_REQUEST
    assert refusal_of(replace(CHANGE, is_recovering=True)) == Code.INVALID_REQUEST


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (replace(CHANGE, leader_epoch=LeaderEpoch(4)), Code.FENCED_LEADER_EPOCH),
        (replace(CHANGE, leader_epoch=LeaderEpoch(6)), Code.NOT_CONTROLLER),
        (replace(CHANGE, partition_epoch=PartitionEpoch(8)), Code.INVALID_UPDATE_VERSION),
        (replace(CHANGE, partition_epoch=PartitionEpoch(10)), Code.NOT_CONTROLLER),
        (replace(CHANGE, leader_epoch=LeaderEpoch(4), partition_epoch=PartitionEpoch(8)), Code.FENCED_LEADER_EPOCH),
        (replace(CHANGE, isr=isr_of((TWO, 102))), Code.INVALID_REQUEST),
        (replace(CHANGE, isr=()), Code.INVALID_REQUEST),
        (replace(CHANGE, isr=isr_of((ONE, 101), (ONE, 101))), Code.INVALID_REQUEST),
        (replace(CHANGE, isr=isr_of((ONE, 101), (FOUR, 104))), Code.INVALID_REQUEST),
        (replace(CHANGE, isr=isr_of((ONE, 101), (THREE, 90))), Code.INELIGIBLE_REPLICA),
        (replace(CHANGE, isr=isr_of((ONE, 101), (THREE, 104))), Code.INELIGIBLE_REPLICA),
    ],
)
def test_what_is_refused(change: IsrChange, code: Code) -> None:
    assert refusal_of(change) == code


def test_nobody_joins_with_a_replica_in_a_directory_that_failed() -> None:
    """It may have fetched just before: what it has can be read by nobody any more."""
    left, lost = UUID(int=1), UUID(int=2)
    brokers = {**BROKERS, TWO: replace(BROKERS[TWO], log_dirs=(left,))}

    def asked(directory: UUID) -> PartitionImage:
        directories = tuple(directory if broker == TWO else NO_DIRECTORY for broker in PARTITION.replicas)
        return alter_partition(
            replace(PARTITION, isr=(ONE,), directories=directories),
            CHANGE,
            brokers,
            sender=ONE,
            sender_epoch=BrokerEpoch(101),
            min_insync_replicas=2,
        )

    with pytest.raises(KafkaError) as refused:
        asked(lost)
    assert refused.value.code == Code.INELIGIBLE_REPLICA
    assert set(asked(left).isr) == set(asked(NO_DIRECTORY).isr) == {ONE, TWO}


def test_only_the_leader_asks_and_only_its_registered_incarnation() -> None:
    assert refusal_of(CHANGE, sender=TWO) == Code.INVALID_REQUEST
    for sender, epoch, says in (
        (ONE, 100, "is registered at 101"),
        (ONE, 102, "is registered at 101"),
        (BrokerId(9), 109, "is not registered"),
    ):
        with pytest.raises(KafkaError, match=says) as refused:
            alter_partition(
                PARTITION, CHANGE, BROKERS, sender=sender, sender_epoch=BrokerEpoch(epoch), min_insync_replicas=2
            )
        assert refused.value.code == Code.STALE_BROKER_EPOCH


@pytest.mark.parametrize("third", [None, broker(3, is_fenced=True), broker(3, is_leaving=True)])
def test_who_is_not_there_may_not_join(third: BrokerImage | None) -> None:
    brokers = {ONE: BROKERS[ONE], TWO: BROKERS[TWO]} | ({} if third is None else {THREE: third})
    change = replace(CHANGE, isr=isr_of((ONE, None), (TWO, None), (THREE, None)))
    with pytest.raises(KafkaError) as refused:
        alter_partition(PARTITION, change, brokers, sender=ONE, sender_epoch=BrokerEpoch(101), min_insync_replicas=2)
    assert refused.value.code == Code.INELIGIBLE_REPLICA


def test_a_leader_that_shuts_down_lets_in_who_could_take_over() -> None:
    brokers = {**BROKERS, ONE: broker(1, is_leaving=True)}
    change = replace(CHANGE, isr=isr_of((ONE, 101), (TWO, 102), (THREE, 103)))
    altered = alter_partition(
        PARTITION, change, brokers, sender=ONE, sender_epoch=BrokerEpoch(101), min_insync_replicas=2
    )
    assert altered.isr == (ONE, TWO, THREE)


def test_each_partition_of_a_request_stands_for_itself() -> None:
    state = ControllerState(ControllerSettings())
    epochs = {}
    for number in (1, 2):
        new = BrokerToRegister(BrokerId(number), UUID(int=number), (RegisteredEndpoint("PLAINTEXT", "h", 9092),))
        registering = state.decide_register_broker(new, next_offset=100 + number)  # type: ignore[arg-type]
        epochs[number] = registering.reply.broker_epoch
        records = [
            *registering.records,
            BrokerRegistrationChangeRecord(broker_id=number, broker_epoch=100 + number, fenced=-1),
        ]
        for record in records:
            state.apply(record)
    state.apply(TopicRecord(name="t", topic_id=TOPIC))
    for index in range(3):
        state.apply(
            PartitionRecord(
                partition_id=index,
                topic_id=TOPIC,
                replicas=[1, 2],
                isr=[1, 2],
                leader=1,
                leader_epoch=5,
                partition_epoch=9,
            )
        )
    alone = replace(CHANGE, isr=isr_of((ONE, 101)))
    asked = [
        PartitionToAlter(TOPIC, PartitionIndex(0), alone),
        PartitionToAlter(TOPIC, PartitionIndex(1), replace(alone, leader_epoch=LeaderEpoch(4))),
        PartitionToAlter(TOPIC, PartitionIndex(2), alone),
        PartitionToAlter(TOPIC, PartitionIndex(2), CHANGE),
        PartitionToAlter(TOPIC, PartitionIndex(3), alone),
        PartitionToAlter(TOPIC, PartitionIndex(-1), alone),
        PartitionToAlter(TopicId(UUID(int=78)), PartitionIndex(0), alone),
    ]
    decision = state.decide_alter_partitions(ONE, epochs[1], asked)
    assert [one.code for one in decision.reply] == [
        Code.NONE,
        Code.FENCED_LEADER_EPOCH,
        Code.INVALID_REQUEST,
        Code.INVALID_REQUEST,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.UNKNOWN_TOPIC_ID,
    ]
    for record in decision.records:
        state.apply(record)
    assert state.metadata.topics_by_id[TOPIC].partitions[0] == decision.reply[0].state
    assert state.metadata.topics_by_id[TOPIC].partitions[0].isr == (ONE,)
    with pytest.raises(KafkaError, match="asks at broker epoch"):
        state.decide_alter_partitions(ONE, BrokerEpoch(1), asked)
