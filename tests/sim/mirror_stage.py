"""What a run with two clusters is about: the clusters, who works on them, and the mirrors between them."""

import asyncio
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from tests.sim.ancestry import Ancestry
from tests.sim.appended import Fed, fed_by
from tests.sim.client import World
from tests.sim.cluster import SimulatedCluster
from tests.sim.copies import CopyOf, copies_of
from tests.sim.history import History, Place
from tests.sim.mirror_plan import MirrorPlan
from tests.sim.network import SimulatedNetwork
from tests.sim.processes import SimulatedLoop
from tests.sim.scenario import TOPIC
from tests.sim.trace import Trace

THERE: Final = "west"  # the mirror on the target …
BACK: Final = "back"  # … and the one on the old source


@dataclass
class Stage:
    """`admins_at_source`: who ends its work before the others do."""

    plan: MirrorPlan
    loop: SimulatedLoop
    trace: Trace
    network: SimulatedNetwork
    source: SimulatedCluster
    target: SimulatedCluster
    at_source: World
    at_target: World
    admins_at_source: World
    done: dict[str, int]
    ancestry: Ancestry = field(default_factory=Ancestry)

    @classmethod
    def of(cls, plan: MirrorPlan, loop: SimulatedLoop, trace: Trace, random: Random) -> "Stage":
        network = SimulatedNetwork(loop, Random(random.getrandbits(64)))
        source, target = (
            SimulatedCluster(
                loop, Random(random.getrandbits(64)), one.brokers, one.settings, trace, network=network, hosts=name
            )
            for name, one in (("source", plan.source), ("target", plan.target))
        )
        done: dict[str, int] = {}
        at_source, at_target = (
            World(cluster.addresses, History(tell=trace.add_line), trace, done=done) for cluster in (source, target)
        )
        at_target.history.sent = at_source.history.sent  # copies are sent to one, and found in the other
        at_target.history.once = at_source.history.once
        admins = replace(at_source, stop=asyncio.Event())
        return cls(plan, loop, trace, network, source, target, at_source, at_target, admins, done)

    @property
    def places(self) -> list[Place]:
        return [(TOPIC, partition) for partition in range(self.plan.source.partitions)]

    def problems(self) -> list[str]:
        """A source that forgets breaks its promises to its clients: nobody counts that."""
        kept = [self.at_target] if self.plan.forgets else [self.at_source, self.at_target]
        return [problem for world in kept for problem in world.history.problems]

    def fed(self) -> list[Fed]:
        return fed_by(self.target, THERE, self.loop.time())

    def copies(self) -> list[CopyOf]:
        return copies_of(self.target, THERE, self.loop.time())

    def homes(self) -> list[CopyOf]:
        """What the old source has as copies."""
        return copies_of(self.source, BACK, self.loop.time())
