"""What a broker has promised: to follow no leader of the metadata log that is older than the newest it has heard of.

The promise is the register's value as last heard, in a file beside the metadata log; its epoch is what is promised. It is on the device before
the broker asks that epoch's leader for anything, so that no restart makes it forget. And it is how a broker finds the leader while the register is
away.
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
_APACHE_KAFKA_FIELD = b'"data_version"'  # a field of the file that Apache Kafka keeps under this name


class QuorumState:
    """`value` None: nothing was ever promised. `made` is called after each new one."""

    def __init__(self, folder: str, disk: Disk, runtime: Runtime, made: Callable[[], None] = lambda: None) -> None:
        self._path = f"{folder}/{FILE_NAME}"
        self._disk = disk
        self._runtime = runtime
        self._on_change = made
        self._lock = asyncio.Lock()
        self.value: RegisterValue | None = self._load()

    @property
    def epoch(self) -> int:
        return NO_EPOCH if self.value is None else self.value.epoch

    @property
    def leader_id(self) -> int:
        return -1 if self.value is None else self.value.leader

    async def store(self, value: RegisterValue) -> bool:
        """Promises `value`'s epoch, unless a newer one has been promised: then it is False. KAFKA_STORAGE_ERROR.

        In an epoch already promised, a changed membership is remembered, and a renewal is not worth a write.
        """
        async with self._lock:
            known = self.value
            if known is not None and value.epoch < known.epoch:
                return False
            if known is not None and (value.epoch, value.isr) == (known.epoch, known.isr):
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
                    f"{self._path} is Apache Kafka's, and so are the metadata beside it, which are kept in another form here: name a new"
                    " folder in log.dirs, and copy the topics' partition folders into it",
                ) from error
            raise KafkaError(ErrorCode.kafka_storage_error, f"{self._path} cannot be read: {error}") from error
