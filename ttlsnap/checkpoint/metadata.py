"""Operator metadata: the operator that a state folder belongs to, and its stores.

    state/<operator>/_metadata/metadata     "v1" LF JSON {operatorInfo, stateStoreInfo: [...]}
    state/<operator>/_metadata/v2/<batch>   "v2" LF JSON, each store also with its state schema files;
                                            the newest file that is not after the batch applies

Checkpoints from before Spark 4.0 have neither. Their stores are found by listing folders, and the operator's name is
unknown.

Source: Spark's ``OperatorStateMetadata``.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ttlsnap.checkpoint import layout
from ttlsnap.checkpoint.file_checksums import read_checked
from ttlsnap.errors import CorruptionError, UnsupportedError
from ttlsnap.schema.strict_json import parse_json, require_type
from ttlsnap.storage.directory import Directory
from ttlsnap.storage.uris import REMOTE, hadoop_uri, is_local

_MAX_METADATA_BYTES = 64 << 20
_MAX_COLUMNS = 1 << 16


@dataclass(frozen=True)
class StoreMetadata:
    """One store in the operator metadata; the paths in ``schema_files`` are relative to the checkpoint."""

    name: str
    num_cols_prefix_key: int
    num_partitions: int
    schema_files: tuple[str, ...] = ()


@dataclass(frozen=True)
class StateVariable:
    """A variable of transformWithState: ``kind`` is ``ValueState``, ``ListState``, ``MapState`` or ``TimerState``."""

    name: str
    kind: str
    ttl: bool


@dataclass(frozen=True)
class OperatorMetadata:
    """Name and stores of an operator; ``version`` is that of the metadata format.

    ``time_mode`` and ``output_mode`` are recorded only for transformWithState.
    """

    version: int
    name: str
    stores: tuple[StoreMetadata, ...]
    variables: tuple[StateVariable, ...] = ()
    time_mode: str | None = None
    output_mode: str | None = None


def read_operator_metadata(files: Directory, operator: int, batch: int) -> OperatorMetadata | None:
    """Return the metadata that applies at ``batch``, or None for a checkpoint from before Spark 4.0.

    Raises CorruptionError for damage, UnsupportedError for an unknown version.
    """
    metadata_folder = f"{layout.operator_directory(operator)}/_metadata"
    folders = [info.name for info in files.list(metadata_folder) if info.is_dir]
    unknown_versions = [name for name in folders if name != "v2" and re.fullmatch(r"v[0-9]+", name)]
    if unknown_versions:
        raise UnsupportedError(
            f"{files.root}/{metadata_folder}/{unknown_versions[0]}: this version of the operator metadata is unknown"
        )
    path = metadata_file(files, operator, batch)
    if path is not None:
        return _parse(files, path, 2 if layout.is_operator_metadata(path) else 1)
    if "v2" in folders:
        raise CorruptionError(
            f"{files.root}/{metadata_folder}/v2: it has no operator metadata for batch {batch} or an earlier one"
        )
    return None


def with_schema_paths_under(files: Directory, path: str, home: str) -> bytes:
    """Return the operator metadata file ``path`` for a copy of the checkpoint at ``home``.

    Spark opens exactly the schema files that it names. Raises CorruptionError for content that Spark does not write.
    """
    head, _, body = read_checked(files, path, _MAX_METADATA_BYTES).partition(b"\n")
    uri = hadoop_uri(home)
    with _as_spark_writes(f"{files.root}/{path}"):
        document = parse_json(body)
        for store in require_type(document["stateStoreInfo"], list):
            if "stateSchemaFilePaths" in store:
                store["stateSchemaFilePaths"] = [f"{uri}/{schema_file}" for schema_file in _schema_files(store)]
            elif "stateSchemaFilePath" in store:
                (store["stateSchemaFilePath"],) = [f"{uri}/{schema_file}" for schema_file in _schema_files(store)]
    return head + b"\n" + json.dumps(document, separators=(",", ":")).encode()


def with_changes(
    files: Directory,
    path: str,
    partitions_before: int,
    partitions: int,
    prefixes: Mapping[str, int],
    variables: Sequence[StateVariable] | None = None,
    time_mode: str | None = None,
    output_mode: str | None = None,
) -> bytes:
    """Return the operator metadata file ``path`` with another number of partitions in place of ``partitions_before``.

    ``prefixes`` has the new numbers of prefix columns by store. ``variables`` are the new state variables, and
    ``time_mode`` and ``output_mode`` are the new modes, if any of these changes.

    Raises CorruptionError for content that Spark does not write.
    """
    head, _, body = read_checked(files, path, _MAX_METADATA_BYTES).partition(b"\n")
    with _as_spark_writes(f"{files.root}/{path}"):
        document = parse_json(body)
        for store in require_type(document["stateStoreInfo"], list):
            if store["numPartitions"] == partitions_before:
                store["numPartitions"] = partitions
            if store["storeName"] in prefixes:
                store["numColsPrefixKey"] = prefixes[store["storeName"]]
        if variables is not None:
            properties = require_type(parse_json(document["operatorPropertiesJson"]), dict)
            properties["stateVariables"] = [
                {"stateName": variable.name, "stateVariableType": variable.kind, "ttlEnabled": variable.ttl}
                for variable in variables
            ]
            properties |= {"timeMode": time_mode, "outputMode": output_mode}
            document["operatorPropertiesJson"] = json.dumps(properties, separators=(",", ":"))
    return head + b"\n" + json.dumps(document, separators=(",", ":")).encode()


def with_one_store(files: Directory, path: str, home: str, store: str, schema_file: str, partitions: int) -> bytes:
    """Return operator metadata v2 with one store of column families, in place of the stores in the file ``path``.

    ``home`` is the final path of the checkpoint. Raises CorruptionError for content that Spark does not write.
    """
    _, _, body = read_checked(files, path, _MAX_METADATA_BYTES).partition(b"\n")
    with _as_spark_writes(f"{files.root}/{path}"):
        document = {
            "operatorInfo": require_type(parse_json(body)["operatorInfo"], dict),
            "stateStoreInfo": [
                {
                    "storeName": store,
                    "numColsPrefixKey": 0,
                    "numPartitions": partitions,
                    "stateSchemaFilePaths": [f"{hadoop_uri(home)}/{schema_file}"],
                }
            ],
            # As Spark writes it for a join with one store (StreamingJoinOperatorProperties).
            "operatorPropertiesJson": json.dumps({"useVirtualColumnFamilies": True}, separators=(",", ":")),
        }
    return b"v2\n" + json.dumps(document, separators=(",", ":")).encode()


def new_metadata_file(operator: int, batch: int) -> str:
    """Return the path of operator metadata v2 that applies from ``batch`` on."""
    return f"{layout.operator_directory(operator)}/_metadata/v2/{batch}"


def metadata_file(files: Directory, operator: int, batch: int) -> str | None:
    """Return the path of the operator metadata that applies at ``batch``, or None."""
    metadata_folder = f"{layout.operator_directory(operator)}/_metadata"
    batches = (layout.parse_number(info.name) for info in files.list(f"{metadata_folder}/v2") if not info.is_dir)
    # Each restart of a query can add a file, also one with a batch that was never committed.
    applicable_batches = [number for number in batches if number is not None and number <= batch]
    if applicable_batches:
        return f"{metadata_folder}/v2/{max(applicable_batches)}"
    return f"{metadata_folder}/metadata" if files.stat(f"{metadata_folder}/metadata") is not None else None


def schema_paths(files: Directory, path: str) -> list[str]:
    """Return the paths of state schema files as an operator metadata file v2 records them."""
    _, _, body = read_checked(files, path, _MAX_METADATA_BYTES).partition(b"\n")
    with _as_spark_writes(f"{files.root}/{path}"):
        stores = require_type(parse_json(body)["stateStoreInfo"], list)
        return [schema_path for store in stores for schema_path in _read_schema_paths(store)]


def is_elsewhere(path: str, root: str, folder: str = layout.STATE) -> bool:
    """Return whether a recorded path below a checkpoint's ``folder`` is in another checkpoint than ``root``.

    Paths on other file systems are not judged. A folder with several paths, through links or mounts, is one place.
    """
    scheme, colon, path_location = path.partition(":")
    has_scheme = colon == ":" and "/" not in scheme
    if not is_local(root):
        root_scheme, _, root_location = root.partition("://")
        if REMOTE.get(scheme) != REMOTE[root_scheme]:
            return scheme == "file"
        if root_scheme == "hdfs":  # a name node can have several names, so only the paths are compared
            root_location, path_location = (
                f"/{location.removeprefix('//').partition('/')[2]}".rstrip("/")
                for location in (root_location, path_location)
            )
        return (
            path_location.removeprefix("//")
            != f"{root_location}/{folder}/" + path_location.rpartition(f"/{folder}/")[2]
        )
    if has_scheme:
        if scheme != "file":
            return False
        path = path_location
    # Hadoop's Path writes a local path as ``file:/a``, and other tools as ``file:///a``.
    real_path = os.path.realpath("/" + path.lstrip("/"))
    if real_path == f"{root}/{folder}/" + path.rpartition(f"/{folder}/")[2]:
        return False
    try:
        return not Path("/" + path.rpartition(f"/{folder}/")[0].lstrip("/")).samefile(root)
    except OSError:
        return True


@contextlib.contextmanager
def _as_spark_writes(where: str) -> Iterator[None]:
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CorruptionError(f"{where}: not the operator metadata Spark writes ({error!r})") from error


def _parse(files: Directory, path: str, version: int) -> OperatorMetadata:
    where = f"{files.root}/{path}"
    head, _, body = read_checked(files, path, _MAX_METADATA_BYTES).partition(b"\n")
    if head.strip() != f"v{version}".encode():
        kind = UnsupportedError if head[:1] == b"v" and head[1:].strip().isdigit() else CorruptionError
        raise kind(f"{where}: operator metadata version {head[:20]!r}, expected v{version}")
    with _as_spark_writes(where):
        document = parse_json(body)
        info, stores = document["operatorInfo"], document["stateStoreInfo"]
        properties = require_type(parse_json(document.get("operatorPropertiesJson") or "{}"), dict)
        return OperatorMetadata(
            version=version,
            name=require_type(info["operatorName"], str),
            stores=_distinct([_store(files, store) for store in require_type(stores, list)]),
            variables=_variables(properties),
            time_mode=_text(properties, "timeMode"),
            output_mode=_text(properties, "outputMode"),
        )


def _variables(properties: dict[str, Any]) -> tuple[StateVariable, ...]:
    """Return the state variables among the operator's properties, which are JSON within JSON."""
    variables = require_type(properties.get("stateVariables", []), list)
    return _distinct(
        [
            StateVariable(
                require_type(variable["stateName"], str),
                require_type(variable["stateVariableType"], str),
                variable.get("ttlEnabled") is True,
            )
            for variable in variables
        ]
    )


