"""A Delta Lake table as the healing writer uses it: opened at a version, and changed by one commit or not at all.

The package `deltalake` checks no versions of application transactions itself: it takes an equal or a lower one as well.
Whoever commits here has looked at the version in the same snapshot before; a commit that came in between is a conflict,
and then everything is looked at again.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.base.errors import ConfigError, MissingExtraError
from tidelog.spark.healing_errors import HealingError

try:
    from deltalake import CommitProperties, DeltaTable, Schema, Transaction
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
    from deltalake.transaction import AddAction, RemoveAction
except ImportError:
    raise MissingExtraError("a table that heals", "spark-delta") from None

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs
    from pyspark.sql.types import StructType

__all__ = ["CommitFailedError", "DeltaError", "NewFile", "TableFile", "TableFolder", "TableSnapshot"]


_UNOPENABLE = re.compile(r"[\[\]{}|^\\]|%[0-9A-Fa-f]{2}")
"""What a path may not have: deltalake makes a URL of it, which it rejects by a panic, or reads as another path; and
Spark takes braces for a pattern."""


class NewFile(NamedTuple):
    """A Parquet file that lies in the table's folder, and is no part of the table yet.

    Attributes:
        path: within the folder.
        stats: as JSON, of the Delta protocol.
    """

    path: str
    size_bytes: int
    row_count: int
    stats: str


class TableFile(NamedTuple):
    """A file of the table, with the least and the greatest value of its columns as far as they are known."""

    path: str
    size_bytes: int
    low: Mapping[str, object]
    high: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class TableFolder:
    """Where a table is. Executors get it by pickle.

    Args:
        uri: a path on this machine, or a URI that deltalake knows: s3://, gs://, az://…
        storage_options: of deltalake, for a URI: credentials, endpoint and the like.
    """

    uri: str
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)

    @staticmethod
    def at(table: str | os.PathLike[str], storage_options: Mapping[str, str] | None) -> TableFolder:
        """The folder that a user names. A relative path becomes absolute, since executors work elsewhere.

        Raises:
            ConfigError: deltalake would panic at such a path, or look for the table elsewhere.
        """
        uri = os.fspath(table).rstrip("/")
        if uri.startswith("file:"):
            uri = re.sub(r"^file:(//(?=/))?", "", uri)
        if not _is_remote(uri):
            uri = str(Path(uri).absolute())
            if found := _UNOPENABLE.search(uri):
                raise ConfigError(
                    f"{uri}: deltalake or Spark cannot open a table at a path with {found[0]} in it: give one without "
                    r"any of [ ] { } | ^ \ and without % before two hexadecimal digits, or a symbolic link to it"
                )
        return TableFolder(uri, None if storage_options is None else dict(storage_options))

    @property
    def is_remote(self) -> bool:
        return _is_remote(self.uri)

    def filesystem(self) -> fs.FileSystem:
        """For reading and writing files by their paths within the folder."""
        from pyarrow import fs

        if not self.is_remote:
            return fs.SubTreeFileSystem(self.uri, fs.LocalFileSystem())
        from deltalake.fs import DeltaStorageHandler

        return fs.PyFileSystem(DeltaStorageHandler(self.uri, self._options))

    def open(self, version: int | None = None) -> TableSnapshot | None:
        """The table as it is now, or was at a version; None if there is none.

        Raises:
            HealingError: TABLE_UNREACHABLE: it cannot be read.
        """
        try:
            return TableSnapshot(self, DeltaTable(self.uri, version=version, storage_options=self._options))
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise self._unreachable("opened as a Delta table", error) from None

    def create(self, schema: pa.Schema, properties: Mapping[str, str], description: str) -> TableSnapshot:
        """Make an empty table. Another that makes it meanwhile wins, and its table is returned.

        Raises:
            HealingError: TABLE_SCHEMA: a column has a type that such a table cannot have. TABLE_UNREACHABLE.
        """
        column_types(self.uri, schema)
        try:
            if not self.is_remote:
                Path(self.uri).mkdir(parents=True, exist_ok=True)
            DeltaTable.create(
                self.uri,
                schema=schema,
                mode="ignore",
                description=description,
                configuration=dict(properties),
                storage_options=self._options,
                raise_if_key_not_exists=False,
            )
        except (DeltaError, OSError) as error:
            raise self._unreachable("written", error) from None
        created = self.open()
        assert created is not None
        return created

    def _unreachable(self, what: str, error: Exception) -> HealingError:
        said = re.sub(r"\x1b\[[0-9;]*m", "", str(error))  # deltalake colours its arrows
        return HealingError("TABLE_UNREACHABLE", f"{self.uri} cannot be {what}: {said}")

    @property
    def _options(self) -> dict[str, str] | None:
        return None if self.storage_options is None else dict(self.storage_options)


class TableSnapshot:
    """A table at one version. What is committed from here fails if anything that it is based on has changed since."""

    def __init__(self, folder: TableFolder, table: DeltaTable) -> None:
        self.folder = folder
        self._table = table

    @property
    def version(self) -> int:
        return self._table.version()

    @property
    def table_id(self) -> str:
        return str(self._table.metadata().id)

    @property
    def properties(self) -> dict[str, str]:
        return dict(self._table.metadata().configuration)

    def column_types(self) -> dict[str, str]:
        """The columns, in their order, and the type of each in the words of the Delta protocol."""
        return {field.name: json.dumps(json.loads(field.type.to_json())) for field in self._table.schema().fields}

    def spark_schema(self) -> StructType:
        from pyspark.sql.types import StructType

        return StructType.fromJson(json.loads(self._table.schema().to_json()))

    def transaction_version(self, app_id: str) -> int | None:
        """The last version that an application committed; None before its first."""
        return self._table.transaction_version(app_id)

    def check_plain(self) -> None:
        """Refuse a table whose files do not say all by themselves.

        Raises:
            HealingError: TABLE_NOT_OURS: it is partitioned, or has deletion vectors or mapped columns.
        """
        protocol, metadata = self._table.protocol(), self._table.metadata()
        features = set(protocol.reader_features or ())
        reasons = []
        if metadata.partition_columns:
            reasons.append(f"it is partitioned by {', '.join(metadata.partition_columns)}")
        if metadata.configuration.get("delta.enableDeletionVectors") == "true" or "deletionVectors" in features:
            reasons.append("it has deletion vectors")
        if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
            reasons.append("its columns are mapped")
        if reasons:
            raise HealingError(
                "TABLE_NOT_OURS", f"{self.folder.uri}: {' and '.join(reasons)}, which healing cannot deal with"
            )

    def files(self) -> list[TableFile]:
        """All files of the table."""
        import pyarrow as pa

        found = pa.table(self._table.get_add_actions(flatten=True))
        low = [name for name in found.column_names if name.startswith("min.")]
        high = [name for name in found.column_names if name.startswith("max.")]
        return [
            TableFile(
                row["path"],
                row["size_bytes"],
                {name[4:]: row[name] for name in low},
                {name[4:]: row[name] for name in high},
            )
            for row in found.to_pylist()
        ]

    def has_files(self, files: Sequence[TableFile]) -> bool:
        """Whether files that are no part of the table any more are still there."""
        from pyarrow.fs import FileType

        if not files:
            return True
        found = self.folder.filesystem().get_file_info([file.path for file in files])
        return all(info.type is FileType.File for info in found)

    def commit(
        self,
        added: Sequence[NewFile],
        removed: Sequence[TableFile] = (),
        *,
        transaction: tuple[str, int],
        said: Mapping[str, Any] | None = None,
    ) -> None:
        """Change the table, all at once.

        Args:
            added: files that become part of it.
            removed: files that are no part of it any more. They stay on the disk, until somebody calls `vacuum`.
            transaction: application and version, which the caller has checked in this snapshot.
            said: shown in the table's history.

        Raises:
            CommitFailedError: something that it depends on was changed meanwhile: open the table anew.
            HealingError: TABLE_NOT_SHARED: an added file is not there.
        """
        now_ms = time.time_ns() // 1_000_000
        if not self.folder.is_remote:
            absent = [file.path for file in added if not Path(self.folder.uri, file.path).is_file()]
            if absent:
                raise HealingError(
                    "TABLE_NOT_SHARED",
                    f"executors wrote {absent[0]} into {self.folder.uri}, and the driver does not find it there: "
                    "the table must be on a disk that all of them share, or in an object store",
                )
        app_id, number = transaction
        self._table.create_write_transaction(
            [
                *(AddAction(file.path, file.size_bytes, {}, now_ms, True, file.stats) for file in added),
                *(RemoveAction(file.path, True, now_ms, file.size_bytes, {}) for file in removed),
            ],
            mode="append",
            schema=self._table.schema(),
            commit_properties=CommitProperties(
                custom_metadata=dict(said or {}), app_transactions=[Transaction(app_id, number)]
            ),
        )

    def set_property(self, name: str, value: str) -> None:
        self._table.alter.set_table_properties({name: value}, raise_if_not_exists=False)

    def replace_rows(self, predicate: str, rows: pa.Table) -> None:
        """Put a few rows of the driver's in the place of those for which `predicate` holds."""
        from deltalake import write_deltalake

        write_deltalake(
            self.folder.uri,
            rows,
            mode="overwrite",
            predicate=predicate,
            storage_options=self.folder._options,
        )

    def read(self) -> list[dict[str, Any]]:
        """The rows of a table that is small."""
        rows: list[dict[str, Any]] = self._table.to_pyarrow_table().to_pylist()
        return rows


def _is_remote(uri: str) -> bool:
    return re.match(r"^[A-Za-z][A-Za-z0-9+.-]+:", uri) is not None


def all_nullable(schema: StructType) -> StructType:
    """The same columns, which may all be null with their elements: what Spark infers of that depends on the plan."""
    from pyspark.sql.types import StructType

    text = schema.json()
    for key in ("nullable", "containsNull", "valueContainsNull"):
        text = text.replace(f'"{key}":false', f'"{key}":true')
    return StructType.fromJson(json.loads(text))


def column_types(uri: str, schema: pa.Schema) -> dict[str, str]:
    """As `TableSnapshot.column_types`, of rows that are to be written.

    Raises:
        HealingError: TABLE_SCHEMA: a column has a type that such a table cannot have.
    """
    import pyarrow as pa

    types = {}
    for column in schema:
        try:
            (converted,) = Schema.from_arrow(pa.schema([column])).fields
        except Exception:
            raise HealingError(
                "TABLE_SCHEMA",
                f"{uri}: column {column.name} is {column.type}, which a Delta table cannot hold: cast it",
            ) from None
        types[column.name] = json.dumps(json.loads(converted.type.to_json()))
    return types
