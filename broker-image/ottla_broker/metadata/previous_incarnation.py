"""Detects whether an unclean shutdown may have lost records: unsynced records survive in the page
cache until the machine restarts.

A file stores the machine's boot id and the broker epoch of the last incarnation. With the same boot
id a killed process has lost no records. With another one it may have lost unsynced records, and
other replicas are preferred (rule 5). A file that cannot be read counts as lost records, and so
does one that could not be written at the last registration, because it has an older epoch.
"""

import logging

import msgspec

from ottla_broker.log.disk import Disk
from ottla_broker.runtime import Runtime

logger = logging.getLogger(__name__)

FILE_NAME = "last-life.json"
NO_TRUSTED_EPOCH = -1


class IncarnationRecord(msgspec.Struct, frozen=True):
    """`boot`: the machine's boot id; `epoch`: the broker epoch."""

    boot: str
    epoch: int


class PreviousIncarnation:
    """`folder`: the broker's first log directory."""

    def __init__(self, folder: str, disk: Disk, runtime: Runtime) -> None:
        self._path = f"{folder}/{FILE_NAME}"
        self._disk = disk
        self._runtime = runtime

    def read_trusted_epoch(self) -> int:
        """The broker epoch of the last incarnation if it lost no records, else NO_TRUSTED_EPOCH."""
        boot = self._runtime.boot_id()
        try:
            if not boot or not self._disk.exists(self._path):
                return NO_TRUSTED_EPOCH
            incarnation = msgspec.json.decode(self._disk.read_file(self._path), type=IncarnationRecord)
        except (OSError, msgspec.MsgspecError) as reason:
            logger.warning("assuming lost records, because %s cannot be read: %s", self._path, reason)
            return NO_TRUSTED_EPOCH
        return incarnation.epoch if incarnation.boot == boot else NO_TRUSTED_EPOCH

    async def record_registration(self, epoch: int) -> None:
        await self._write(IncarnationRecord(self._runtime.boot_id(), epoch))

    async def record_data_loss(self) -> None:
        """Called after a disk failure, when unsynced records may be neither on the disk nor in
        memory.
        """
        await self._write(IncarnationRecord("", NO_TRUSTED_EPOCH))

    async def _write(self, incarnation: IncarnationRecord) -> None:
        try:
            await self._runtime.run_in_thread(self._disk.replace_file, self._path, msgspec.json.encode(incarnation))
        except OSError as reason:
            logger.warning("%s cannot be written: %s", self._path, reason)
