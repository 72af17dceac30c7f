"""What a batch that ran again could not read of what its offsets say, kept beside the query's checkpoint.

    tidelog/replays/DIGEST   the losses, by the digest of the offset at which the batch ends

The offset was written down before the records were lost, and Spark lets nobody change it. The batch after it makes up
for the loss. If the driver dies between the two, and another unclean election brings the records back, nothing in the
log or in Spark's own files tells that they were never read.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from hashlib import sha256

from tidelog.base.ids import TopicPartition
from tidelog.spark.checkpoint_files import attempted, without_password, writable_files
from tidelog.spark.offsets import CheckpointError, Json, Loss, ReadPosition, StreamOffset

logger = logging.getLogger("tidelog.spark")

FOLDER = "tidelog/replays"

Unread = Mapping[TopicPartition, tuple[ReadPosition, Loss]]
"""Losses of a batch that ran again, by partition, with where the batch should have ended."""


class ReplayNotes:
    """The notes of one query. Where the checkpoint cannot be written, the driver's log says so, and the query goes on.

    Args:
        location: the query's `checkpointLocation`.
    """

    def __init__(self, location: str) -> None:
        self._location = without_password(location)
        self._files = writable_files(location)

    def read(self, end: Json) -> Unread:
        """What the batch that ends there could not read; nothing mostly.

        Raises:
            CheckpointError: the note cannot be read, or was not written here.
        """
        try:
            text = attempted(self._location, lambda: self._files.text(_name(end)))
        except FileNotFoundError:
            return {}
        try:
            noted = StreamOffset.from_json(json.loads(text))
            return {key: (noted.positions[key], loss) for key, loss in noted.losses.items()}
        except (ValueError, KeyError) as error:
            raise CheckpointError(f"{self._location}/{_name(end)} is no note of a batch that ran again") from error

    def write(self, end: Json, unread: Unread) -> None:
        """Before the batch runs: it may be the last thing that this process does."""
        note = StreamOffset(
            topic_ids={key.topic: loss.topic_id for key, (_, loss) in unread.items()},
            positions={key: position for key, (position, _) in unread.items()},
            losses={key: loss for key, (_, loss) in unread.items()},
        )
        try:
            text = json.dumps(note.to_json())
            attempted(self._location, lambda: self._files.write(_name(end), text), is_read=False)
        except (CheckpointError, FileNotFoundError) as error:
            logger.warning(
                "what a batch that runs again cannot read is known to this process alone, since its note cannot be "
                "written. Should the driver die before the batch after it is planned, the loss may go unsaid. %s",
                error,
            )

    def remove(self, end: Json) -> None:
        """The batch ran again and read all that it should, or the one after it has made up for what is noted.

        Raises:
            CheckpointError: a note is there and cannot be removed: it would be believed later.
        """
        try:
            attempted(self._location, lambda: self._files.remove(_name(end)), is_read=False)
        except FileNotFoundError:
            pass
        except CheckpointError:  # storage that cannot be written refuses, whether there is a note or not
            if self.read(end):
                raise


def _name(end: Json) -> str:
    return f"{FOLDER}/{sha256(json.dumps(end, sort_keys=True).encode()).hexdigest()[:32]}"
