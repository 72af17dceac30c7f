"""Producer ids: each broker gets them in blocks, and no id is ever given twice.

Kafka: `ProducerIdControlManager`.
"""

from __future__ import annotations

from tidelog.base.errors import Code, refusal
from tidelog.base.ids import BrokerEpoch, BrokerId, ProducerId
from tidelog.controller.brokers import registered
from tidelog.controller.values import ProducerIdBlock
from tidelog.journal import Decision
from tidelog.metadata.image import MetadataView
from tidelog.metadata.records.cluster import ProducerIdsRecord

PRODUCER_ID_BLOCK_SIZE = 1000
PRODUCER_ID_MAX = (1 << 63) - 1


def decide_allocate_producer_ids(
    metadata: MetadataView, broker_id: BrokerId, broker_epoch: BrokerEpoch
) -> Decision[ProducerIdBlock]:
    """Give a broker the next block of ids.

    Raises:
        KafkaError: BROKER_ID_NOT_REGISTERED; STALE_BROKER_EPOCH; UNKNOWN_SERVER_ERROR when all ids are gone.
    """
    registered(metadata, broker_id, broker_epoch)
    first = metadata.next_producer_id
    if first > PRODUCER_ID_MAX - PRODUCER_ID_BLOCK_SIZE:
        raise refusal(Code.UNKNOWN_SERVER_ERROR, "there are no producer ids left")
    block = ProducerIdBlock(ProducerId(first), PRODUCER_ID_BLOCK_SIZE)
    record = ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=block.end)
    return Decision((record,), block)
