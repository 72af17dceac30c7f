"""The owner of a node's directory, and how it changes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from tidelog.base.errors import ConfigError
from tidelog.base.ids import BrokerId, ClusterId, uuid_text

if TYPE_CHECKING:
    from tidelog.controller.values import FirstMetadata
    from tidelog.log.files.checkpoint import MetaProperties
    from tidelog.quorum.values import Voter


def owner_of(path: str) -> MetaProperties | None:
    """None for a directory that was never formatted, or is not there. Raises CorruptLogError, saying what to do."""
    file = os.path.join(path, "meta.properties")
    if not os.path.exists(file):
        return None
    from tidelog.log.files.checkpoint import parse_meta_properties

    with open(file, "rb") as opened:
        return parse_meta_properties(opened.read(), file)


def format_directory(
    path: str,
    node_id: BrokerId,
    cluster_id: ClusterId,
    *,
    directory_id: UUID | None = None,
    ignore_formatted: bool = False,
    is_replacement: bool = False,
) -> MetaProperties:
    """Say in an empty directory whose it is; returns what it says then.

    Args:
        path: is made if it is missing.
        directory_id: made up unless given.
        ignore_formatted: it is no failure if it says so already.
        is_replacement: what the node had for the metadata quorum lay in a directory that is lost.

    Raises:
        ConfigError: it is somebody's, or holds what is not ours.
        DiskError: another process uses it, or the disk refused.
    """
    from tidelog.io.disk import RealDisk
    from tidelog.log.directory import LogDirectory
    from tidelog.log.files.checkpoint import MetaProperties
    from tidelog.server.storage.log_directories import OWN_FILES

    disk = RealDisk()
    directory = LogDirectory.open(disk, path)
    try:
        found = directory.read_meta_properties()
        if found is None:
            if set(disk.list(path)) - OWN_FILES:
                raise ConfigError(f"{path} holds files already, and no meta.properties: name an empty directory")
            found = MetaProperties(
                cluster_id, node_id, uuid_text(directory_id or uuid4()), has_quorum_state=is_replacement
            )
            directory.format(found)
        elif not ignore_formatted or (found.cluster_id, found.node_id) != (cluster_id, node_id):
            raise ConfigError(
                f"{path} belongs to node {found.node_id} of cluster {found.cluster_id} already: "
                "name another directory, or remove this one if nothing in it is needed"
            )
    finally:
        directory.close()
    return found


def write_first_metadata(path: str, voters: Sequence[Voter] | None, first: FirstMetadata) -> None:
    """Let a metadata log begin with who votes, and with nothing voted, and the cluster begin with this.

    Nothing is written where there is a log already, or was one.

    Args:
        path: of a directory that is formatted.
        voters: None where the settings say who they are, or others do.
        first: features whose level it does not name begin at the highest.
    """
    from time import time

    from tidelog.base.ids import CLUSTER_METADATA
    from tidelog.io.disk import RealDisk
    from tidelog.log.directory import LogDirectory
    from tidelog.quorum.state_file import NOTHING_VOTED, format_quorum_state
    from tidelog.quorum.values import VoterSet
    from tidelog.server.storage.bootstrap_file import NOTHING, write_bootstrap_file
    from tidelog.server.storage.metadata_snapshots import MetadataSnapshots, Snapshot

    disk, now_ms = RealDisk(), int(time() * 1000)
    directory = f"{path}/{CLUSTER_METADATA}"
    found = owner_of(path)
    if disk.exists(directory) or found is None or found.has_quorum_state:
        return
    if first.levels or first.records:
        write_bootstrap_file(disk, path, first, now_ms=now_ms)
    disk.make_dirs(directory)
    if voters is not None:
        snapshot = Snapshot(NOTHING, (), VoterSet(tuple(voters), version=1), now_ms)
        MetadataSnapshots(directory, disk=disk).write(snapshot)
    disk.write_atomically(f"{directory}/quorum-state", format_quorum_state(NOTHING_VOTED))
    disk.sync_dir(path)
    held = LogDirectory.open(disk, path)
    try:
        held.write_meta_properties(replace(found, has_quorum_state=True))
    finally:
        held.close()
