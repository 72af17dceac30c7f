"""Replays the log of one partition into an empty machine, a piece at a time, off the loop.

Kafka: `CoordinatorLoader`.
"""

from __future__ import annotations

import asyncio
from functools import partial

from tidelog.base.errors import CorruptLogError, KafkaError
from tidelog.base.ids import Offset
from tidelog.base.ports import Executor
from tidelog.journal import CoordinatorMachine
from tidelog.log import Log, LogSlice, NotCachedError, without_waiting
from tidelog.records import ControlType, check_crc, read_records, split_batches
from tidelog.records.control import read_control_type

READ_SIZE_BYTES_MAX = 256 << 10
"""Of the log, replayed in one go: some ten milliseconds of a thread, in which the loop has its turns."""

END_TYPES = frozenset({ControlType.COMMIT, ControlType.ABORT})

LOOK_UPS_MAX = 8
"""How often a place is looked up without waiting for the disk; then it waits."""


class LogReplay:
    """Replays the log of one partition into its coordinator.

    Args:
        loading: held while a piece is replayed, so that many partitions do not compete with the loop.

    Attributes:
        is_over: set it to end the replay early: the leadership has ended.
    """

    def __init__(self, log: Log, machine: CoordinatorMachine, *, executor: Executor, loading: asyncio.Lock) -> None:
        self.is_over = False
        self._log = log
        self._machine = machine
        self._executor = executor
        self._loading = loading

    async def run(self) -> Offset:
        """Replay everything. Returns the offset up to which it went.

        Raises:
            CorruptLogError: names the offset.
            DiskError: the log cannot be read.
        """
        log = self._log
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            async with self._loading:
                if self.is_over:
                    return offset
                found = await self._find(offset)
                if not len(found):
                    break
                offset = await self._executor.run(partial(self._replay, found))
        await self._executor.run(self._machine.restore)
        return offset

    async def _find(self, offset: Offset) -> LogSlice:
        """What lies from `offset` on, or from where the log starts by now. To look it up must not wait for the disk on
        the loop.
        """
        log = self._log

        def look_up() -> LogSlice:
            start_offset = max(offset, log.log_start_offset)
            return log.read(start_offset, size_bytes_max=READ_SIZE_BYTES_MAX, end_offset=log.log_end_offset)

        for _ in range(LOOK_UPS_MAX):
            try:
                return without_waiting(look_up)
            except NotCachedError as missing:
                await self._executor.run(missing.fetch)
        return look_up()

    def _replay(self, found: LogSlice) -> Offset:
        """Take a piece of the log in, on a thread: nobody else knows the machine yet. Returns where to go on."""
        data = found.read_all()
        offset = found.first_offset
        replay = self._machine.replay
        try:
            for position, header in split_batches(data):
                offset = Offset(header.base_offset)
                check_crc(data, position, header)  # after a clean stop nobody else looked at it
                transaction_of = header.producer_id if header.is_transactional else None
                for record in read_records(data, position, header):
                    offset = Offset(record.offset)
                    if not header.is_control:
                        replay(record.key, record.value, offset, transaction_of=transaction_of)
                    elif transaction_of is not None:
                        control_type = read_control_type(record.key)
                        if control_type in END_TYPES:
                            is_committed = control_type is ControlType.COMMIT
                            self._machine.replay_end(transaction_of, is_committed=is_committed)
                offset = Offset(header.next_offset)
        except KafkaError as error:  # of a batch; a record's own names its offset
            raise CorruptLogError(f"at offset {offset}: {error}") from error
        return offset
