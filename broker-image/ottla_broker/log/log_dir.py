"""One of `log.dirs`: its lock, its identity, its checkpoints and the logs of its partitions."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from ottla_broker.log import file_names
from ottla_broker.log.checkpoints import (
    decode_clean_shutdown,
    encode_clean_shutdown,
    encode_offsets,
    encode_properties,
    encode_topic_id,
    read_offsets,
    read_properties,
)
from ottla_broker.log.cleaner import Cleaner
from ottla_broker.log.config import LogConfig
from ottla_broker.log.disk import Disk, Lock, LockHeld
from ottla_broker.log.maintenance import LogDirMaintenance, MaintenanceIntervals
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.recovery import LogCheckpoint, create_log, open_log, write_plainly
from ottla_broker.log.storage import Storage, is_full
from ottla_broker.log.taking_over import take_over
from ottla_broker.runtime import Runtime, uuid_from_text, uuid_text
from ottla_broker.wire.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

META_VERSION: Final = "1"
NO_EPOCH: Final = -1
_CHECKPOINTS: Final = (file_names.RECOVERY_POINTS, file_names.HIGH_WATERMARKS, file_names.LOG_STARTS)
_CLOSING_TOGETHER: Final = 16
_LONGEST_NAME: Final = 255


class LogDirError(Exception):
    """The directory cannot be used; the message says what is wrong and with which file."""


Offsets = dict[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class _Left:
    """The checkpoints as they were when the directory was attached, until everything is loaded."""

    points: Offsets = field(default_factory=dict)
    starts: Offsets = field(default_factory=dict)
    watermarks: Offsets = field(default_factory=dict)


@contextmanager
def _told_as_log_dir_error(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LogDirError(f"log.dirs: {error.filename or path}: {error.strerror or error}") from error
    except (ValueError, LogDirError) as error:
        raise LogDirError(f"log.dirs: {error}") from error


class LogDir:
    """Open one with `LogDir.open`. `failed`: why the whole directory is offline; None while it works."""

    def __init__(
        self, path: str, storage: Storage, lock: Lock, directory_id: UUID, node_id: int, cluster_id: str | None
    ) -> None:
        self.path = path
        self.storage = storage
        self.directory_id = directory_id
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.logs: dict[tuple[str, int], PartitionLog] = {}
        self.failure: str | None = None
        self.was_clean_shutdown = False
        self.previous_broker_epoch = NO_EPOCH  # of the broker that stopped cleanly here; KIP-966
        self.broker_epoch = NO_EPOCH  # set by whoever registers the broker; goes into the clean-shutdown marker
        self.folders_to_delete: list[str] = []  # folders on their way out
        self.cleaner = Cleaner(storage, path, self.logs)
        self.producer_expiration_ms = 86_400_000  # producer.id.expiration.ms, which may change at any time
        storage.write_recovery_points = lambda: self._write_now(file_names.RECOVERY_POINTS)
        self._gone: set[tuple[str, int]] = set()  # deleted partitions that the checkpoints still name
        self._lock = lock
        self._written: dict[str, bytes] = {}
        self._closed = False
        self._left = _Left()  # what the checkpoints say of partitions that are not loaded yet
        self._loaded = False

    @classmethod
    def open(
        cls,
        path: str,
        *,
        disk: Disk,
        runtime: Runtime,
        node_id: int,
        cluster_id: str | None,
        config_of: Callable[[str], LogConfig],
    ) -> "LogDir":
        """Attaches the directory and loads all partitions in it. LogDirError as there."""
        opened = cls.attach(path, disk=disk, runtime=runtime, node_id=node_id, cluster_id=cluster_id)
        opened.load(config_of)
        return opened

    @classmethod
    def attach(cls, path: str, *, disk: Disk, runtime: Runtime, node_id: int, cluster_id: str | None) -> "LogDir":
        """Opens (or makes) the directory itself: lock, identity, what the last stop left behind. Partitions come with `load`.

        LogDirError: not writable, locked, of another node or cluster, unreadable files.
        """
        path = path.rstrip("/") or "/"
        with _told_as_log_dir_error(path):
            disk.make_directory(path)
            try:
                lock = disk.lock(f"{path}/{file_names.LOCK}")
            except LockHeld as error:
                raise LogDirError(f"{path} is in use: {error}") from None
            try:
                storage = Storage(disk, runtime)
                attached = cls(path, storage, lock, *_identity(storage, path, node_id, cluster_id))
                attached._read_what_was_left()
            except BaseException:
                lock.release()
                raise
        return attached

    def load(self, config_of: Callable[[str], LogConfig], only: str | None = None, *, gapless: bool = True) -> None:
        """Opens the partitions that are not open yet, of one topic or of all; those that cannot be served are there with `failed` set.

        `config_of`: a topic's name → its log's settings. `gapless`: see `recovery.Known`. LogDirError: the directory cannot be read.
        """
        with _told_as_log_dir_error(self.path):
            for folder in self.storage.disk.list(self.path):
                key = file_names.partition_of(folder)
                if key is not None and key not in self.logs and only in (None, key[0]):
                    self.logs[key] = self._opened(key, folder, config_of(key[0]), gapless)
            self.storage.files.close_all()  # most partitions may not be used for long
            if any(one.recovery_point < self._left.points.get(key, 0) for key, one in self.logs.items()):
                self._write_now(
                    file_names.RECOVERY_POINTS
                )  # or a crash would take what is written next for long flushed
            if only is None:
                self._loaded = True
                self._left = _Left()

    def _opened(self, key: tuple[str, int], folder: str, config: LogConfig, gapless: bool) -> PartitionLog:
        known = LogCheckpoint(
            self.was_clean_shutdown, self._left.points.get(key, 0), self._left.starts.get(key, 0), gapless
        )
        opened = open_log(self.storage, f"{self.path}/{folder}", *key, config, known)
        opened.advance_high_watermark(self._left.watermarks.get(key, 0))
        return opened

    def _read_what_was_left(self) -> None:
        disk = self.storage.disk
        marker = f"{self.path}/{file_names.CLEAN_SHUTDOWN}"
        if disk.exists(marker):
            self.was_clean_shutdown = True
            self.previous_broker_epoch = decode_clean_shutdown(disk.read_file(marker))
            disk.remove(marker)
        self._left = _Left(
            points=read_offsets(disk, f"{self.path}/{file_names.RECOVERY_POINTS}"),
            starts=read_offsets(disk, f"{self.path}/{file_names.LOG_STARTS}"),
            watermarks=read_offsets(disk, f"{self.path}/{file_names.HIGH_WATERMARKS}"),
        )
        self.folders_to_delete += [
            f"{self.path}/{f}" for f in disk.list(self.path) if f.endswith(file_names.DELETE_FOLDER)
        ]

    def set_cluster_id(self, cluster_id: str) -> None:
        """Names the cluster in `meta.properties`, once. LogDirError when it names another."""
        if self.cluster_id is not None and self.cluster_id != cluster_id:
            raise LogDirError(_other(self.path, "cluster.id", self.cluster_id, cluster_id))
        if self.cluster_id is None:
            self.cluster_id = cluster_id
            _write_identity(self.storage, self.path, self.node_id, cluster_id, self.directory_id)

    # --- partitions

    def create_log(self, topic: str, partition: int, topic_id: UUID | None, config: LogConfig) -> PartitionLog:
        """The partition's log, made when it is not there. KafkaError: INCONSISTENT_TOPIC_ID when the folder is of an earlier topic of that
        name, KAFKA_STORAGE_ERROR."""
        existing = self.logs.get((topic, partition))
        if existing is not None:
            self._same_topic(existing, topic_id)
            existing.set_config(config)
            return existing
        directory = f"{self.path}/{file_names.partition_folder(topic, partition)}"
        try:
            if (topic, partition) in self._gone:
                self._write_now(*_CHECKPOINTS)  # they speak of the one that was deleted
                self._gone.clear()
            made = create_log(self.storage, directory, topic, partition, topic_id, config)
        except OSError as error:
            raise self._io_failed(directory, error) from error
        self.logs[topic, partition] = made
        return made

    def _same_topic(self, existing: PartitionLog, topic_id: UUID | None) -> None:
        if existing.topic_id is None and topic_id is not None:
            existing.topic_id = topic_id
            path = f"{existing.directory}/{file_names.PARTITION_METADATA}"
            try:
                write_plainly(self.storage, path, encode_topic_id(topic_id))
            except OSError as error:
                raise self._io_failed(path, error) from error
        elif topic_id is not None and existing.topic_id != topic_id:
            assert existing.topic_id is not None
            raise KafkaError(
                ErrorCode.inconsistent_topic_id,
                f"{existing.directory} belongs to topic id {uuid_text(existing.topic_id)}, not to {uuid_text(topic_id)}",
            )

    def delete_log(self, topic: str, partition: int) -> None:
        """Takes the partition away at once; its folder is renamed now and removed in the background. No error when there is none."""
        self._take_away(topic, partition, file_names.DELETE_FOLDER)

    def move_to_stray(self, topic: str, partition: int) -> None:
        """Takes the partition away but keeps its folder, under a name that Kafka calls a stray and leaves alone too."""
        self._take_away(topic, partition, file_names.STRAY_FOLDER)

    def _take_away(self, topic: str, partition: int, ending: str) -> None:
        gone = self.logs.pop((topic, partition), None)
        if gone is None:
            return
        self.cleaner.forget(topic, partition)
        gone.clear_tail_cache()
        for segment in gone.segments:
            segment.unload()
        gone.failed = KafkaError(ErrorCode.unknown_topic_or_partition, f"{topic}-{partition} was deleted")
        unique = f".{self.storage.runtime.new_uuid().hex}{ending}"
        folder = file_names.partition_folder(topic, partition)[: _LONGEST_NAME - len(unique)] + unique
        try:
            self.storage.disk.rename(gone.directory, f"{self.path}/{folder}")
        except OSError as error:
            raise self._io_failed(gone.directory, error) from error
        if ending == file_names.DELETE_FOLDER:
            self.folders_to_delete.append(f"{self.path}/{folder}")
        self._gone.add((topic, partition))

    def _io_failed(self, path: str, error: OSError) -> KafkaError:
        reason = f"{path}: {error.strerror or error}"
        if not is_full(error):
            self.failure = reason
            log.error("log directory %s is offline: %s", self.path, reason)
        return KafkaError(ErrorCode.kafka_storage_error, reason)

    # --- background

    async def maintain(self, intervals: MaintenanceIntervals | None = None) -> None:
        """The background work of the directory; runs until it is cancelled. Compaction has a loop of its own, because one cleaning
        may take minutes."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(LogDirMaintenance(self, intervals or MaintenanceIntervals()).run())
            tasks.create_task(self.cleaner.run())

    async def adopt_foreign_logs(self) -> None:
        """Makes what was loaded this cluster's own, where somebody else wrote it (`taking_over`), brings it to the device and writes that down. KafkaError:
        KAFKA_STORAGE_ERROR."""
        now_ms = self.storage.runtime.now_ms()
        for one in self.logs.values():
            if one.failed is None:
                await take_over(one, now_ms)
        await self.write_checkpoints(recovery_points=True)

    async def write_checkpoints(self, *, recovery_points: bool) -> None:
        """High watermarks and log starts, and recovery points when asked; files whose content has not changed are left alone."""
        self._gone.clear()
        for name in _CHECKPOINTS if recovery_points else _CHECKPOINTS[1:]:
            data = self._checkpoint(name)
            if self._written.get(name) != data:
                path = f"{self.path}/{name}"
                try:
                    await self.storage.runtime.run_in_thread(self.storage.disk.replace_file, path, data)
                except OSError as error:
                    raise self._io_failed(path, error) from error
                self._written[name] = data

    def _checkpoint(self, name: str) -> bytes:
        logs = self.logs.items()
        match name:
            case file_names.RECOVERY_POINTS:
                return encode_offsets(self._left.points | {key: one.recovery_point for key, one in logs})
            case file_names.HIGH_WATERMARKS:
                return encode_offsets(self._left.watermarks | {key: one.high_watermark for key, one in logs})
            case _:
                raised = {k: one.start for k, one in logs if one.failed or one.start > one.segments[0].base}
                return encode_offsets(self._left.starts | raised)

    def _write_now(self, *wanted: str) -> None:
        """On the protocol's thread, where the next step must not come before it. OSError."""
        for name in wanted:
            data = self._checkpoint(name)
            self.storage.disk.replace_file(f"{self.path}/{name}", data)
            self._written[name] = data

    async def close(self) -> None:
        """Brings everything to the device and leaves the marker of a clean stop, unless something failed, or a start was given up before
        what an unclean stop had left was looked at."""
        if self._closed:
            return
        self._closed = True
        clean = self.failure is None and (self._loaded or self.was_clean_shutdown)
        gate = asyncio.Semaphore(_CLOSING_TOGETHER)

        async def close_one(one: PartitionLog) -> bool:
            async with gate:
                try:
                    if one.failed is None and not one.flush.clean:
                        one.seal()
                        await one.flush.checkpoint()
                    one.close()
                except KafkaError as error:
                    log.error("%s-%d was not closed cleanly: %s", one.topic, one.partition, error.message)
                    return False
                return True

        clean &= all(await asyncio.gather(*map(close_one, self.logs.values())))
        try:
            await self.write_checkpoints(recovery_points=True)
            if clean:
                marker = encode_clean_shutdown(self.broker_epoch)
                await self.storage.runtime.run_in_thread(
                    self.storage.disk.replace_file, f"{self.path}/{file_names.CLEAN_SHUTDOWN}", marker
                )
        except (KafkaError, OSError) as error:
            log.error("%s was not closed cleanly: %s", self.path, error)
        finally:
            self.storage.files.close_all()
            self._lock.release()


