"""DescribeToldReaders (key 10004, ours): whom a broker has told that what they read is gone."""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.schema import array, boolean, field, int16, int32, int64, message, string, struct, uuid


@message(api_key=10004, versions="0-1", flexible="0+")
class DescribeToldReadersRequest:
    """Ask one broker: each knows whom it told itself."""

    topics: list[str] | None = field(array(string), nullable="0+", default=None, doc="Of these topics; None: of all.")


@struct
class ToldReaderRow:
    """One reader of one partition."""

    topic: str = field(string, doc="The topic's name.")
    topic_id: UUID = field(uuid, doc="Its id.")
    partition_index: int = field(int32, doc="The partition.")
    client_id: str = field(string, doc="As the reader calls itself.")
    host: str = field(string, doc="Where it is.")
    leader_epoch: int = field(int32, doc="The newest epoch that the reader's branch and this log share.")
    end_offset: int = field(int64, doc="Where that ends here: what was read from there on is gone.")
    has_compared: bool = field(boolean, doc="It was told where its epoch ends, and compares that with its position.")
    count: int = field(int64, doc="How often it was told.")
    first_ms: int = field(int64, doc="When it was told first, in ms since 1970.")
    last_ms: int = field(int64, doc="When it was told last.")
    position: int = field(
        int64, versions="1+", default=-1, ignorable=True, doc="Where it stood, as it says itself; -1: it said nothing."
    )
    resumed_offset: int = field(int64, versions="1+", default=-1, ignorable=True, doc="Where it went on; -1 likewise.")
    policy: str = field(string, versions="1+", default="", ignorable=True, doc="Why it went on, in a word.")
    producer_id: int = field(int64, tag=0, default=-1, doc="Of a producer whose batch was refused; -1 for a reader.")


@message(api_key=10004, versions="0-1", flexible="0+")
class DescribeToldReadersResponse:
    """Who was told longest ago comes first."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="Why there are none.")
    readers: list[ToldReaderRow] = field(array(ToldReaderRow), default_factory=list, doc="The readers.")
