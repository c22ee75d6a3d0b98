"""Watches the files and folders that are arguments of `ottla up`. Continues when a folder is
replaced, as `git checkout` does."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Final

from watchfiles import Change, awatch

from ottla_operator.local import documents, schema_files

PYTHON_SUFFIX: Final = ".py"  # steps of pipelines
WATCHED_SUFFIXES: Final = (*documents.SUFFIXES, *schema_files.SUFFIXES, PYTHON_SUFFIX)
POLL_S: Final = 1.0


async def watch_edits(
    inputs: Sequence[Path], home: Path, stop: asyncio.Event, more_files: Callable[[], Collection[Path]] = tuple
) -> AsyncIterator[frozenset[str]]:
    """Yields the names of files that were changed together, until `stop` is set. Yields an empty
    set when a watch begins, because files may have changed before. `home`: the folder that `ottla
    up` writes to, which is ignored. `more_files`: returns the files that the inputs refer to now.
    """

    def folders() -> set[Path]:
        return {it if it.is_dir() else it.parent for it in inputs} | {it.parent for it in more_files()}

    is_edit = _edit_filter(inputs, home, more_files)
    while not stop.is_set():
        watched, is_new = _existing(folders()), True
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
                if _existing(folders()) != watched:
                    break
        except FileNotFoundError:  # a folder was deleted just now
            continue


def _edit_filter(
    inputs: Iterable[Path], home: Path, more_files: Callable[[], Collection[Path]]
) -> Callable[[Change, str], bool]:
    named = {path.name for path in inputs}
    home_prefix = f"{home.resolve()}/"

    def is_edit(_: Change, name: str) -> bool:
        is_named = Path(name).name in named | {it.name for it in more_files()}
        return (name.endswith(WATCHED_SUFFIXES) or is_named) and not name.startswith(home_prefix)

    return is_edit


def _existing(folders: Iterable[Path]) -> dict[Path, int]:
    """Inode numbers of the folders that exist. A replaced folder has another number."""
    found: dict[Path, int] = {}
    for folder in folders:
        try:
            found[folder] = folder.stat().st_ino
        except OSError:
            continue
    return found