def _identity(storage: Storage, path: str, node_id: int, cluster_id: str | None) -> tuple[UUID, int, str | None]:
    """(directory id, node id, cluster id) from `meta.properties`, which is made when it is not there."""
    file = f"{path}/{file_names.META_PROPERTIES}"
    found = read_properties(storage.disk, file)
    if found and found.get("version") != META_VERSION:
        raise LogDirError(f"{file}: version {found.get('version')!r}; only {META_VERSION} is known")
    if "node.id" in found and found["node.id"] != str(node_id):
        raise LogDirError(_other(file, "node.id", found["node.id"], str(node_id)))
    known = found.get("cluster.id")
    if known is not None and cluster_id is not None and known != cluster_id:
        raise LogDirError(_other(file, "cluster.id", known, cluster_id))
    directory_id = uuid_from_text(found["directory.id"]) if "directory.id" in found else storage.runtime.new_uuid()
    cluster_id = known if known is not None else cluster_id
    wanted = _properties(node_id, cluster_id, directory_id)
    if {key: found.get(key) for key in wanted} != wanted:
        _write_identity(storage, path, node_id, cluster_id, directory_id)
    return directory_id, node_id, cluster_id


def _other(file: str, key: str, found: str, wanted: str) -> str:
    return f"{file} says {key}={found}, but this broker has {key}={wanted}: the directory belongs to another"


def _properties(node_id: int, cluster_id: str | None, directory_id: UUID) -> dict[str, str]:
    values = {"version": META_VERSION, "node.id": str(node_id), "directory.id": uuid_text(directory_id)}
    return values if cluster_id is None else {**values, "cluster.id": cluster_id}


def _write_identity(storage: Storage, path: str, node_id: int, cluster_id: str | None, directory_id: UUID) -> None:
    data = encode_properties(_properties(node_id, cluster_id, directory_id))
    storage.disk.replace_file(f"{path}/{file_names.META_PROPERTIES}", data)
