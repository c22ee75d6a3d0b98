"""Who of several operators is active, on virtual time."""

import asyncio
from dataclasses import dataclass, field
from typing import cast

from kopf import LoginError

from ottla_operator.kube.api import Api, ApiError
from ottla_operator.kube.election import LEASE_S, Election
from tests.sim.virtual_loop import run_in_virtual_time
from tests.unit.operator.api_server import FakeApi


@dataclass
class Contender:
    """`times`: when it became active."""

    api: FakeApi
    who: str
    active: bool = False
    times: list[float] = field(default_factory=list)

    def start(self) -> "asyncio.Task[None]":
        return asyncio.create_task(self.run())

    async def run(self) -> None:
        self.election = Election(cast(Api, self.api), "events", "operator", self.who)
        while True:
            async with self.election.elected() as lost:
                self.active = True
                self.times.append(asyncio.get_running_loop().time())
                try:
                    await lost.wait()
                finally:
                    self.active = False


@dataclass
class Cut(FakeApi):
    """The same API server, as one sees it whose network is cut now and then."""

    cut: bool = False

    def _write(self, what: str) -> None:
        if self.cut:
            raise ApiError(0, "no route")
        super()._write(what)


def of_the_same_server(api: FakeApi) -> Cut:
    made = Cut(api.objects, api.writes)
    made._versions = api._versions
    return made


def test_one_is_active_and_another_takes_over_when_it_is_gone_without_a_word() -> None:
    async def main() -> None:
        api = FakeApi()
        its_own = of_the_same_server(api)
        one, other = Contender(its_own, "one"), Contender(api, "other")
        first, second = one.start(), other.start()
        await asyncio.sleep(60)
        assert (one.active, other.active) == (True, False)
        its_own.cut = True  # killed: it neither renews nor resigns
        first.cancel()
        gone = asyncio.get_running_loop().time()
        await asyncio.sleep(20)
        assert other.active
        assert LEASE_S / 2 < other.times[0] - gone < LEASE_S + 2
        second.cancel()

    run_in_virtual_time(main())


def test_one_that_stops_in_order_is_followed_at_once() -> None:
    async def main() -> None:
        api = FakeApi()
        one, other = Contender(api, "one"), Contender(api, "other")
        first, second = one.start(), other.start()
        await asyncio.sleep(10)
        first.cancel()
        await asyncio.sleep(1.5)
        assert other.active
        second.cancel()

    run_in_virtual_time(main())


def test_one_that_is_cut_off_stops_acting_before_another_begins() -> None:
    async def main() -> None:
        api = FakeApi()
        cut = of_the_same_server(api)
        one, other = Contender(cut, "one"), Contender(api, "other")
        tasks = [one.start(), other.start()]
        await asyncio.sleep(10)
        cut.cut = True
        both = 0
        for _ in range(300):
            await asyncio.sleep(0.1)
            both += one.active and other.active
        assert other.active and not one.active and both == 0
        cut.cut = False
        await asyncio.sleep(30)
        assert other.active and not one.active
        for task in tasks:
            task.cancel()

    run_in_virtual_time(main())


def test_one_that_cannot_renew_for_whatever_reason_stops_acting() -> None:
    async def main() -> None:
        api = FakeApi()
        broken = of_the_same_server(api)
        one, other = Contender(broken, "one"), Contender(api, "other")
        first, second = one.start(), other.start()
        await asyncio.sleep(10)
        assert one.active

        def no_token(write: str) -> ApiError | None:
            raise LoginError("the account's token is not there")

        broken.refuse = no_token
        await asyncio.sleep(20)
        assert other.active and not one.active
        first.cancel()
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)

    run_in_virtual_time(main())
