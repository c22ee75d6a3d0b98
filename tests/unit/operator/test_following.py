"""Edits of files while `ottla up` runs."""

import asyncio
from pathlib import Path

from ottla_operator.local.following import edits
from tests.unit.operator.loop import on_loop


async def named(found: asyncio.Queue[frozenset[str]], name: str) -> None:
    """Waits for an edit of a file of this name."""
    async with asyncio.timeout(20):
        while not any(Path(it).name == name for it in await found.get()):
            pass


async def looked_again(found: asyncio.Queue[frozenset[str]]) -> None:
    async with asyncio.timeout(20):
        while await found.get():
            pass


async def follow(inputs: list[Path], home: Path, ending: asyncio.Event, found: asyncio.Queue[frozenset[str]]) -> None:
    async for names in edits(inputs, home, ending):
        found.put_nowait(names)


@on_loop
async def test_resources_python_steps_and_what_was_named_are_followed(tmp_path: Path) -> None:
    found: asyncio.Queue[frozenset[str]] = asyncio.Queue()
    ending = asyncio.Event()
    (tmp_path / "plain.txt").write_text("named")
    following = asyncio.create_task(follow([tmp_path, tmp_path / "plain.txt"], tmp_path / "home", ending, found))
    await looked_again(found)
    for name in ("a.yaml", "b.json", "steps.py", "plain.txt"):
        (tmp_path / "other.txt").write_text(name)
        (tmp_path / name).write_text(name)
        await named(found, name)
    ending.set()
    await following
    left = [it for names in [found.get_nowait() for _ in range(found.qsize())] for it in names]
    assert not any("other.txt" in it for it in left)


@on_loop
async def test_a_folder_that_is_taken_away_and_comes_back_is_followed_again(tmp_path: Path) -> None:
    """Its name then stands for another folder, and who watches the old one hears nothing."""
    found: asyncio.Queue[frozenset[str]] = asyncio.Queue()
    ending = asyncio.Event()
    folder = tmp_path / "resources"
    folder.mkdir()
    following = asyncio.create_task(follow([folder], tmp_path / "home", ending, found))
    await looked_again(found)
    for away in ("first", "second"):
        folder.rename(tmp_path / away)
        folder.mkdir()
        await looked_again(found)
        (folder / "a.yaml").write_text("x")
        await named(found, "a.yaml")
    ending.set()
    await following
