"""Cleaning up after a crash inside a partition's folder, by the rules that Apache Kafka follows.

- `.deleted`: on its way out; removed.
- `.cleaned`: compaction or a split was still writing it; removed.
- `.swap`: compaction was done and was putting it in place; the segments that it replaces are removed and it takes its name. But one
  at or above the smallest `.cleaned` belongs to a split that was not done; removed.
- An index without its `.log`: removed.
"""

from ottla_broker.log import file_names
from ottla_broker.log.segment import Segment
from ottla_broker.log.storage import Storage


def tidy(storage: Storage, directory: str) -> list[str]:
    """Applies the rules; returns the names that the folder holds now, sorted. OSError; CorruptSegment of a `.swap`."""
    disk = storage.disk
    found = disk.list(directory)
    if not any(name.endswith((file_names.DELETED, file_names.CLEANED, file_names.SWAP)) for name in found):
        return _without_orphans(storage, directory, found)
    cleaned = [name for name in found if name.endswith(file_names.CLEANED)]
    smallest = min((offset for name in cleaned if (offset := file_names.offset_of(name)) is not None), default=None)
    swaps = []
    for name in found:
        offset = file_names.offset_of(name)
        if name.endswith((file_names.DELETED, file_names.CLEANED)):
            disk.remove(f"{directory}/{name}")
        elif name.endswith(file_names.SWAP) and offset is not None:
            if smallest is not None and offset >= smallest:
                disk.remove(f"{directory}/{name}")
            else:
                swaps.append((offset, name))
    if swaps:
        _swap_in(storage, directory, swaps)
    return _without_orphans(storage, directory, disk.list(directory))


def _swap_in(storage: Storage, directory: str, swaps: list[tuple[int, str]]) -> None:
    disk = storage.disk
    logs = [(offset, name) for offset, name in swaps if name.endswith(file_names.LOG + file_names.SWAP)]
    if logs:
        first = min(offset for offset, _ in logs)
        end = max(_end_of(storage, directory, offset, name) for offset, name in logs)
        for name in disk.list(directory):
            offset = file_names.offset_of(name)
            if offset is not None and first <= offset < end and not name.endswith(file_names.SWAP):
                disk.remove(f"{directory}/{name}")
    for _, name in swaps:
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(file_names.SWAP)}")


def _end_of(storage: Storage, directory: str, base: int, name: str) -> int:
    """The offset after the last batch of a `.swap` file; its base when it is empty."""
    path = f"{directory}/{name}"
    segment = Segment(storage.files, directory, base, size=storage.disk.file_size(path), now_ms=0)
    segment.path = path
    end = base
    for found in segment.batches(0):
        end = found.last_offset + 1
    storage.files.close(path)
    return end


def _without_orphans(storage: Storage, directory: str, found: list[str]) -> list[str]:
    logs = {name[: -len(file_names.LOG)] for name in found if name.endswith(file_names.LOG)}
    kept = []
    for name in found:
        if name.endswith(file_names.INDEXES) and name.rpartition(".")[0] not in logs:
            storage.disk.remove(f"{directory}/{name}")
        else:
            kept.append(name)
    return kept
