"""The brokers of one cluster: started, stopped, and told of."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from ottla_operator.local.broker import LocalBroker
from ottla_operator.local.documents import Document
from ottla_operator.local.home import Home
from ottla_operator.local.keeper import AGAIN
from ottla_operator.local.live_view import BrokerRow, LiveView, State
from ottla_operator.plan.broker_processes import BrokerProcessPlan


@dataclass(slots=True)
class Brokers:
    """`document`: the Cluster's own, for errors to name lines. `by_id`: in the order of ids."""

    home: Home
    board: LiveView
    document: Document
    by_id: dict[int, LocalBroker] = field(default_factory=dict)
    _said: dict[str, str] = field(default_factory=dict)
    """Broker → what was last said to be wrong with it, so that it is said once."""

    @property
    def ready(self) -> list[LocalBroker]:
        return [it for it in self.by_id.values() if it.ready]

    @property
    def bootstrap(self) -> str:
        """Addresses of those that serve. Another cluster may have a port of ours: nothing of ours must go there."""
        return ",".join(it.plan.address for it in self.ready)

    def take(self, plans: Iterable[BrokerProcessPlan]) -> None:
        """Starts what does not run; those that run go on, and are started with these plans from now on."""
        for plan in plans:
            if plan.id in self.by_id:
                self.by_id[plan.id].take(plan)
                self.board.brokers[plan.label].address = plan.address
            else:
                self._start(plan)

    async def restart_fallen(self) -> None:
        """Those that do not serve and have other settings now: nobody needs to be asked before they are restarted."""
        for broker in self.by_id.values():
            if not broker.ready and broker.started is not None and broker.started != broker.plan.settings:
                self.board.say(f"broker {broker.plan.label} is started again with its new settings", "info")
                await broker.restart()

    async def wait(self, ids: Iterable[int], within_s: float | None = None) -> bool:
        """Until all of these serve; False when time is over or one will never."""
        waits = [asyncio.create_task(self._settled(self.by_id[it])) for it in ids]
        try:
            async with asyncio.timeout(within_s):
                return all(await asyncio.gather(*waits))
        except TimeoutError:
            return False
        finally:
            for it in waits:
                it.cancel()

    async def one_ready(self) -> None:
        """Until any of them serves."""
        waits = [asyncio.create_task(it.keeper.ready.wait()) for it in self.by_id.values()]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for it in waits:
                it.cancel()

    async def let_go(self, id_: int) -> None:
        """Stops a broker for good; its folder stays."""
        broker = self.by_id[id_]
        await broker.stop()
        del self.by_id[id_]
        del self.board.brokers[broker.plan.label]

    async def stop(self) -> bool:
        return all(await asyncio.gather(*(it.stop() for it in self.by_id.values())))

    def kill(self) -> None:
        for it in self.by_id.values():
            it.keeper.kill()

    def in_the_files(self, note: str) -> str:
        """Says where in the YAML the setting or port stands that a broker complains about."""
        if (setting := self.document.setting_named(note)) is not None:
            return f"{note} (spec.config in {self.document.where(setting)})"
        if note.startswith("port ") and "listeners" in self.document.data["spec"]:
            return f"{note} (spec.listeners in {self.document.where(('spec', 'listeners'))})"
        return note

    async def _settled(self, broker: LocalBroker) -> bool:
        """Whether it serves; waits until it does or has ended for good."""
        waits = [asyncio.create_task(broker.keeper.ready.wait()), asyncio.create_task(broker.keeper.ended.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for it in waits:
                it.cancel()
        return broker.ready

    def _start(self, plan: BrokerProcessPlan) -> None:
        row = self.board.brokers[plan.label] = BrokerRow(plan.label, plan.address)
        folder = self.home.broker(plan.cluster, plan.id)
        broker = LocalBroker(plan, folder, lambda state, note, pid: self._tell(row, state, note, pid))
        self.by_id[plan.id] = broker
        broker.start()

    def _tell(self, row: BrokerRow, state: State, note: str, pid: int | None) -> None:
        if state is State.ready and row.state is State.waiting:
            self.board.say(f"broker {row.label} was still running (pid {pid}): taken over", "info")
        elif state in (State.retrying, State.failed) and (why := note.split(AGAIN)[0]) != self._said.get(row.label):
            self._said[row.label] = why
            self.board.say(f"broker {row.label}: {self.in_the_files(note)}", "bad")
        elif state is State.ready and self._said.pop(row.label, ""):
            self.board.say(f"broker {row.label} is back", "good")
        row.state, row.note, row.pid = state, note, pid
