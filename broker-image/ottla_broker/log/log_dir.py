"""One of `log.dirs`: its lock, its identity, its checkpoint files and the logs of its
partitions."""

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Final
from uuid import UUID

from ottla_broker.log import file_names
from ottla_broker.log.adoption import adopt_log
from ottla_broker.log.checkpoints import (
    Offsets,
    decode_clean_shutdown,
    encode_clean_shutdown,
    encode_offsets,
    encode_topic_id,
    read_offsets,
)
from ottla_broker.log.cleaner import Cleaner
from ottla_broker.log.config import LogConfig
from ottla_broker.log.disk import Disk, Lock, LockHeld, write_file
from ottla_broker.log.file_names import TopicPartition
from ottla_broker.log.flush import is_checkpointed
from ottla_broker.log.meta_properties import (
    PREVIOUS_CLUSTER_ID,
    LogDirError,
    LogDirIdentity,
    describe_mismatch,
    identity_properties,
    load_or_create_identity,
    log_dir_errors,
    write_identity,
)
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.recovery import LogCheckpoint, create_log, open_log
from ottla_broker.log.storage import Storage, is_out_of_resources
from ottla_broker.runtime import Runtime, uuid_text
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

NO_EPOCH: Final = -1
_CHECKPOINTS: Final = (file_names.RECOVERY_POINTS, file_names.HIGH_WATERMARKS, file_names.LOG_STARTS)
_MAX_CLOSING_LOGS: Final = 16


