"""Whether a broker that did not stop in order may have lost anything: what it had not synced is in the machine's memory for as long as that runs.

A file says under which boot of the machine the last life ran, and its broker epoch. A process that was killed comes again under the same boot and
has lost nothing; one that finds another boot has lost what was not synced, and is trusted with no more than others are (rule 5). What fails
to be written or read counts as lost.
"""

import logging

import msgspec

from ottla_broker.log.disk import Disk
from ottla_broker.runtime import Runtime

logger = logging.getLogger(__name__)

FILE_NAME = "last-life.json"
NO_TRUSTED_EPOCH = -1


class IncarnationRecord(msgspec.Struct, frozen=True):
    """`boot`: the machine's; `epoch`: the broker's, as registered."""

    boot: str
    epoch: int


class PreviousIncarnation:
    """`folder`: the broker's first log directory."""

    def __init__(self, folder: str, disk: Disk, runtime: Runtime) -> None:
        self._path = f"{folder}/{FILE_NAME}"
        self._disk = disk
        self._runtime = runtime

    def trusted_epoch(self) -> int:
        """Of the last life, when nothing that it wrote can be lost; else LOST."""
        boot = self._runtime.boot_id()
        try:
            if not boot or not self._disk.exists(self._path):
                return NO_TRUSTED_EPOCH
            life = msgspec.json.decode(self._disk.read_file(self._path), type=IncarnationRecord)
        except (OSError, msgspec.MsgspecError) as reason:
            logger.warning("%s cannot be read, so that something may have been lost: %s", self._path, reason)
            return NO_TRUSTED_EPOCH
        return life.epoch if life.boot == boot else NO_TRUSTED_EPOCH

    async def record_registration(self, epoch: int) -> None:
        """This broker's life, from its registration on."""
        await self._write(IncarnationRecord(self._runtime.boot_id(), epoch))

    async def record_data_loss(self) -> None:
        """A disk failed: what it was given to write may be neither on it nor in memory."""
        await self._write(IncarnationRecord("", NO_TRUSTED_EPOCH))

    async def _write(self, life: IncarnationRecord) -> None:
        try:
            await self._runtime.run_in_thread(self._disk.replace_file, self._path, msgspec.json.encode(life))
        except OSError as reason:
            logger.warning("%s cannot be written: %s", self._path, reason)
