"""Faults that wait for their moment (`moments.py`) and strike whoever is in it."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from random import Random

from ottla_broker.metadata.controller import Controller
from ottla_broker.metadata.replication_control import PartitionReassignment
from ottla_broker.replication.partition import Partition
from ottla_broker.wire.errors import KafkaError
from tests.sim import moments
from tests.sim.cluster import SimulatedBroker, SimulatedCluster
from tests.sim.faults import SLOW_SYNC_S, Faults, some_time
from tests.sim.network import Way
from tests.sim.onlooker import ONLOOKER
from tests.sim.standing import metadata_leader, newest_image, running, unwell

LATE_S = (0.1, 1.5)
LATER_THAN_A_SESSION_S = (0.8, 4.5)
WORD_LATE_S = (0.5, 2.0)  # clients need some of it to find who leads now
FETCHES_LATER_S = 1.0
CALM_WITHIN_S = 8.0
OTHERS_TAKE_OVER_WITHIN_S = 15.0  # a session, the time in which clients give up, a rebalance
FETCH, ALTER_PARTITION = 1, 56

On = Callable[[Sequence[SimulatedBroker], Awaitable[None]], Awaitable[None]]


class Aimed:
    """`busy`: whether something is being done to a broker already; `on`: does something to brokers, which are busy meanwhile. Each fault is given a broker that is
    reserved for it, and may find another. `alone`: whether only one fault is under way."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        random: Random,
        clients: Sequence[str],
        faults: Faults,
        busy: Callable[[SimulatedBroker], bool],
        on: On,
        alone: Callable[[], bool],
    ) -> None:
        self._cluster = cluster
        self._random = random
        self._clients = list(clients)
        self._faults = faults
        self._busy = busy
        self._on = on
        self._alone = alone

    async def while_letting_in(self, mine: SimulatedBroker) -> None:
        """Somebody is to join an ISR: the leader hears late, or is heard late, by all or by who joins; and then it is killed."""
        await self._at(
            mine, moments.letting_in, lambda node: self._late_and_dead(node, (0.003, 0.5), self._joiner(node))
        )

    async def while_let_in(self, mine: SimulatedBroker) -> None:
        """Whoever joins an ISR would lead next, and lacks what comes now; the leader does not hear that it has joined, and is killed."""
        await self._at(mine, moments.letting_in_its_heir, self._let_in_and_dead)

    async def led_by_others_meanwhile(self, mine: SimulatedBroker) -> None:
        """Which ISR a leader wants is heard when another leads: with somebody in it who has got nothing from that one, and would lead next."""
        await self._undisturbed(mine, self._led_meanwhile)

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
        """A coordinator hears no other broker for longer than its session. Of the clients some hear only it, others only those who take its place."""
        if self._random.randrange(2):
            await self._at(mine, moments.coordinates, self._apart)
        else:
            await self._undisturbed(mine, self._whoever_coordinates_apart)

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

    async def _undisturbed(self, mine: SimulatedBroker, strike: Callable[[SimulatedBroker], Awaitable[None]]) -> None:
        """When nothing else is wrong any more; meanwhile nothing else begins."""

        def calm() -> bool:
            image = newest_image(self._cluster)
            return (
                self._alone()
                and image is not None
                and all(one.is_serving for one in self._cluster)
                and not unwell(image)
            )

        async def when_calm() -> None:
            if await moments.true(calm, within_s=CALM_WITHIN_S):
                await strike(mine)

        await self._on([one for one in self._cluster if one is not mine], when_calm())

    def _say(self, what: str) -> None:
        self._cluster.trace.add_line(what)

    def _others(self, node: SimulatedBroker) -> list[str]:
        return [one.host for one in self._cluster if one is not node]

    def _joiner(self, node: SimulatedBroker) -> str | None:
        for partition in () if node.broker is None else node.broker.partitions:
            if moments.letting_in(partition) and partition.pending_isr_change is not None:
                newcomers = set(partition.pending_isr_change.isr) - set(partition.registration.isr)
                return self._cluster.brokers[min(newcomers)].host
        return None

    def _some_others(self, node: SimulatedBroker) -> list[SimulatedBroker]:
        free = [one for one in self._cluster if one is not node and one.is_serving and not self._busy(one)]
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
            if node.is_running:
                node.kill()
            await some_time(self._random, 0.05, 3)
        if not node.is_running:
            node.start()

    async def _led_meanwhile(self, mine: SimulatedBroker) -> None:
        after_s = self._random.uniform(*WORD_LATE_S)
        self._say(f"{mine.host} is to be let in by who leads no more; what leaders want is heard after {after_s:.1f} s")
        ends = {
            (one.topic, one.partition): one.log.end for one in ([] if mine.broker is None else mine.broker.partitions)
        }
        mine.kill()
        await some_time(self._random, 0.05, 1.5)
        with self._cluster.network.repeated(_alters_partition, after_s):
            if not mine.is_running:
                mine.start()
            found: list[tuple[Partition, SimulatedBroker]] = []

            def let_in() -> bool:
                """Where others write: a partition that is quiet can lose nothing."""
                found.extend(
                    (partition, heir)
                    for partition, heir in self._being_let_in(mine)
                    if partition.log.end > ends.get((partition.topic, partition.partition), partition.log.end)
                )
                return bool(found)

            if await moments.true(let_in):
                await self._lead_taken(*self._random.choice(found), mine, after_s)

    async def _let_in_and_dead(self, node: SimulatedBroker) -> None:
        partition = next(
            filter(moments.letting_in_its_heir, () if node.broker is None else node.broker.partitions), None
        )
        if partition is None:
            return
        joiner = self._cluster.brokers[moments.newcomers(partition)[0]]
        controller = metadata_leader(self._cluster)
        ways = [(joiner.host, node.host)]
        if controller is not None and controller is not node:
            ways.append((controller.host, node.host))
        if controller is not joiner:  # which is to hear what is wanted
            ways.append((node.host, joiner.host))
        latency_s = self._random.uniform(*LATE_S)
        self._say(
            f"{node.host} lets {joiner.host} in; {ways} are late by {latency_s * 1000:.0f} ms, {node.host} is to die"
        )
        with self._cluster.network.late(list(dict.fromkeys(ways)), latency_s):
            await moments.true(
                lambda: moments.trusted_too_early(self._cluster, partition, joiner),
                within_s=self._random.uniform(0.02, latency_s),
            )
            if node.is_running:
                node.kill()
            await some_time(self._random, 0.05, 3)
        if not node.is_running:
            node.start()

    def _being_let_in(self, mine: SimulatedBroker) -> Iterator[tuple[Partition, SimulatedBroker]]:
        """Where, and who else may lead there. What the controller wants itself is not on its way to anybody."""
        controller = metadata_leader(self._cluster)
        for node, broker in running(self._cluster):
            for partition in broker.partitions if node is not controller else ():
                if mine.node_id in moments.newcomers(partition):
                    heirs = (self._cluster.brokers[one] for one in partition.registration.isr)
                    yield from ((partition, heir) for heir in heirs if heir is not node and heir.is_serving)

    async def _lead_taken(
        self, partition: Partition, heir: SimulatedBroker, newcomer: SimulatedBroker, within_s: float
    ) -> None:
        controller = metadata_leader(self._cluster)
        if controller is None or controller.process is None or controller.broker is None:
            return
        if controller.broker.controller is None:
            return
        self._say(f"{heir.host} takes {partition} over, hears nothing of {newcomer.host}, and is to die")
        after = [heir.node_id, newcomer.node_id]
        order = [*after, *(one for one in partition.registration.replicas if one not in after)]
        unheard: Way = newcomer.host, heir.host
        with self._cluster.network.repeated(
            lambda way, piece: way == unheard and _api(piece) == FETCH, within_s + FETCHES_LATER_S
        ):
            controller.process.run(_give_lead(controller.broker.controller, partition, order))
            await moments.true(lambda: moments.led_by(self._cluster, partition, heir), within_s=within_s)
            led = None if heir.broker is None else heir.broker.partitions.get(partition.topic, partition.partition)
            if led is not None:
                await moments.true(
                    lambda: moments.trusted_too_early(self._cluster, led, newcomer),
                    within_s=within_s + self._random.uniform(0.0, 0.3),
                )
            if heir.is_running:
                heir.kill()
            await some_time(self._random, 0.05, 3)
        if not heir.is_running:
            heir.start()

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

    async def _whoever_coordinates_apart(self, _: SimulatedBroker) -> None:
        if found := moments.with_partition(self._cluster, moments.coordinates):
            await self._apart(self._random.choice(found))

    async def _apart(self, node: SimulatedBroker) -> None:
        """Members of groups can but go to whoever takes its place, and those who only look stay with it."""
        others = self._others(node)
        ways = [way for other in others for way in ((node.host, other), (other, node.host))]
        for client in self._clients:
            far = others if client.startswith(ONLOOKER) else self._random.choice(([], [node.host]))
            ways += [way for broker in far for way in ((client, broker), (broker, client))]
        self._say(f"{node.host}, a coordinator, is apart")
        with self._cluster.network.apart(ways):
            await some_time(self._random, 1, 6)
            if self._random.randrange(4):
                await moments.true(
                    lambda: moments.behind_its_heirs(self._cluster, node), within_s=OTHERS_TAKE_OVER_WITHIN_S
                )
                await some_time(self._random, 0.5, 3)
            self._say(f"{node.host} is back")


def _alters_partition(_: Way, piece: bytes) -> bool:
    return _api(piece) == ALTER_PARTITION


def _api(piece: bytes) -> int:
    """Of a request that begins here."""
    return int.from_bytes(piece[4:6])


async def _give_lead(controller: Controller, partition: Partition, order: Sequence[int]) -> None:
    """As two requests of an administrator would: the same replicas in another order, whose first is to lead."""
    with suppress(KafkaError):
        await controller.replication_control.reassign_partitions(
            [PartitionReassignment(partition.topic, partition.partition, order)]
        )
        await controller.replication_control.elect_preferred_leaders([(partition.topic, partition.partition)])
