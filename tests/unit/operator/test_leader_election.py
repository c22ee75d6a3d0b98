"""Election of the active operator, on virtual time."""

import asyncio
from dataclasses import dataclass, field
from typing import cast

from kopf import LoginError

from ottla_operator.kube.api import ApiClient, ApiError
from ottla_operator.kube.leader_election import LEASE_S, LeaderElection
from tests.unit.async_tests import virtual_time_test
from tests.unit.operator.api_server import FakeApi


@dataclass
class Contender:
    """An operator that takes part in the election. `times`: when it became active."""

    api: FakeApi
    identity: str
    is_active: bool = False
    times: list[float] = field(default_factory=list)

    def start(self) -> "asyncio.Task[None]":
        return asyncio.create_task(self.run())

    async def run(self) -> None:
        """Takes part in the election until it is cancelled."""
        self.election = LeaderElection(cast(ApiClient, self.api), "events", "operator", self.identity)
        while True:
            async with self.election.lead() as lost:
                self.is_active = True
                self.times.append(asyncio.get_running_loop().time())
                try:
                    await lost.wait()
                finally:
                    self.is_active = False


@dataclass
class CutOffApi(FakeApi):
    """An API server to which no write gets through while the network is cut."""

    cut: bool = False

    def _write(self, what: str) -> None:
        if self.cut:
            raise ApiError(0, "no route")
        super()._write(what)


def connect_over_network(api: FakeApi) -> CutOffApi:
    made = CutOffApi(api.objects, api.writes)
    made._versions = api._versions
    return made


@virtual_time_test
async def test_another_operator_takes_over_from_one_that_was_killed() -> None:
    api = FakeApi()
    cut_off = connect_over_network(api)
    one, other = Contender(cut_off, "one"), Contender(api, "other")
    first, second = one.start(), other.start()
    await asyncio.sleep(60)
    assert (one.is_active, other.is_active) == (True, False)
    cut_off.cut = True  # killed: it neither renews nor releases the Lease
    first.cancel()
    killed_at = asyncio.get_running_loop().time()
    await asyncio.sleep(20)
    assert other.is_active
    assert LEASE_S / 2 < other.times[0] - killed_at < LEASE_S + 2
    second.cancel()


@virtual_time_test
async def test_another_operator_takes_over_at_once_from_one_that_stops() -> None:
    api = FakeApi()
    one, other = Contender(api, "one"), Contender(api, "other")
    first, second = one.start(), other.start()
    await asyncio.sleep(10)
    first.cancel()
    await asyncio.sleep(1.5)
    assert other.is_active
    second.cancel()


@virtual_time_test
async def test_an_operator_that_is_cut_off_stops_before_another_starts() -> None:
    api = FakeApi()
    cut_off = connect_over_network(api)
    one, other = Contender(cut_off, "one"), Contender(api, "other")
    tasks = [one.start(), other.start()]
    await asyncio.sleep(10)
    cut_off.cut = True
    moments_with_both_active = 0
    for _ in range(300):
        await asyncio.sleep(0.1)
        moments_with_both_active += one.is_active and other.is_active
    assert other.is_active and not one.is_active and moments_with_both_active == 0
    cut_off.cut = False
    await asyncio.sleep(30)
    assert other.is_active and not one.is_active
    for task in tasks:
        task.cancel()


@virtual_time_test
async def test_an_operator_stops_after_any_error_that_keeps_it_from_renewing_its_lease() -> None:
    api = FakeApi()
    broken = connect_over_network(api)
    one, other = Contender(broken, "one"), Contender(api, "other")
    first, second = one.start(), other.start()
    await asyncio.sleep(10)
    assert one.is_active

    def no_token(write: str) -> ApiError | None:
        raise LoginError("no token")

    broken.reject = no_token
    await asyncio.sleep(20)
    assert other.is_active and not one.is_active
    first.cancel()
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
