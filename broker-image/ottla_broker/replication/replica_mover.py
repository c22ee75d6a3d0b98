"""Moves replicas between the log directories of this broker (KIP-113): Kafka's
ReplicaAlterLogDirsManager.

A move copies the log (`log.future_log`), tells the controller the new directory (KIP-858), and only
then puts the copy in the log's place. A move that a stop of the broker interrupts starts again at
the next start.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final
from uuid import UUID

from ottla_broker.background_tasks import BackgroundTasks
from ottla_broker.config import REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND, Config
from ottla_broker.log import file_names
from ottla_broker.log.file_names import TopicPartition
from ottla_broker.log.future_log import FutureLog
from ottla_broker.log.log_dir import LogDir
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.partitions import Partitions
from ottla_broker.replication.throttle import Throttle
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

COPY_BYTES: Final = 1 << 20  # copied at once, while other requests wait
ASSIGN_PAUSE_S: Final = 1.0
REPORT_FAILED: Final = "cannot report the directory of a moving replica to the controller, retrying: %s"
SAMPLE_UNIQUE_ID: Final = "0" * 32
"""As long as that of every future replica's folder."""

Move = tuple[FutureLog, "asyncio.Task[None]"]


class ReplicaMover:
    """`own_epoch`: this broker's epoch. `send_to_controller`: raises KafkaError, OSError."""

    def __init__(
        self,
        broker_id: int,
        partitions: Partitions,
        log_dirs: Sequence[LogDir],
        config: Config,
        own_epoch: Callable[[], int],
        send_to_controller: Callable[[Any], Awaitable[Any]],
    ) -> None:
        self._broker_id = broker_id
        self._partitions = partitions
        self._log_dirs = log_dirs
        self._own_epoch = own_epoch
        self._send_to_controller = send_to_controller
        rate = lambda: config(REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND)  # noqa: E731
        self._throttle = Throttle(rate, asyncio.get_running_loop().time)
        self._tasks = BackgroundTasks()
        self._moves: dict[TopicPartition, Move] = {}
        self._preferred: dict[TopicPartition, LogDir] = {}  # of replicas that do not exist yet

    def move_replica(self, topic: str, partition: int, path: str) -> None:
        """Begins to move a replica to the log directory `path`. Raises INVALID_TOPIC_EXCEPTION,
        LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR; UNKNOWN_TOPIC_OR_PARTITION or REPLICA_NOT_AVAILABLE
        for a replica that does not exist yet, which is then created in that directory."""
        key = topic, partition
        if len(file_names.future_folder(topic, partition, SAMPLE_UNIQUE_ID).encode()) > file_names.MAX_FILE_NAME:
            raise KafkaError(ErrorCode.invalid_topic_exception, f"the name of {topic} is too long to move its replicas")
        target = next((one for one in self._log_dirs if one.absolute_path == path), None)
        if target is None:
            raise KafkaError(ErrorCode.log_dir_not_found, f"{path} is none of log.dirs")
        if target.failure is not None:
            raise KafkaError(ErrorCode.kafka_storage_error, f"log directory {path} is offline")
        moving = self._moves.get(key)
        if moving is not None and moving[0].target is not target:
            self.cancel_move(topic, partition)
            moving = None
        if self._partitions.get(topic, partition) is None:
            self._preferred[key] = target
        hosted = self._find_replica(topic, partition)
        source = next(one for one in self._log_dirs if key in one.logs)
        if moving is None and source is not target:
            self._begin_move(hosted, source, target)

    def _find_replica(self, topic: str, partition: int) -> Partition:
        try:
            return self._partitions.replica(topic, partition)
        except KafkaError as reason:
            if reason.code is ErrorCode.not_leader_or_follower:
                raise KafkaError(ErrorCode.replica_not_available, reason.message) from None
            raise

    def take_preferred_directory(self, topic: str, partition: int) -> LogDir | None:
        """Returns and forgets the directory in which a client wants a new replica to be created.
        None if no client chose one.
        """
        return self._preferred.pop((topic, partition), None)

    def _begin_move(self, hosted: Partition, source: LogDir, target: LogDir) -> None:
        key = hosted.topic, hosted.partition
        try:
            future = FutureLog(hosted.log, source, target)
        except OSError as error:
            reason = f"{target.path}: {error.strerror or error}"
            raise KafkaError(ErrorCode.kafka_storage_error, reason) from error
        logger.info("moving %s-%d from %s to %s", *key, source.path, target.path)
        self._moves[key] = future, self._tasks.start(self._move(hosted, future))

    async def _move(self, hosted: Partition, future: FutureLog) -> None:
        key = hosted.topic, hosted.partition
        former_directory = hosted.log.directory
        try:
            await self._copy(future)
            await self._assign_directory(hosted.topic_id, hosted.partition, future.target.directory_id)
            await self._copy(future)
            future.swap()
        except (KafkaError, OSError) as error:
            logger.error("%s-%d stays in %s: %s", *key, future.source.path, error)
            self._moves.pop(key, None)
            future.cancel()
            return
        self._moves.pop(key, None)
        try:
            # What was durable in the former directory must be so in this one.
            await hosted.log.wait_until_synced(hosted.log.end)
            future.remove_source(former_directory)
        except KafkaError as error:
            logger.error("%s of %s-%d is not deleted: %s", former_directory, *key, error)
        logger.info("moved %s-%d to %s", *key, future.target.path)

    async def _copy(self, future: FutureLog) -> None:
        """Returns when little is left to copy and everything else is on the device."""
        while True:
            while size := future.copy_batches(COPY_BYTES):
                self._throttle.record_bytes(size)
                await asyncio.sleep(self._throttle.throttle_time_s())
            await future.flush()
            if future.bytes_left <= COPY_BYTES:
                return

    async def _assign_directory(self, topic_id: UUID, partition: int, directory: UUID) -> None:
        """Returns when the controller knows the replica's directory. Raises KafkaError when the
        controller rejects the directory."""
        # Imported here: these classes would take 5 ms of a broker's start, and few brokers move a
        # replica.
        from kio.schema.assign_replicas_to_dirs.v0.request import (
            AssignReplicasToDirsRequest,
            DirectoryData,
            PartitionData,
            TopicData,
        )
        from kio.schema.types import BrokerId
        from kio.static.primitive import i32, i64

        topic = TopicData(topic_id=topic_id, partitions=(PartitionData(partition_index=i32(partition)),))
        while True:
            request = AssignReplicasToDirsRequest(
                broker_id=BrokerId(self._broker_id),
                broker_epoch=i64(self._own_epoch()),
                directories=(DirectoryData(id_=directory, topics=(topic,)),),
            )
            try:
                response = await self._send_to_controller(request)
            except (KafkaError, OSError) as error:
                logger.warning(REPORT_FAILED, error)
            else:
                if response.error_code is ErrorCode.none:
                    code = response.directories[0].topics[0].partitions[0].error_code
                    if code is not ErrorCode.none:
                        raise KafkaError(code, "the controller rejects the replica's directory")
                    return
                logger.warning(REPORT_FAILED, response.error_code.name)
            await asyncio.sleep(ASSIGN_PAUSE_S)

    def cancel_move(self, topic: str, partition: int) -> None:
        """Cancels the move of a replica, if there is one."""
        if (moving := self._moves.pop((topic, partition), None)) is not None:
            future, task = moving
            task.cancel()
            future.cancel()

    def resume_moves(self) -> None:
        """Starts again the moves that the last stop interrupted. Raises KAFKA_STORAGE_ERROR if an
        old copy cannot be deleted."""
        for target in self._log_dirs:
            interrupted, target.interrupted_moves = target.interrupted_moves, {}
            for folder, key in interrupted.items():
                target.delete_folder(folder, *key)
                try:
                    self.move_replica(*key, target.absolute_path)
                except KafkaError as error:
                    logger.warning("cancelled the move of %s-%d to %s: %s", *key, target.path, error)

    async def close(self) -> None:
        """Interrupts all moves."""
        await self._tasks.cancel()