_Named = TypeVar("_Named", StoreMetadata, StateVariable)


def _distinct(items: list[_Named]) -> tuple[_Named, ...]:
    """Return the stores or variables; raise ValueError if two have the same name."""
    counts = Counter(item.name for item in items)
    repeated_name = next((name for name, count in counts.items() if count > 1), None)
    if repeated_name is not None:
        raise ValueError(f"{repeated_name!r} is listed twice")
    return tuple(items)


def _text(properties: dict[str, Any], name: str) -> str | None:
    return require_type(properties[name], str) if name in properties else None


def _store(files: Directory, document: dict[str, Any]) -> StoreMetadata:
    partitions = _number(document, "numPartitions", 1, layout.MAX_PARTITIONS)
    name = require_type(document["storeName"], str)
    # The name becomes part of a path.
    if not name or "/" in name or "\0" in name or name in (".", ".."):
        raise ValueError(f"storeName is {name!r}")
    return StoreMetadata(
        name=name,
        num_cols_prefix_key=_number(document, "numColsPrefixKey", 0, _MAX_COLUMNS),
        num_partitions=partitions,
        schema_files=tuple(_schema_files(document)),
    )


def _number(document: dict[str, Any], name: str, least: int, most: int) -> int:
    value = document[name]
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} is {str(value)[:40]}")
    return value


def _schema_files(store: dict[str, Any]) -> list[str]:
    return [_relative(path) for path in _read_schema_paths(store)]


def _read_schema_paths(store: dict[str, Any]) -> list[str]:
    # Spark 4.0.0 wrote one path, later versions a list.
    paths = store.get("stateSchemaFilePaths") or [store.get("stateSchemaFilePath")]
    return [require_type(path, str) for path in paths if path is not None]


def _relative(path: str) -> str:
    """Return a recorded path relative to the checkpoint; raise ValueError if it is not in a state folder.

    Spark records absolute paths of the checkpoint's original place, so only the part from state/ on counts.
    """
    _, separator, path_in_state = path.rpartition(f"/{layout.STATE}/")
    if not separator or "\0" in path:
        raise ValueError(f"state schema file {path!r} is not in a state folder")
    return f"{layout.STATE}/{path_in_state}"
