"""One set of promises, kept by every store of the register: a file, a real etcd, and a real API server of Kubernetes."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from ottla_broker.metadata.quorum_rules import Voter
from ottla_broker.metadata.register import Conflict, Register, RegisterError, RegisterValue, VersionedValue
from ottla_broker.metadata.register.etcd import EtcdRegister
from ottla_broker.metadata.register.kubernetes import KubernetesRegister
from tests.brokers import broker_environment, run_ottla_broker
from tests.etcd import run_etcd
from tests.kube.control_plane import control_plane
from tests.registers import EtcdStore, FileStore, LeaseStore, RegisterStore, connect_register
from tests.waiting import eventually

VOTER_1 = Voter(1, UUID(int=1), "one:9091")
VOTER_2 = Voter(2, UUID(int=2), "[fd00::2]:9091")
FIRST_VALUE = RegisterValue("c", 1, 1, (VOTER_1,), (1,), 1, 0, 3000)
ERROR_WITHIN_S = 10.0  # a store that holds still is given five seconds

RegisterTest = Callable[[Register, Register], Awaitable[None]]


@pytest.fixture(scope="module", params=["file", "etcd", "kubernetes"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegisterStore]:
    folder = tmp_path_factory.mktemp(request.param)
    match request.param:
        case "file":
            yield FileStore(folder)
        case "etcd":
            with run_etcd(folder) as server:
                yield EtcdStore(server)
        case _:
            with control_plane(folder) as plane:
                yield LeaseStore(plane)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Of a register that nobody used before."""
    return str(request.node.originalname).removeprefix("test_").replace("_", "-")[:50].strip("-")


@pytest.fixture
def with_two(store: RegisterStore, name: str) -> Callable[[RegisterTest], None]:
    """Runs something with two connections to one empty register."""

    def run(work: RegisterTest) -> None:
        async def connected_run() -> None:
            one, two = connect_register(store, name), connect_register(store, name)
            try:
                await work(one, two)
            finally:
                await one.close()
                await two.close()

        asyncio.run(connected_run())

    return run


def next_value(seen: VersionedValue) -> RegisterValue:
    assert seen.value is not None
    return msgspec.structs.replace(seen.value, epoch=seen.value.epoch + 1)


def test_the_first_value_is_written_once(with_two: Callable[[RegisterTest], None]) -> None:
    async def work(one: Register, two: Register) -> None:
        seen = await one.read()
        assert seen.value is None
        written = await one.swap(seen, FIRST_VALUE)
        with pytest.raises(Conflict):
            await two.swap(seen, msgspec.structs.replace(FIRST_VALUE, cluster_id="d"))
        assert await two.read() == written

    with_two(work)


@pytest.mark.parametrize(
    "value",
    [
        FIRST_VALUE,
        RegisterValue(
            "Zürich \N{SNOWMAN} \"'\\", 2**31 - 1, 0, (VOTER_1, VOTER_2), (0, 1, 2**31 - 1), -1, 2**42 + 1, 1
        ),
        RegisterValue("", 1, 7, (), (), 7, 0, 86_400_000),
    ],
    ids=["usual", "resigned", "empty"],
)
def test_what_is_read_is_what_was_written(store: RegisterStore, name: str, value: RegisterValue) -> None:
    async def run() -> None:
        one, two = (connect_register(store, f"{name}-{value.holder}-{value.lease_ms}") for _ in range(2))
        written = await one.swap(await one.read(), value)
        assert written.value == value
        assert await two.read() == written
        assert await one.read() == written
        await one.close()
        await two.close()

    asyncio.run(run())


def test_a_swap_from_anything_but_the_newest_is_a_conflict(with_two: Callable[[RegisterTest], None]) -> None:
    async def work(one: Register, two: Register) -> None:
        first = await one.swap(await one.read(), FIRST_VALUE)
        second = await two.swap(first, next_value(first))
        assert second.version != first.version
        for old in (first, VersionedValue(None, "")):
            with pytest.raises(Conflict):
                await one.swap(old, next_value(first))
        third = await one.swap(second, next_value(second))
        assert await two.read() == third

    with_two(work)


def test_of_many_tasks_each_epoch_is_given_once(store: RegisterStore, name: str) -> None:
    async def take(register: Register) -> int:
        while True:
            seen = await register.read()
            value = next_value(seen) if seen.value else FIRST_VALUE
            try:
                await register.swap(seen, value)
            except Conflict:
                continue
            return value.epoch

    async def run() -> list[int]:
        registers = [connect_register(store, name) for _ in range(8)]
        epochs = await asyncio.gather(*map(take, registers))
        for register in registers:
            await register.close()
        return epochs

    assert sorted(asyncio.run(run())) == list(range(1, 9))


