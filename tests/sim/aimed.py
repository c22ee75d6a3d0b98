"""Faults that wait for their moment (`moments.py`) and strike whoever is in it."""

from collections.abc import Awaitable, Callable, Sequence
from random import Random

from tests.sim import moments
from tests.sim.cluster import Cluster, SimulatedBroker
from tests.sim.faults import SLOW_SYNC_S, Faults, some_time
from tests.sim.network import Way

LATE_S = (0.1, 1.5)
LATER_THAN_A_SESSION_S = (0.8, 4.5)

On = Callable[[Sequence[SimulatedBroker], Awaitable[None]], Awaitable[None]]


class Aimed:
    """`busy`: whether something is being done to a broker already; `on`: does something to brokers, which are busy meanwhile. Each fault is given a broker that is
    reserved for it, and may find another."""

    def __init__(
        self,
        cluster: Cluster,
        random: Random,
        clients: Sequence[str],
        faults: Faults,
        busy: Callable[[SimulatedBroker], bool],
        on: On,
    ) -> None:
        self._cluster = cluster
        self._random = random
        self._clients = list(clients)
        self._faults = faults
        self._busy = busy
        self._on = on

    async def while_letting_in(self, mine: SimulatedBroker) -> None:
        """Somebody is to join an ISR: the leader hears late, or is heard late, by all or by who joins; and then it is killed."""
        await self._at(
            mine, moments.letting_in, lambda node: self._late_and_dead(node, (0.003, 0.5), self._joiner(node))
        )

    async def while_followers_lack(self, mine: SimulatedBroker) -> None:
        """A leader whose followers do not have everything yet falls silent, and is killed. Those who are left hear each other late, too."""
        await self._at(mine, moments.waited_for, lambda node: self._late_and_dead(node, (0.05, 1.5)))

    async def heard_after_its_session(self, mine: SimulatedBroker) -> None:
        """What a broker says comes when others lead in its place: also which ISRs it wants, because its followers seem to have stopped."""
        latency_s = self._random.uniform(*LATER_THAN_A_SESSION_S)
        self._say(f"what {mine.host} says comes {latency_s:.1f} s late")
        ways = [(mine.host, other) for other in self._others(mine)]
        with self._cluster.network.late(ways, latency_s):
            await some_time(self._random, 2, 10)

    async def while_syncing(self, mine: SimulatedBroker) -> None:
        """Devices are slow; while something waits for them, several lose power."""
        struck = [mine, *self._some_others(mine)]
        self._say(f"the disks of {[one.node_id for one in struck]} are slow, and their power will fail")
        await self._on(struck[1:], self._slow_and_dark(struck))

    async def while_new(self, mine: SimulatedBroker) -> None:
        """A partition has just been made and written to; the power fails."""
        await self._at(mine, moments.new, self._dark_at_once)

    async def answers_lost(self, mine: SimulatedBroker) -> None:
        """Clients do not hear that what they asked for has been done; the power fails, or does not."""
        clients = self._random.sample(self._clients, self._random.randrange(1, len(self._clients) + 1))
        self._say(f"{mine.host} is not heard by {clients}")
        ways = [(mine.host, client) for client in clients]
        with self._cluster.network.apart(ways):
            await some_time(self._random, 0.005, 0.5)
            if self._random.randrange(4):
                # And with the power what the machine would go on sending; if that may not be, it is killed.
                await self._faults.power_loss(mine)
            await some_time(self._random, 0.5, 6)  # some wait so long, others give up

    async def coordinator_apart(self, mine: SimulatedBroker) -> None:
        """A coordinator hears no other broker for longer than its session; some of the clients hear only it, others only those who take its place."""
        await self._at(mine, moments.coordinates, self._apart)

    # --- what is done

    async def _at(
        self, mine: SimulatedBroker, of: moments.Of, strike: Callable[[SimulatedBroker], Awaitable[None]]
    ) -> None:
        def found() -> list[SimulatedBroker]:
            nodes = moments.with_partition(self._cluster, of)
            return [node for node in nodes if node is mine or not self._busy(node)]

        node = await moments.seen(self._cluster, self._random, found)
        if node is mine:
            await strike(node)
        elif node is not None:
            await self._on([node], strike(node))

    def _say(self, what: str) -> None:
        self._cluster.trace.say(what)

    def _others(self, node: SimulatedBroker) -> list[str]:
        return [one.host for one in self._cluster if one is not node]

    def _joiner(self, node: SimulatedBroker) -> str | None:
        for partition in () if node.broker is None else node.broker.partitions:
            if moments.letting_in(partition) and partition.pending is not None:
                newcomers = set(partition.pending.isr) - set(partition.state.isr)
                return self._cluster.brokers[min(newcomers)].host
        return None

    def _some_others(self, node: SimulatedBroker) -> list[SimulatedBroker]:
        free = [one for one in self._cluster if one is not node and one.up and not self._busy(one)]
        return self._random.sample(free, self._random.randint(0, len(free)))

    async def _late_and_dead(
        self, node: SimulatedBroker, after_s: tuple[float, float], joiner: str | None = None
    ) -> None:
        latency_s = self._random.uniform(*LATE_S)
        others = self._others(node)
        told, heard = [(node.host, one) for one in others], [(one, node.host) for one in others]
        if joiner is None:
            among = [(a, b) for a in others for b in others if a != b]
            ways: list[Way] = self._random.choice([told, heard, told + heard]) + among
        else:
            between = [(node.host, joiner), (joiner, node.host)]
            ways = self._random.choice([told, heard, between, between])
        self._say(
            f"{' and '.join(f'{a} → {b}' for a, b in ways)}: late by {latency_s * 1000:.0f} ms; {node.host} is to die"
        )
        with self._cluster.network.late(ways, latency_s):
            await some_time(self._random, *after_s)
            if node.runs:
                node.kill()
            await some_time(self._random, 0.05, 3)
        if not node.runs:
            node.start()

    async def _dark_at_once(self, node: SimulatedBroker) -> None:
        await some_time(self._random, 0.001, 0.3)
        await self._faults.power_loss(node)

    async def _slow_and_dark(self, struck: Sequence[SimulatedBroker]) -> None:
        usual = {node.node_id: node.disk.sync_s for node in struck}
        for node in struck:
            node.disk.sync_s = lambda: self._random.uniform(*SLOW_SYNC_S)

        def found() -> list[SimulatedBroker]:
            waits = moments.with_partition(self._cluster, moments.unsynced)
            waits += moments.with_broker(self._cluster, moments.metadata_unsynced)
            return [node for node in waits if node in struck]

        await some_time(self._random, 0.05, 1.5)
        await moments.seen(self._cluster, self._random, found, within_s=2.0)
        await some_time(self._random, 0.001, 0.1)
        await self._faults.together(struck, self._faults.power_loss)
        for node in struck:
            node.disk.sync_s = usual[node.node_id]

    async def _apart(self, node: SimulatedBroker) -> None:
        others = self._others(node)
        ways = [way for other in others for way in ((node.host, other), (other, node.host))]
        for client in self._clients:
            far = self._random.choice(([], [node.host], others))
            ways += [way for broker in far for way in ((client, broker), (broker, client))]
        self._say(f"{node.host}, a coordinator, is apart")
        with self._cluster.network.apart(ways):
            await some_time(self._random, 1, 12)
            self._say(f"{node.host} is back")
