"""DescribeLogDirs (key 35, KIP-113): what lies in a broker's log directories, and how much room there is.

Version 2 is flexible, 3 has an error of the answer as a whole, 4 the size of the disk and what is free of it (KIP-827),
5 tells which directories are cordoned (KIP-1066).
"""

from __future__ import annotations

from tidelog.wire.schema import array, boolean, field, int16, int32, int64, message, string, struct


@struct
class DescribableLogDirTopic:
    """Some partitions of one topic."""

    topic: str = field(string, doc="The topic.")
    partitions: list[int] = field(array(int32), doc="The partitions.")


@message(api_key=35, versions="1-5", flexible="2+")
class DescribeLogDirsRequest:
    """Ask one broker for its log directories."""

    topics: list[DescribableLogDirTopic] | None = field(
        array(DescribableLogDirTopic), nullable="0+", doc="What to tell of; None for every partition."
    )


@struct
class DescribeLogDirsPartition:
    """One log."""

    partition_index: int = field(int32, doc="The partition.")
    partition_size: int = field(int64, doc="The batches in it, in bytes.")
    offset_lag: int = field(int64, doc="How far its log end lies behind the high watermark.")
    is_future_key: bool = field(boolean, doc="Whether it is a copy that will replace the log of another directory.")


@struct
class DescribeLogDirsTopic:
    """The logs of one topic that lie in a directory."""

    name: str = field(string, doc="The topic.")
    partitions: list[DescribeLogDirsPartition] = field(array(DescribeLogDirsPartition), doc="The logs.")


@struct
class DescribeLogDirsResult:
    """One directory."""

    error_code: int = field(int16, doc="KAFKA_STORAGE_ERROR if it is out of use.")
    log_dir: str = field(string, doc="Its absolute path.")
    topics: list[DescribeLogDirsTopic] = field(
        array(DescribeLogDirsTopic), default_factory=list, doc="What lies in it, of what was asked for."
    )
    total_bytes: int = field(
        int64, versions="4+", default=-1, ignorable=True, doc="The size of the file system it lies on; -1 if unknown."
    )
    usable_bytes: int = field(
        int64, versions="4+", default=-1, ignorable=True, doc="What of it can still be written; -1 if unknown."
    )
    is_cordoned: bool = field(
        boolean, versions="5+", default=False, ignorable=True, doc="Whether no new log may be put there."
    )


@message(api_key=35, versions="1-5", flexible="2+")
class DescribeLogDirsResponse:
    """Every directory of the broker."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, versions="3+", default=0, ignorable=True, doc="Of the answer as a whole.")
    results: list[DescribeLogDirsResult] = field(
        array(DescribeLogDirsResult), default_factory=list, doc="The directories."
    )
