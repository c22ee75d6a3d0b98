"""The newest epoch that a broker follows, in the file `quorum-state` beside the metadata log.

A broker follows no leader of an older epoch. The file is synced before the broker sends the first fetch in an epoch, so
that a restart does not lose the epoch. It holds the register's value as last known, and with it the leader's address
while the register is unavailable.
"""

import asyncio
from collections.abc import Callable

import msgspec

from ottla_broker.log.disk import Disk
from ottla_broker.metadata.register import RegisterValue
from ottla_broker.runtime import Runtime
from ottla_broker.wire.errors import ErrorCode, KafkaError

FILE_NAME = "quorum-state"
NO_EPOCH = -1
_APACHE_KAFKA_FIELD = b'"data_version"'  # Apache Kafka has a file of the same name, with this field


class QuorumState:
    """`value` None: no epoch was stored. `on_change` is called after each new value."""

    def __init__(self, folder: str, disk: Disk, runtime: Runtime, on_change: Callable[[], None] = lambda: None) -> None:
        self._path = f"{folder}/{FILE_NAME}"
        self._disk = disk
        self._runtime = runtime
        self._on_change = on_change
        self._lock = asyncio.Lock()
        self.value: RegisterValue | None = self._load()

    @property
    def epoch(self) -> int:
        return NO_EPOCH if self.value is None else self.value.epoch

    @property
    def leader_id(self) -> int:
        return -1 if self.value is None else self.value.leader

    async def store(self, value: RegisterValue) -> bool:
        """Stores `value`, and with it the promise to follow no older epoch; False when a newer epoch is stored.
        KAFKA_STORAGE_ERROR. In the stored epoch only a change of voters is written, not a renewed lease."""
        async with self._lock:
            stored = self.value
            if stored is not None and value.epoch < stored.epoch:
                return False
            if stored is not None and (value.epoch, value.isr) == (stored.epoch, stored.isr):
                return True
            try:
                await self._runtime.run_in_thread(self._disk.replace_file, self._path, msgspec.json.encode(value))
            except OSError as error:
                raise KafkaError(
                    ErrorCode.kafka_storage_error, f"{self._path} cannot be written: {error.strerror or error}"
                ) from error
            self.value = value
            self._on_change()
            return True

    def _load(self) -> RegisterValue | None:
        try:
            if not self._disk.exists(self._path):
                return None
            data = self._disk.read_file(self._path)
            return msgspec.json.decode(data, type=RegisterValue)
        except (OSError, msgspec.MsgspecError) as error:
            if isinstance(error, msgspec.ValidationError) and _APACHE_KAFKA_FIELD in data:
                raise KafkaError(
                    ErrorCode.kafka_storage_error,
                    f"{self._path} is Apache Kafka's, whose metadata have another format: name a new folder in log.dirs "
                    "and copy the topics' partition folders into it",
                ) from error
            raise KafkaError(ErrorCode.kafka_storage_error, f"{self._path} cannot be read: {error}") from error