@dataclass
class Contender:
    """A process that takes epochs; what it was given so far is in a file."""

    process: "subprocess.Popen[bytes]"
    output: Path

    def epochs(self) -> list[int]:
        return [int(line) for line in self.output.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def wait_for_epochs(self) -> list[int]:
        assert self.process.wait(120) == 0
        return self.epochs()


@pytest.fixture
def contend(store: RegisterStore, name: str, tmp_path: Path) -> Iterator[Callable[[int, int], list[Contender]]]:
    """Starts so many processes that each take so many epochs of one register."""
    started: list[Contender] = []

    def start(processes: int, wins: int) -> list[Contender]:
        command = [sys.executable, "-m", "tests.e2e.register_contender", store.setting(name), str(wins)]
        for number in range(processes):
            output = tmp_path / f"given-{number}"
            with output.open("wb") as file:
                process = subprocess.Popen(command, stdout=file, env=broker_environment() | dict(store.environment))
            started.append(Contender(process, output))
        return started

    yield start
    for contender in started:
        contender.process.kill()
        contender.process.wait()


def test_of_many_processes_each_epoch_is_given_once(contend: Callable[[int, int], list[Contender]]) -> None:
    given = [contender.wait_for_epochs() for contender in contend(4, 25)]
    assert all(epochs == sorted(epochs) for epochs in given)
    assert sorted(chain(*given)) == list(range(1, 101))


def test_a_store_that_dies_under_contention_gives_no_epoch_twice(
    store: RegisterStore, name: str, contend: Callable[[int, int], list[Contender]]
) -> None:
    contenders = contend(3, 60)
    for part in (1, 2):
        eventually(lambda: all(len(contender.epochs()) > 15 * part for contender in contenders), within_s=60)  # noqa: B023
        store.make_unavailable()
        store.make_available()
    given = [contender.wait_for_epochs() for contender in contenders]
    everything = sorted(chain(*given))
    assert all(epochs == sorted(epochs) for epochs in given)
    assert len(everything) == len(set(everything)) == 180

    async def last() -> int:
        register = connect_register(store, name)
        value = (await register.read()).value
        await register.close()
        assert value is not None
        return value.epoch

    # An epoch whose answer was lost was given to nobody: so there may be more of them than were heard of, never fewer.
    assert asyncio.run(last()) >= everything[-1]


def test_a_watch_returns_what_another_has_written(with_two: Callable[[RegisterTest], None]) -> None:
    async def work(mine: Register, other: Register) -> None:
        seen = empty = await mine.read()
        for value in (
            FIRST_VALUE,
            msgspec.structs.replace(FIRST_VALUE, epoch=2),
            msgspec.structs.replace(FIRST_VALUE, epoch=3),
        ):
            watching = asyncio.create_task(mine.watch(seen, 30))
            done, _ = await asyncio.wait({watching}, timeout=0.2)
            assert not done
            written = await other.swap(await other.read(), value)
            seen = await asyncio.wait_for(watching, 5)
            assert seen == written
        assert await mine.watch(empty, 30) == written  # it was another already
        assert await mine.watch(written, 0.1) == written  # time was over

    with_two(work)


def test_a_watch_does_not_return_what_its_own_broker_wrote(with_two: Callable[[RegisterTest], None]) -> None:
    async def work(mine: Register, other: Register) -> None:
        seen = await mine.swap(await mine.read(), FIRST_VALUE)
        for _ in range(5):
            watching = asyncio.create_task(mine.watch(seen, 30))
            await asyncio.wait({watching}, timeout=0.1)
            assert not watching.done()
            watching.cancel()  # as a broker does that has something else to do; nothing may be lost by it
            with pytest.raises(asyncio.CancelledError):
                await watching
            seen = await mine.swap(seen, next_value(seen))
        assert await mine.watch(seen, 0.3) == seen
        theirs = await other.swap(seen, next_value(seen))
        assert await mine.watch(seen, 10) == theirs

    with_two(work)


def test_a_watcher_sees_where_many_changes_end(with_two: Callable[[RegisterTest], None]) -> None:
    async def work(mine: Register, other: Register) -> None:
        async def follow(seen: VersionedValue) -> list[int]:
            epochs = [0]
            while epochs[-1] < 50:
                seen = await mine.watch(seen, 10)
                assert seen.value is not None
                epochs.append(seen.value.epoch)
            return epochs

        following = asyncio.create_task(follow(await mine.read()))
        seen = await other.swap(await other.read(), FIRST_VALUE)
        for _ in range(49):
            seen = await other.swap(seen, next_value(seen))
        epochs = await asyncio.wait_for(following, 20)
        assert epochs == sorted(epochs)

    with_two(work)


def test_a_store_that_is_away_is_told_in_a_sentence_and_found_again(
    store: RegisterStore, with_two: Callable[[RegisterTest], None]
) -> None:
    async def work(mine: Register, other: Register) -> None:
        seen = await mine.swap(await mine.read(), FIRST_VALUE)
        watching = asyncio.create_task(mine.watch(seen, 10))
        await asyncio.wait({watching}, timeout=0.2)
        store.make_unavailable()
        try:
            with pytest.raises(RegisterError, match=unavailable_message(mine)):
                await asyncio.wait_for(watching, ERROR_WITHIN_S)
            for call in (mine.read, lambda: mine.swap(seen, next_value(seen)), lambda: mine.watch(seen, 1)):
                with pytest.raises(RegisterError, match=unavailable_message(mine)):
                    await asyncio.wait_for(call(), ERROR_WITHIN_S)
        finally:
            await asyncio.to_thread(store.make_available)
        assert await mine.read() == seen
        watching = asyncio.create_task(mine.watch(seen, 30))
        written = await other.swap(seen, next_value(seen))
        assert await asyncio.wait_for(watching, 10) == written
        assert await mine.swap(written, next_value(written)) == await other.read()

    with_two(work)


def unavailable_message(register: Register) -> str:
    match register:
        case EtcdRegister():
            return r"^etcd at http://127\.0\.0\.1:\d+/v3/\w+ does not answer: ."
        case KubernetesRegister():
            return r"^the API server at https://127\.0\.0\.1:\d+ does not answer: ."
        case _:
            return r"^register=file:/.*\.json: (Not a directory|File exists)$"


@pytest.mark.parametrize("store", ["etcd", "kubernetes"], indirect=True)  # of a file, nobody else has to answer
def test_a_store_that_holds_still_is_not_waited_for_for_ever(
    store: RegisterStore, with_two: Callable[[RegisterTest], None]
) -> None:
    assert isinstance(store, EtcdStore | LeaseStore)

    async def work(mine: Register, other: Register) -> None:
        seen = await mine.swap(await mine.read(), FIRST_VALUE)
        store.daemon.pause()
        try:
            calls = (mine.read(), other.swap(seen, next_value(seen)))
            for said in await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), ERROR_WITHIN_S):
                assert isinstance(said, RegisterError), said
        finally:
            store.daemon.resume()
        # The swap may have been done when the store went on; either way it was done once or not at all.
        now = await mine.read()
        assert now.value in (seen.value, next_value(seen))

    with_two(work)


