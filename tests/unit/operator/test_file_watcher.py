"""Edits of files while `ottla up` is running."""

import asyncio
from pathlib import Path

from ottla_operator.local.file_watcher import watch_edits
from tests.unit.async_tests import async_test


async def wait_for_edit(edits: asyncio.Queue[frozenset[str]], name: str) -> set[str]:
    """Waits for an edit of a file of this name. Returns the names of all files that were reported
    until then.
    """
    reported: set[str] = set()
    async with asyncio.timeout(20):
        while name not in reported:
            reported |= {Path(it).name for it in await edits.get()}
    return reported


async def wait_for_new_watch(edits: asyncio.Queue[frozenset[str]]) -> None:
    """Waits for the empty set that `watch_edits` yields when a watch begins."""
    async with asyncio.timeout(20):
        while await edits.get():
            pass


async def queue_edits(
    inputs: list[Path], home: Path, stop: asyncio.Event, edits: asyncio.Queue[frozenset[str]]
) -> None:
    async for names in watch_edits(inputs, home, stop):
        edits.put_nowait(names)


@async_test
async def test_resources_python_steps_and_given_files_are_watched(tmp_path: Path) -> None:
    edits: asyncio.Queue[frozenset[str]] = asyncio.Queue()
    stop = asyncio.Event()
    (tmp_path / "plain.txt").write_text("named")
    watching = asyncio.create_task(queue_edits([tmp_path, tmp_path / "plain.txt"], tmp_path / "home", stop, edits))
    await wait_for_new_watch(edits)
    reported: set[str] = set()
    for name in ("a.yaml", "b.json", "steps.py", "plain.txt"):
        (tmp_path / "other.txt").write_text(name)
        (tmp_path / name).write_text(name)
        reported |= await wait_for_edit(edits, name)
    stop.set()
    await watching
    remaining = [edits.get_nowait() for _ in range(edits.qsize())]
    reported |= {Path(it).name for names in remaining for it in names}
    assert reported == {"a.yaml", "b.json", "steps.py", "plain.txt"}


@async_test
async def test_a_folder_that_is_replaced_is_watched_again(tmp_path: Path) -> None:
    """The watch of the old folder reports nothing of the new one."""
    edits: asyncio.Queue[frozenset[str]] = asyncio.Queue()
    stop = asyncio.Event()
    folder = tmp_path / "resources"
    folder.mkdir()
    watching = asyncio.create_task(queue_edits([folder], tmp_path / "home", stop, edits))
    await wait_for_new_watch(edits)
    for away in ("first", "second"):
        folder.rename(tmp_path / away)
        folder.mkdir()
        await wait_for_new_watch(edits)
        (folder / "a.yaml").write_text("x")
        await wait_for_edit(edits, "a.yaml")
    stop.set()
    await watching
