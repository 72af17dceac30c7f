"""Our codecs against kafka-python's, byte for byte, in both directions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.clients.kafka_python_messages import decode_with_kafka_python, encode_with_kafka_python, highest_version
from support.clients.wire_samples import SHARED_MESSAGE_IDS, SHARED_MESSAGES, message_id, messages, sample
from support.examples import examples
from tidelog.wire import decode, encode
from tidelog.wire.messages.api_18_api_versions import ApiVersionsResponse

VECTORS = Path(__file__).parents[2] / "vectors" / "wire_kafka_python.txt"


def test_kafka_python_knows_every_version_that_we_declare() -> None:
    unknown = [message_id(cls, version) for cls, version in SHARED_MESSAGES if version > highest_version(cls.__name__)]
    assert unknown == []


@pytest.mark.parametrize(("cls", "version"), SHARED_MESSAGES, ids=SHARED_MESSAGE_IDS)
@settings(max_examples=examples(5))
@given(data=st.data())
def test_both_write_the_same_bytes_and_read_each_other(cls: type[Any], version: int, data: st.DataObject) -> None:
    message = data.draw(messages(cls, version, with_ours=False))
    if isinstance(message, ApiVersionsResponse):
        message.error_code = 0  # kafka-python reads one with an error as version 0, whatever the version
    ours = encode(message, version)
    theirs = encode_with_kafka_python(message, version)
    assert ours == theirs
    assert decode_with_kafka_python(cls, ours, version) == message
    assert decode(cls, theirs, version) == message


def vectors() -> dict[str, bytes]:
    lines = VECTORS.read_text().splitlines()
    parts = (line.partition(" ") for line in lines if not line.startswith("#"))
    return {name: bytes.fromhex(raw) for name, _, raw in parts}


@pytest.mark.parametrize(("cls", "version"), SHARED_MESSAGES, ids=SHARED_MESSAGE_IDS)
def test_the_stored_bytes_stay_as_they_are(cls: type[Any], version: int) -> None:
    stored = vectors()[message_id(cls, version)]
    message = sample(cls, version, with_ours=False)
    assert encode(message, version) == stored
    assert decode(cls, stored, version) == message


def write_vectors() -> None:
    """Make the file anew with kafka-python: `PYTHONPATH=tests python tests/unit/wire/test_wire_kafka_python.py`."""
    lines = ["# One message a line, with every field set (clients/wire_samples.py), as kafka-python encodes it."]
    lines += [
        f"{message_id(cls, version)} {encode_with_kafka_python(sample(cls, version, with_ours=False), version).hex()}"
        for cls, version in SHARED_MESSAGES
    ]
    VECTORS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    write_vectors()
