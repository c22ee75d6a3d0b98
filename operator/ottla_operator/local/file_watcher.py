"""Watches the files and folders that `ottla up` was given, also when a folder is replaced, as by
checking out another branch."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from watchfiles import Change, awatch

from ottla_operator.local import documents

PYTHON_STEPS: Final = ".py"  # of pipelines
WATCHED_SUFFIXES: Final = (*documents.SUFFIXES, PYTHON_STEPS)
POLL_S: Final = 1.0


async def watch_edits(inputs: Sequence[Path], home: Path, stop: asyncio.Event) -> AsyncIterator[frozenset[str]]:
    """Names of files that were changed together, until `stop`. Empty when a watch has just begun:
    an edit may have come before it. `home`: where `ottla up` writes."""
    folders, is_edit = {it if it.is_dir() else it.parent for it in inputs}, _filter(inputs, home)
    while not stop.is_set():
        watched, is_new = _existing(folders), True
        try:
            async for changes in awatch(
                *watched,
                watch_filter=is_edit,
                recursive=False,
                stop_event=stop,
                rust_timeout=int(POLL_S * 1000),
                yield_on_timeout=True,
            ):
                if changes or is_new:
                    is_new = False
                    yield frozenset(name for _, name in changes)
                if _existing(folders) != watched:
                    break
        except FileNotFoundError:  # a folder was deleted just now
            continue


def _filter(inputs: Iterable[Path], home: Path) -> Callable[[Change, str], bool]:
    named = {path.name for path in inputs}
    own = f"{home.resolve()}/"
    return lambda _, name: (name.endswith(WATCHED_SUFFIXES) or Path(name).name in named) and not name.startswith(own)


def _existing(folders: Iterable[Path]) -> dict[Path, int]:
    """Folders with their inodes: one that was replaced has another."""
    found: dict[Path, int] = {}
    for folder in folders:
        try:
            found[folder] = folder.stat().st_ino
        except OSError:
            continue
    return found
