"""What a stop in the middle of something left in a log's directory.

*.deleted   meant to go                            removed
*.tmp       never became what it was to be         removed
*.cleaned   an unfinished result of compaction     removed: the segments it came from are there
*.swap      a finished one, about to replace them  the replacement is completed
*.start     the log goes on there, with no record  it does, and whatever else there is of it is removed

Kafka: `LogLoader`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.base.errors import CorruptLogError
from tidelog.base.ids import Offset
from tidelog.base.ports import Disk
from tidelog.log.scan import scan_headers
from tidelog.log.segment import DELETED_SUFFIX, INDEX_SUFFIXES, LOG_SUFFIX, file_name, parse_file_name

TEMPORARY_SUFFIX = ".tmp"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
START_SUFFIX = ".start"
LEFT_SUFFIXES = (DELETED_SUFFIX, TEMPORARY_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, START_SUFFIX)


def clear_leftovers(disk: Disk, directory: str, names: Sequence[str]) -> list[str]:
    """Finish or undo what was under way. Returns the names that were dealt with, as they were.

    Args:
        names: all that are in the directory.

    Raises:
        DiskError: the disk refused; to be tried again, since every step may be repeated.
    """
    if not any(name.endswith(LEFT_SUFFIXES) for name in names):
        return []
    started = next((name for name in names if _log_offset(name, START_SUFFIX) is not None), None)
    if started is not None:
        names = _start_anew(disk, directory, names)
    dealt_with = [] if started is None else [started]
    cleaned = [offset for name in names if (offset := _log_offset(name, CLEANED_SUFFIX)) is not None]
    for name in names:
        swapped = _log_offset(name, SWAP_SUFFIX)
        is_marked_for_deletion = name.endswith((DELETED_SUFFIX, TEMPORARY_SUFFIX, CLEANED_SUFFIX))
        # With a `.cleaned` left, the results up to it were still being renamed: none of them has replaced anything.
        if is_marked_for_deletion or (cleaned and swapped is not None and swapped >= min(cleaned)):
            disk.remove(f"{directory}/{name}")
            dealt_with.append(name)
    swaps = [name for name in disk.list(directory) if name.endswith(SWAP_SUFFIX)]
    for name in swaps:
        base_offset = _log_offset(name, SWAP_SUFFIX)
        if base_offset is not None:
            _remove_replaced(disk, directory, base_offset, _end_offset(disk, f"{directory}/{name}", base_offset))
    for name in swaps:
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")
        dealt_with.append(name)
    if started is not None:
        disk.rename(f"{directory}/{started}", f"{directory}/{started.removesuffix(START_SUFFIX)}")
    if dealt_with:
        disk.sync_dir(directory)
    return dealt_with


def _start_anew(disk: Disk, directory: str, names: Sequence[str]) -> list[str]:
    """Remove what there is of a log that is to start anew. Of each segment the indexes go first (`lost_segments`).

    Returns:
        The names that are left.
    """
    suffixes = [*INDEX_SUFFIXES, LOG_SUFFIX]
    suffixes += [suffix + SWAP_SUFFIX for suffix in suffixes]
    removed = [name for suffix in suffixes for name in names if parse_file_name(name, suffix) is not None]
    for name in removed:
        disk.remove(f"{directory}/{name}")
    return [name for name in names if name not in removed]


def _log_offset(name: str, suffix: str) -> Offset | None:
    return parse_file_name(name.removesuffix(suffix), LOG_SUFFIX) if name.endswith(suffix) else None


def _end_offset(disk: Disk, path: str, base_offset: Offset) -> Offset:
    end_offset = base_offset
    file = disk.open(path)
    try:
        for _, header in scan_headers(file, 0, file.size(), first_offset=base_offset, end_offset=base_offset + 2**31):
            end_offset = Offset(header.next_offset)
    except CorruptLogError:
        pass  # recovery will say so, once it has its name
    finally:
        file.close()
    return end_offset


def _remove_replaced(disk: Disk, directory: str, base_offset: Offset, end_offset: Offset) -> None:
    for name in disk.list(directory):
        offset = parse_file_name(name, LOG_SUFFIX)
        if offset is not None and (offset == base_offset or base_offset <= offset < end_offset):
            for suffix in (*INDEX_SUFFIXES, LOG_SUFFIX):
                disk.remove(f"{directory}/{file_name(offset, suffix)}")
