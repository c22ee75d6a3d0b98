"""The identity of a log directory: its file `meta.properties`, in Kafka's format."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple
from uuid import UUID

from ottla_broker.log import file_names
from ottla_broker.log.checkpoints import encode_properties, read_properties
from ottla_broker.log.disk import Disk
from ottla_broker.runtime import Runtime, uuid_from_text, uuid_text

META_VERSION: Final = "1"
PREVIOUS_CLUSTER_ID: Final = "previous.cluster.id"


class LogDirIdentity(NamedTuple):
    """`cluster_id`: None before the broker joins a cluster. `previous_cluster_id`: the cluster's id
    before a recovery, or None."""

    directory_id: UUID
    cluster_id: str | None
    previous_cluster_id: str | None


class LogDirError(Exception):
    """The directory cannot be used; the message says what is wrong and with which file."""


@contextmanager
def log_dir_errors(path: str) -> Iterator[None]:
    """Raises LogDirError in place of OSError and ValueError."""
    try:
        yield
    except OSError as error:
        raise LogDirError(f"log.dirs: {error.filename or path}: {error.strerror or error}") from error
    except (ValueError, LogDirError) as error:
        raise LogDirError(f"log.dirs: {error}") from error


def load_or_create_identity(
    disk: Disk, runtime: Runtime, path: str, node_id: int, cluster_id: str | None
) -> LogDirIdentity:
    """Returns the identity in `meta.properties`. Creates the file or adds missing properties.
    Raises LogDirError if the directory belongs to another broker or cluster or the file has another
    version; ValueError if the file cannot be parsed; OSError."""
    file = f"{path}/{file_names.META_PROPERTIES}"
    stored = read_properties(disk, file)
    if stored and stored.get("version") != META_VERSION:
        raise LogDirError(f"{file}: version {stored.get('version')!r}; only {META_VERSION} is known")
    if "node.id" in stored and stored["node.id"] != str(node_id):
        raise LogDirError(describe_mismatch(file, "node.id", stored["node.id"], str(node_id)))
    stored_cluster_id = stored.get("cluster.id")
    if stored_cluster_id is not None and cluster_id is not None and stored_cluster_id != cluster_id:
        raise LogDirError(describe_mismatch(file, "cluster.id", stored_cluster_id, cluster_id))
    directory_id = uuid_from_text(stored["directory.id"]) if "directory.id" in stored else runtime.new_uuid()
    cluster_id = stored_cluster_id if stored_cluster_id is not None else cluster_id
    properties = identity_properties(node_id, cluster_id, directory_id)
    if not properties.items() <= stored.items():
        write_identity(disk, path, stored | properties)
    return LogDirIdentity(directory_id, cluster_id, stored.get(PREVIOUS_CLUSTER_ID))


def describe_mismatch(file: str, key: str, found: str, expected: str) -> str:
    return (
        f"{file} says {key}={found}, but this broker has {key}={expected}: "
        "the directory belongs to another broker or cluster"
    )


def identity_properties(node_id: int, cluster_id: str | None, directory_id: UUID) -> dict[str, str]:
    values = {"version": META_VERSION, "node.id": str(node_id), "directory.id": uuid_text(directory_id)}
    return values if cluster_id is None else {**values, "cluster.id": cluster_id}


def write_identity(disk: Disk, path: str, properties: dict[str, str]) -> None:
    disk.replace_file(f"{path}/{file_names.META_PROPERTIES}", encode_properties(properties))
