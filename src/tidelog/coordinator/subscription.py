"""What a consumer's subscription says, as far as a coordinator needs to know: the topics.

```
 version │ count │ size topic  size topic … │ more, which depends on the version
  int16    int32   int16 …
```
"""

from __future__ import annotations

import struct
from struct import Struct

CONSUMER_PROTOCOL_TYPE = "consumer"

_INT16 = Struct(">h")
_INT32 = Struct(">i")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics in the metadata of a member of protocol type "consumer"; None if it cannot be read."""
    topics = set()
    position = 6
    try:
        (count,) = _INT32.unpack_from(metadata, 2)
        for _ in range(count):
            (size,) = _INT16.unpack_from(metadata, position)
            position += 2 + size
            if size < 0 or position > len(metadata):
                return None
            topics.add(metadata[position - size : position].decode())
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics) if count >= 0 else None
