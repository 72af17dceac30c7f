"""Records of brokers: who is registered, where it listens, and whether it may lead."""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.schema import array, boolean, field, int8, int16, int32, int64, message, string, struct, uint16, uuid

FENCED = 1
UNFENCED = -1
UNCHANGED = 0
IN_CONTROLLED_SHUTDOWN = 1


@struct
class BrokerEndpoint:
    """Where a broker listens under one listener name."""

    name: str = field(string, doc="The listener's name.")
    host: str = field(string, doc="What clients are told to connect to.")
    port: int = field(uint16, doc="The port.")
    security_protocol: int = field(int16, doc="0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.")


@struct
class BrokerFeature:
    """The levels of one feature that a broker can work at."""

    name: str = field(string, doc="The feature's name.")
    min_supported_version: int = field(int16, doc="The lowest level.")
    max_supported_version: int = field(int16, doc="The highest level.")


@message(api_key=0, versions="0-3", flexible="0+", kind="record")
class RegisterBrokerRecord:
    """A broker registered: a new incarnation, or the same one with new facts."""

    broker_id: int = field(int32, doc="The broker's id.")
    is_migrating_zk_broker: bool = field(boolean, versions="2+", default=False, doc="Always false here.")
    incarnation_id: UUID = field(uuid, doc="Drawn anew by each process of the broker.")
    broker_epoch: int = field(int64, doc="The offset of the record that registered this incarnation.")
    end_points: list[BrokerEndpoint] = field(array(BrokerEndpoint), doc="Its listeners.")
    features: list[BrokerFeature] = field(array(BrokerFeature), doc="What it supports.")
    rack: str | None = field(string, nullable="0+", default=None, doc="Its rack, if it has one.")
    fenced: bool = field(boolean, default=True, doc="Whether it may not lead yet.")
    in_controlled_shutdown: bool = field(boolean, versions="1+", default=False, doc="Whether it is on its way out.")
    log_dirs: list[UUID] = field(
        array(uuid),
        versions="3+",
        tag=0,
        tagged="3+",
        default_factory=list,
        doc="The ids of its working log directories.",
    )


@message(api_key=1, versions="0", flexible="0+", kind="record")
class UnregisterBrokerRecord:
    """A broker is gone for good."""

    broker_id: int = field(int32, doc="The broker's id.")
    broker_epoch: int = field(int64, doc="Its last incarnation.")


@message(api_key=17, versions="0-2", flexible="0+", kind="record")
class BrokerRegistrationChangeRecord:
    """A registered broker was fenced, unfenced, or began to shut down."""

    broker_id: int = field(int32, doc="The broker's id.")
    broker_epoch: int = field(int64, doc="The incarnation that it is about.")
    fenced: int = field(int8, tag=0, tagged="0+", default=UNCHANGED, doc="1 fenced, -1 unfenced, 0 as it was.")
    in_controlled_shutdown: int = field(
        int8, versions="1+", tag=1, tagged="1+", default=UNCHANGED, doc="1 shutting down, 0 as it was."
    )
    log_dirs: list[UUID] = field(
        array(uuid),
        versions="2+",
        tag=2,
        tagged="2+",
        default_factory=list,
        doc="Its log directories, if they changed.",
    )