def test_what_is_no_register_is_said_to_be_none(
    store: RegisterStore, with_two: Callable[[RegisterTest], None], name: str
) -> None:
    async def work(mine: Register, other: Register) -> None:
        await mine.swap(await mine.read(), FIRST_VALUE)
        for text in ('{"cluster_id": 5}', "not JSON"):
            await asyncio.to_thread(store.overwrite, name, text)
            with pytest.raises(RegisterError, match="is no register: "):
                await mine.read()

    with_two(work)


@pytest.mark.parametrize("url", ["", "http://host", "host:2379/key", "http:///key"])
def test_an_address_of_etcd_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(RegisterError, match="no http://host:port/key"):
        EtcdRegister(url)


def test_a_broker_keeps_its_register_there(store: RegisterStore, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, text in store.environment.items():
        monkeypatch.setenv(key, text)
    with run_ottla_broker(register=store.setting(name)) as broker:
        first = asyncio.run(read_value(store, name))
        assert first.leader == 1
        broker.stop()
        broker.start()
        again = asyncio.run(read_value(store, name))
    assert again.epoch > first.epoch
    assert again.cluster_id == first.cluster_id


async def read_value(store: RegisterStore, name: str) -> RegisterValue:
    register = connect_register(store, name)
    value = (await register.read()).value
    await register.close()
    assert value is not None
    return value
