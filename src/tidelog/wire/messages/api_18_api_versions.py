"""ApiVersions (key 18): which APIs a broker serves, in which versions, and which features are on."""

from __future__ import annotations

from tidelog.wire.schema import array, boolean, field, int16, int32, int64, message, string, struct

# A broker answers a request of a version that it does not serve in version 0, with UNSUPPORTED_VERSION and its own
# row of the table, so that the client can ask again (KIP-511). The response's header has version 0 always.


@message(api_key=18, versions="0-4", flexible="3+")
class ApiVersionsRequest:
    """The first request on a connection."""

    client_software_name: str = field(
        string, versions="3+", default="", ignorable=True, doc="Of the client's library: letters, digits, `.` and `-`."
    )
    client_software_version: str = field(
        string, versions="3+", default="", ignorable=True, doc="Likewise: the version of the library."
    )


@struct
class ApiVersion:
    """One API, and the versions of it that are served, both inclusive."""

    api_key: int = field(int16, doc="The API.")
    min_version: int = field(int16, doc="The lowest version.")
    max_version: int = field(int16, doc="The highest version.")


@struct
class SupportedFeatureKey:
    """A feature that this broker could run with (KIP-584)."""

    name: str = field(string, doc="The feature, as `metadata.version`.")
    min_version: int = field(int16, doc="The lowest level. Before version 4 of the API it may not be 0.")
    max_version: int = field(int16, doc="The highest level.")


@struct
class FinalizedFeatureKey:
    """A feature that the whole cluster runs with (KIP-584)."""

    name: str = field(string, doc="The feature.")
    max_version_level: int = field(int16, doc="The highest level that is in force.")
    min_version_level: int = field(int16, doc="The lowest level that is in force.")


@message(api_key=18, versions="0-4", flexible="3+")
class ApiVersionsResponse:
    """What the broker serves."""

    error_code: int = field(int16, default=0, doc="UNSUPPORTED_VERSION, with a body of version 0; else none.")
    api_keys: list[ApiVersion] = field(array(ApiVersion), default_factory=list, doc="The APIs served.")
    throttle_time_ms: int = field(int32, versions="1+", default=0, ignorable=True, doc="How long it was held back.")
    supported_features: list[SupportedFeatureKey] = field(
        array(SupportedFeatureKey),
        versions="3+",
        tag=0,
        default_factory=list,
        ignorable=True,
        doc="Before version 4, leave out those whose lowest level is 0: clients fail on them.",
    )
    finalized_features_epoch: int = field(
        int64, versions="3+", tag=1, default=-1, ignorable=True, doc="Grows with each change of features; -1: unknown."
    )
    finalized_features: list[FinalizedFeatureKey] = field(
        array(FinalizedFeatureKey),
        versions="3+",
        tag=2,
        default_factory=list,
        ignorable=True,
        doc="Meant only if the epoch is known.",
    )
    zk_migration_ready: bool = field(
        boolean, versions="3+", tag=3, default=False, ignorable=True, doc="Of controllers that migrate from ZooKeeper."
    )
