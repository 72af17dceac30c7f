"""BrokerRegistration (key 62): a broker that has started asks the controller for an incarnation (KIP-631).

Version 1 marks brokers that migrate from ZooKeeper, 2 names log directories (KIP-858), 3 presents the incarnation
before, which stopped cleanly (KIP-966), 4 may name features whose lowest level is 0. All are flexible. The boot of the
machine is a tagged field of ours, with a tag far from those of others, which ignore it.
"""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.schema import array, boolean, field, int16, int32, int64, message, string, struct, uint16, uuid

BOOT_ID_TAG = 10_000


@struct
class Listener:
    """Where the broker listens, under one listener name."""

    name: str = field(string, doc="The listener's name.")
    host: str = field(string, doc="The host that others reach it by.")
    port: int = field(uint16, doc="Its port.")
    security_protocol: int = field(int16, default=0, doc="0: plain; 1: TLS; 2: SASL; 3: SASL over TLS.")


@struct
class Feature:
    """A feature that the broker can run with (KIP-584)."""

    name: str = field(string, doc="The feature, as `metadata.version`.")
    min_supported_version: int = field(int16, doc="The lowest level. Before version 4 it may not be 0.")
    max_supported_version: int = field(int16, doc="The highest level.")


@message(api_key=62, versions="0-4", flexible="0+")
class BrokerRegistrationRequest:
    """What a broker is, when it starts."""

    broker_id: int = field(int32, doc="The broker.")
    cluster_id: str = field(string, doc="The cluster that it belongs to.")
    incarnation_id: UUID = field(uuid, doc="Of this process: a request that is sent again is no other incarnation.")
    listeners: list[Listener] = field(array(Listener), default_factory=list, doc="Where it listens.")
    features: list[Feature] = field(array(Feature), default_factory=list, doc="What it can run with.")
    rack: str | None = field(string, nullable="0+", default=None, doc="Where it stands.")
    is_migrating_zk_broker: bool = field(boolean, versions="1+", default=False, doc="Never, here.")
    log_dirs: list[UUID] = field(
        array(uuid), versions="2+", default_factory=list, ignorable=True, doc="The ids of its directories."
    )
    previous_broker_epoch: int = field(
        int64,
        versions="3+",
        default=-1,
        ignorable=True,
        doc="Of an incarnation that lost nothing since; or -1.",
    )
    boot_id: str | None = field(
        string,
        nullable="0+",
        tag=BOOT_ID_TAG,
        default=None,
        ignorable=True,
        doc="Changes whenever the machine starts; None if it is not known (a field of ours).",
    )


@message(api_key=62, versions="0-4", flexible="0+")
class BrokerRegistrationResponse:
    """The incarnation."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="0 if it is registered.")
    broker_epoch: int = field(int64, default=-1, doc="The incarnation, or -1 if there is none.")
