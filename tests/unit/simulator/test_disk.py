"""The simulated disk behaves like the operating system's until power loss; then it keeps what was
synced.
"""

import tempfile
from pathlib import Path
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_broker.log.disk import Disk, OsDisk
from tests.sim.disk import SimulatedDisk

NAMES = st.sampled_from(["a", "b", "d/a", "d/b", "d/e/a"])
FOLDERS = st.sampled_from(["d", "d/e", "x"])
DATA = st.binary(max_size=12)
SIZES = st.integers(0, 20)
CALLS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), NAMES, DATA),
        st.tuples(st.just("truncate"), NAMES, SIZES),
        st.tuples(st.just("read"), NAMES, SIZES, SIZES),
        st.tuples(st.just("replace_file"), NAMES, DATA),
        st.tuples(st.just("read_file"), NAMES),
        st.tuples(st.just("remove"), NAMES),
        st.tuples(st.just("exists"), NAMES),
        st.tuples(st.just("file_size"), NAMES),
        st.tuples(st.just("rename"), st.sampled_from(["a", "b"]), st.sampled_from(["a", "b", "c"])),
        st.tuples(st.just("make_directory"), FOLDERS),
        st.tuples(st.just("sync_directory"), FOLDERS),
        st.tuples(st.just("remove_tree"), FOLDERS),
        st.tuples(st.just("list"), FOLDERS),
    ),
    max_size=30,
)


def create_disk() -> SimulatedDisk:
    return SimulatedDisk(Random(1), lambda: 0.0, lambda: 1_000)


def call(disk: Disk, root: str, name: str, path: str, *rest: object) -> object:
    """The result of a call, or the errno of its error."""
    path = f"{root}/{path}"
    try:
        if name in ("append", "truncate", "read"):
            file = disk.open(path, create=name != "read")
            try:
                argument = ([rest[0]],) if name == "append" else rest
                return getattr(file, name)(*argument), file.size()
            finally:
                file.close()
        if name == "rename":
            rest = (f"{root}/{rest[0]}",)
        return getattr(disk, name)(path, *rest)
    except OSError as error:
        return error.errno


@settings(max_examples=150, deadline=None)
@given(CALLS)
def test_calls_have_the_results_of_the_operating_system(calls: list[tuple[str, str]]) -> None:
    fake = create_disk()
    fake.make_directory("/disk")
    with tempfile.TemporaryDirectory(prefix="ottla-disk-") as folder:
        for one in calls:
            assert call(fake, "/disk", *one) == call(OsDisk(), folder, *one), one
        files = sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())
        assert {name: fake.read_file(f"/disk/{name}") for name in files} == {
            name: (Path(folder) / name).read_bytes() for name in files
        }


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(DATA.filter(bool), st.just(None)), max_size=20), st.integers(0, 1000))
def test_power_loss_keeps_synced_data_and_a_prefix_of_the_rest(steps: list[bytes | None], seed: int) -> None:
    disk = SimulatedDisk(Random(seed), lambda: 0.0, lambda: 1_000)
    disk.mount("/v")
    file = disk.open("/v/log", create=True)
    disk.sync_directory("/v")
    written = safe = b""
    for step in steps:
        if step is None:
            file.sync()
            safe = written
        else:
            file.append([step])
            written += step
    disk.lose_power()
    found = disk.read_file("/v/log")
    assert written.startswith(found)
    assert found.startswith(safe)


def test_new_file_survives_power_loss_only_if_its_directory_was_synced() -> None:
    outcomes = set()
    for seed in range(20):
        disk = SimulatedDisk(Random(seed), lambda: 0.0, lambda: 1_000)
        disk.mount("/v")
        disk.open("/v/a", create=True).sync()
        disk.lose_power()
        outcomes.add(disk.exists("/v/a"))
    assert outcomes == {True, False}


def test_replaced_file_survives_power_loss() -> None:
    disk = create_disk()
    disk.mount("/v")
    disk.replace_file("/v/a", b"old")
    disk.replace_file("/v/a", b"new")
    disk.lose_power()
    assert disk.read_file("/v/a") == b"new"


def test_offloaded_sync_takes_effect_at_its_end() -> None:
    now = 0.0
    disk = SimulatedDisk(Random(3), lambda: now, lambda: 1_000)
    disk.sync_s = lambda: 1.0
    disk.mount("/v")
    file = disk.open("/v/a", create=True)
    disk.sync_directory("/v")
    file.append([b"x" * 1000])
    took_s, _ = disk.offload(file.sync)
    assert took_s > 1.0
    now = 2.0
    file.append([b"y" * 1000])
    disk.lose_power()
    assert disk.read_file("/v/a").startswith(b"x" * 1000)