class LogDir:
    """Open one with `attach` and `load`. `failure`: why the whole directory is offline; None while
    it works.

    `previous_broker_epoch`: epoch of the broker that stopped cleanly here (KIP-966); NO_EPOCH
    without one. `broker_epoch`: this broker's epoch; set at the registration and stored in the
    clean shutdown file.
    """

    def __init__(
        self,
        path: str,
        disk: Disk,
        runtime: Runtime,
        lock: Lock,
        node_id: int,
        identity: LogDirIdentity,
    ) -> None:
        self.path = path
        self.storage = Storage(disk, runtime, lambda: self._write_now(file_names.RECOVERY_POINTS))
        self.node_id = node_id
        self.directory_id = identity.directory_id
        self.cluster_id = identity.cluster_id
        self.previous_cluster_id = identity.previous_cluster_id
        self.logs: dict[TopicPartition, PartitionLog] = {}
        # Copies of logs that move here (`log.future_log`), and the folders of those that a stop
        # interrupted.
        self.future_logs: dict[TopicPartition, PartitionLog] = {}
        self.interrupted_moves: dict[str, TopicPartition] = {}
        self.failure: str | None = None
        self.was_clean_shutdown = False
        self.previous_broker_epoch = NO_EPOCH
        self.broker_epoch = NO_EPOCH
        self.folders_to_delete: list[str] = []
        self.cleaner = Cleaner(self.storage, path, self.logs)
        # producer.id.expiration.ms, which may change at any time
        self.producer_expiration_ms = 86_400_000
        self._lock = lock
        self._closed = False
        self._loaded = False
        # What each checkpoint file says of partitions that are not loaded yet, and its present
        # content.
        self._unloaded: dict[str, Offsets] = {name: {} for name in _CHECKPOINTS}
        self._written: dict[str, bytes] = {}
        # Partitions that were deleted or moved away and that the checkpoint files still name.
        self._removed: set[TopicPartition] = set()

    @property
    def absolute_path(self) -> str:
        """The path as clients name it, computed without the file system, because a simulated disk
        has none.
        """
        return os.path.abspath(self.path)  # noqa: PTH100

    @classmethod
    def attach(cls, path: str, *, disk: Disk, runtime: Runtime, node_id: int, cluster_id: str | None) -> "LogDir":
        """Opens or creates the directory: lock, identity, checkpoint files. `load` opens its
        partitions.

        Raises LogDirError if it is not writable, is locked, belongs to another node or cluster, or
        has unreadable files.
        """
        path = path.rstrip("/") or "/"
        with log_dir_errors(path):
            disk.make_directory(path)
            try:
                lock = disk.lock(f"{path}/{file_names.LOCK}")
            except LockHeld as error:
                raise LogDirError(f"{path} is in use: {error}") from None
            try:
                identity = load_or_create_identity(disk, runtime, path, node_id, cluster_id)
                attached = cls(path, disk, runtime, lock, node_id, identity)
                attached._read_files()
            except BaseException:
                lock.release()
                raise
        return attached

    def _read_files(self) -> None:
        disk = self.storage.disk
        clean_shutdown = f"{self.path}/{file_names.CLEAN_SHUTDOWN}"
        if disk.exists(clean_shutdown):
            self.was_clean_shutdown = True
            self.previous_broker_epoch = decode_clean_shutdown(disk.read_file(clean_shutdown))
            disk.remove(clean_shutdown)
        self._unloaded = {name: read_offsets(disk, f"{self.path}/{name}") for name in _CHECKPOINTS}
        folders = disk.list(self.path)
        partition_of_folder = {f"{self.path}/{one}": file_names.parse_future_folder_name(one) for one in folders}
        self.interrupted_moves = {path: key for path, key in partition_of_folder.items() if key is not None}
        self.folders_to_delete += [f"{self.path}/{one}" for one in folders if one.endswith(file_names.DELETE_FOLDER)]

    def load(
        self, config_of: Callable[[str], LogConfig], only_topic: str | None = None, *, gapless: bool = True
    ) -> None:
        """Opens the partitions that are not open yet, of one topic or of all; those that are
        damaged have `failure` set.

        `config_of`: a topic's name → its log's settings. `gapless`: see `LogCheckpoint`. Raises
        LogDirError if the directory cannot be read, or the disk is full or file descriptors are
        exhausted.
        """
        points = self._unloaded[file_names.RECOVERY_POINTS]
        with log_dir_errors(self.path):
            for folder in self.storage.disk.list(self.path):
                key = file_names.parse_folder_name(folder)
                if key is not None and key not in self.logs and only_topic in (None, key[0]):
                    self.logs[key] = self._open_log(key, folder, config_of(key[0]), gapless)
            # Most partitions are not used soon, and opening their files again costs little.
            self.storage.files.close_all()
            if any(log.recovery_point < points.get(key, 0) for key, log in self.logs.items()):
                # Otherwise a restart after a crash would assume that what is written next is
                # flushed.
                self._write_now(file_names.RECOVERY_POINTS)
            if only_topic is None:
                self._loaded = True
                self._unloaded = {name: {} for name in _CHECKPOINTS}

    def _open_log(self, key: TopicPartition, folder: str, config: LogConfig, gapless: bool) -> PartitionLog:
        point, high_watermark, start = (self._unloaded[name].get(key, 0) for name in _CHECKPOINTS)
        checkpoint = LogCheckpoint(self.was_clean_shutdown, point, start, gapless)
        log = open_log(self.storage, f"{self.path}/{folder}", *key, config, checkpoint)
        log.advance_high_watermark(high_watermark)
        return log

    def set_cluster_id(self, cluster_id: str) -> None:
        """Writes the cluster's id to `meta.properties`. Raises LogDirError if it has another id;
        OSError."""
        if self.cluster_id is not None and self.cluster_id != cluster_id:
            raise LogDirError(describe_mismatch(self.path, "cluster.id", self.cluster_id, cluster_id))
        if self.cluster_id is None:
            self.cluster_id = cluster_id
            properties = identity_properties(self.node_id, cluster_id, self.directory_id)
            write_identity(self.storage.disk, self.path, properties)

    def move_to_cluster(self, cluster_id: str) -> None:
        """Replaces the cluster's id in `meta.properties` when the cluster is recovered under a new
        id, and stores the present id as the previous one. Raises LogDirError.
        """
        if self.cluster_id == cluster_id:
            return
        previous = {} if self.cluster_id is None else {PREVIOUS_CLUSTER_ID: self.cluster_id}
        properties = identity_properties(self.node_id, cluster_id, self.directory_id) | previous
        with log_dir_errors(self.path):
            write_identity(self.storage.disk, self.path, properties)
        self.cluster_id, self.previous_cluster_id = cluster_id, self.cluster_id

    # --- partitions

    def create_log(self, topic: str, partition: int, topic_id: UUID | None, config: LogConfig) -> PartitionLog:
        """The partition's log; a new one if there is none. Raises KafkaError: KAFKA_STORAGE_ERROR;
        INCONSISTENT_TOPIC_ID if the folder belongs to an earlier topic of that name."""
        existing = self.logs.get((topic, partition))
        if existing is not None:
            self._check_or_set_topic_id(existing, topic_id)
            existing.set_config(config)
            return existing
        directory = f"{self.path}/{file_names.partition_folder(topic, partition)}"
        try:
            if (topic, partition) in self._removed:
                # The checkpoint files still name the partition that was deleted.
                self._write_now(*_CHECKPOINTS)
                self._removed.clear()
            log = create_log(self.storage, directory, topic, partition, topic_id, config)
        except OSError as error:
            raise self._storage_error(directory, error) from error
        self.logs[topic, partition] = log
        return log

    def _check_or_set_topic_id(self, log: PartitionLog, topic_id: UUID | None) -> None:
        if topic_id is None or log.topic_id == topic_id:
            return
        if log.topic_id is not None:
            raise KafkaError(
                ErrorCode.inconsistent_topic_id,
                f"{log.directory} belongs to topic id {uuid_text(log.topic_id)}, not to {uuid_text(topic_id)}",
            )
        log.topic_id = topic_id
        path = f"{log.directory}/{file_names.PARTITION_METADATA}"
        try:
            write_file(self.storage.disk, path, encode_topic_id(topic_id))
        except OSError as error:
            raise self._storage_error(path, error) from error

    def delete_log(self, topic: str, partition: int) -> None:
        """Deletes a partition, if there is one: its folder is renamed now and removed in the
        background. Raises KafkaError: KAFKA_STORAGE_ERROR if the folder cannot be renamed."""
        self._remove_log(topic, partition, file_names.DELETE_FOLDER)

    def move_to_stray(self, topic: str, partition: int) -> None:
        """Removes a partition and renames its folder to Kafka's name for stray partitions. Neither
        Ottla nor Kafka deletes such a folder. Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        self._remove_log(topic, partition, file_names.STRAY_FOLDER)

    def _remove_log(self, topic: str, partition: int, suffix: str) -> None:
        log = self.logs.pop((topic, partition), None)
        if log is None:
            return
        self.cleaner.forget_log(topic, partition)
        log.clear_tail_cache()
        for segment in log.segments:
            segment.unload()
        log.failure = KafkaError(ErrorCode.unknown_topic_or_partition, f"{topic}-{partition} was deleted")
        self._rename_folder(log.directory, topic, partition, suffix)
        self._removed.add((topic, partition))

    def delete_folder(self, directory: str, topic: str, partition: int) -> None:
        """Deletes a folder that belongs to none of `logs`, as `delete_log` does. Raises KafkaError:
        KAFKA_STORAGE_ERROR."""
        self._rename_folder(directory, topic, partition, file_names.DELETE_FOLDER)

    def _rename_folder(self, directory: str, topic: str, partition: int, suffix: str) -> None:
        unique = f".{self.storage.runtime.new_uuid().hex}{suffix}"
        folder = file_names.partition_folder(topic, partition)[: file_names.MAX_FILE_NAME - len(unique)] + unique
        try:
            self.storage.disk.rename(directory, f"{self.path}/{folder}")
        except OSError as error:
            raise self._storage_error(directory, error) from error
        if suffix == file_names.DELETE_FOLDER:
            self.folders_to_delete.append(f"{self.path}/{folder}")

    def _storage_error(self, path: str, error: OSError) -> KafkaError:
        reason = f"{path}: {error.strerror or error}"
        if not is_out_of_resources(error):
            self.failure = reason
            logger.error("log directory %s is offline: %s", self.path, reason)
        return KafkaError(ErrorCode.kafka_storage_error, reason)

    async def adopt_foreign_logs(self) -> None:
        """Converts logs that another cluster wrote to logs of this cluster (`log.adoption`) and
        syncs them. Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        now_ms = self.storage.runtime.now_ms()
        for log in self.logs.values():
            if log.failure is None:
                await adopt_log(log, now_ms)
        await self.write_checkpoints(recovery_points=True)

    # --- checkpoint files

    async def write_checkpoints(self, *, recovery_points: bool) -> None:
        """Writes the files of high watermarks and log starts, with `recovery_points` also that of
        recovery points. A file whose content would be the same is not written again. Raises
        KafkaError: KAFKA_STORAGE_ERROR."""
        self._removed.clear()
        for name in _CHECKPOINTS if recovery_points else _CHECKPOINTS[1:]:
            data = self._encode_checkpoint(name)
            if self._written.get(name) != data:
                path = f"{self.path}/{name}"
                try:
                    await self.storage.runtime.run_in_thread(self.storage.disk.replace_file, path, data)
                except OSError as error:
                    raise self._storage_error(path, error) from error
                self._written[name] = data

    def write_checkpoints_now(self) -> None:
        """Writes all checkpoint files on the event loop's thread. Raises OSError."""
        self._write_now(*_CHECKPOINTS)

    def _write_now(self, *names: str) -> None:
        """Writes on the event loop's thread, so that the file is on the disk before the next step.
        Raises OSError.
        """
        for name in names:
            data = self._encode_checkpoint(name)
            self.storage.disk.replace_file(f"{self.path}/{name}", data)
            self._written[name] = data

    def _encode_checkpoint(self, name: str) -> bytes:
        logs = self.logs.items()
        match name:
            case file_names.RECOVERY_POINTS:
                offsets = {key: log.recovery_point for key, log in logs}
            case file_names.HIGH_WATERMARKS:
                offsets = {key: log.high_watermark for key, log in logs}
            case _:
                offsets = {key: log.start for key, log in logs if log.failure or log.start > log.segments[0].base}
        return encode_offsets(self._unloaded[name] | offsets)

    async def close(self) -> None:
        """Syncs everything and writes the clean shutdown file.

        The file is not written if the directory or one of its logs has failed, or if a start after
        a crash was cancelled before all logs were recovered.
        """
        if self._closed:
            return
        self._closed = True
        clean = self.failure is None and (self._loaded or self.was_clean_shutdown)
        gate = asyncio.Semaphore(_MAX_CLOSING_LOGS)

        async def close_log(log: PartitionLog) -> bool:
            async with gate:
                try:
                    if log.failure is None and not is_checkpointed(log):
                        log.seal()
                        await log.checkpoint()
                    log.close()
                except KafkaError as error:
                    logger.error("%s-%d was not closed cleanly: %s", log.topic, log.partition, error.message)
                    return False
                return log.failure is None

        clean &= all(await asyncio.gather(*map(close_log, self.logs.values())))
        try:
            await self.write_checkpoints(recovery_points=True)
            if clean:
                path, data = f"{self.path}/{file_names.CLEAN_SHUTDOWN}", encode_clean_shutdown(self.broker_epoch)
                await self.storage.runtime.run_in_thread(self.storage.disk.replace_file, path, data)
        except (KafkaError, OSError) as error:
            logger.error("%s was not closed cleanly: %s", self.path, error)
        finally:
            self.storage.files.close_all()
            self._lock.release()
