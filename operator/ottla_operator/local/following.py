"""Edits of what `ottla up` was given, as they come; also when a folder is taken away and comes back, as with another branch checked out."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path

from watchfiles import Change, awatch

from ottla_operator.local import documents

STEPS = ".py"  # Python steps of pipelines
WATCHED = (*documents.SUFFIXES, STEPS)
LOOK_S = 1.0


async def edits(inputs: Sequence[Path], home: Path, ending: asyncio.Event) -> AsyncIterator[frozenset[str]]:
    """Names of files that were changed together, until `ending`. No names: it is to be looked again, because a watch has just begun and something may have come
    before it. `inputs`: files and folders. `home`: where our own files are, which are nobody's edits."""
    folders, is_edit = _folders(inputs), _filter(inputs, home)
    while not ending.is_set():
        watched, is_new = _there(folders), True
        try:
            async for changes in awatch(
                *watched,
                watch_filter=is_edit,
                recursive=False,
                stop_event=ending,
                rust_timeout=int(LOOK_S * 1000),
                yield_on_timeout=True,
            ):
                if changes or is_new:
                    is_new = False
                    yield frozenset(name for _, name in changes)
                if _there(folders) != watched:
                    break
        except FileNotFoundError:  # it has gone just now
            continue


def _folders(inputs: Iterable[Path]) -> set[Path]:
    return {path if path.is_dir() else path.parent for path in inputs}


def _filter(inputs: Iterable[Path], home: Path) -> Callable[[Change, str], bool]:
    named = {path.name for path in inputs}
    ours = f"{home.resolve()}/"
    return lambda _, name: (name.endswith(WATCHED) or Path(name).name in named) and not name.startswith(ours)


def _there(folders: Iterable[Path]) -> dict[Path, int]:
    """Those that are there, each with its inode: one that was made anew is another one."""
    found: dict[Path, int] = {}
    for folder in folders:
        try:
            found[folder] = folder.stat().st_ino
        except OSError:
            continue
    return found
