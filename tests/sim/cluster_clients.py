"""The clients of a run and what they do, as the plan and the run's random numbers choose."""

from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from tests.sim.access_admin import AccessAdmin
from tests.sim.admin import ReassignmentAdmin, TopicAdmin
from tests.sim.consumer_group_member import ConsumerGroupMember
from tests.sim.group_member import Member
from tests.sim.history import TopicPartition
from tests.sim.lag_monitor import HOST_PREFIX, LagMonitor
from tests.sim.migrating_member import MigratingMember
from tests.sim.plan import Plan
from tests.sim.producer import ALL, NONE, ONE, Producer, ProducerSettings, TemporaryTopicProducer
from tests.sim.share_workload import SHARE_STATE_TOPIC, ShareWorkload
from tests.sim.simulation import NewClient
from tests.sim.streams_application import create_threads
from tests.sim.streams_group_member import StreamsGroupMember
from tests.sim.transaction_workload import OUTPUTS, TransactionWorkload

TOPIC = "events"
GROUPS = ("readers", "others")
MIGRATING_ONE_IN = 3  # one group in this many has members that change the protocol
STREAMS_ONE_IN = 4  # one group in this many has threads of a Kafka Streams application as members


@dataclass(frozen=True, slots=True)
class ClusterClients:
    """`transactions` and `shares`: None in a run without transactions, or without a share group."""

    plan: Plan
    random: Random
    create_client: NewClient
    transactions: TransactionWorkload | None
    shares: ShareWorkload | None

    def create(self) -> list[Any]:
        """The clients that use the cluster until the faults are over."""
        if self.plan.only_metadata:
            topics = self.create_client(partial(TopicAdmin, replicas=self.plan.replicas), "admin-1")
            return [topics, self.create_client(AccessAdmin, "admin-2")] if self.plan.changes_access else [topics]
        if self.transactions is not None:
            return self._transactional_clients(self.transactions)
        if self.shares is not None:
            return self._sharing_clients(self.shares)
        if self.plan.has_streams_group:
            threads = create_threads(self.create_client, self.random, TOPIC)
            return [*threads, *self._input_clients(("__consumer_offsets", 0))]
        random, plan = self.random, self.plan
        topic_partitions = self._inputs()
        clients: list[Any] = []
        for number, settings in enumerate(self._producer_settings()):
            mine = random.sample(topic_partitions, random.randrange(1, len(topic_partitions) + 1))
            clients.append(
                self.create_client(partial(Producer, topic_partitions=mine, settings=settings), f"producer-{number}")
            )
        for group in GROUPS[: random.randrange(1, 3)]:
            member: Any = random.choice((Member, ConsumerGroupMember))
            if Random(f"{plan.seed} {group}").randrange(MIGRATING_ONE_IN) == 0:
                member = MigratingMember
            if Random(f"{plan.seed} {group} streams").randrange(STREAMS_ONE_IN) == 0:
                member = StreamsGroupMember
            clients += [
                self.create_client(
                    partial(
                        member,
                        group=group,
                        topic=TOPIC,
                        rack=random.choice(("", f"rack-{number}")),
                        **({"number": number} if member is StreamsGroupMember else {}),
                    ),
                    f"{group}-{number}",
                )
                for number in range(random.randrange(1, 4))
            ]
        monitor = partial(LagMonitor, groups=GROUPS, topic_partitions=topic_partitions)
        clients.append(self.create_client(monitor, f"{HOST_PREFIX}-1"))
        clients.append(self.create_client(partial(TopicAdmin, replicas=plan.replicas), "admin-1"))
        settings = ProducerSettings(idempotent=bool(random.randrange(2)), in_flight=3, produce_by_id=True)
        producer = partial(TemporaryTopicProducer, settings=settings, permanent=TOPIC)
        clients.append(self.create_client(producer, "tmp-prod-1"))
        return clients + self._movers(("__consumer_offsets", 0))

    def _transactional_clients(self, transactions: TransactionWorkload) -> list[Any]:
        """The clients of transactions. A plain producer and a group that reads uncommitted records
        use the input topic too."""
        inputs = self._inputs()
        clients = transactions.create_clients(self.create_client)
        settings = ProducerSettings(pause_s=0.4)
        clients.append(
            self.create_client(partial(Producer, topic_partitions=inputs[:1], settings=settings), "producer-0")
        )
        clients.append(self.create_client(partial(Member, group=GROUPS[0], topic=TOPIC, rack=""), f"{GROUPS[0]}-0"))
        return clients + self._movers((OUTPUTS, 0), ("__consumer_offsets", 0), ("__transaction_state", 0))

    def _sharing_clients(self, shares: ShareWorkload) -> list[Any]:
        clients = shares.create_clients(self.create_client)
        return [*clients, *self._input_clients(("__consumer_offsets", 0), (SHARE_STATE_TOPIC, 0))]

    def _input_clients(self, *moved: TopicPartition) -> list[Any]:
        """A producer to the input topic, and an administrator that reassigns the partitions of that
        topic and `moved`."""
        producer = partial(Producer, topic_partitions=self._inputs(), settings=ProducerSettings(pause_s=0.4))
        return [self.create_client(producer, "producer-0"), *self._movers(*moved)]

    def _movers(self, *moved: TopicPartition) -> list[Any]:
        plan = self.plan
        if plan.brokers == 1:
            return []
        mover = partial(
            ReassignmentAdmin,
            topic_partitions=[*self._inputs(), *moved],
            brokers=plan.brokers,
            replicas=plan.replicas,
        )
        return [self.create_client(mover, "mover-1")]

    def _inputs(self) -> list[TopicPartition]:
        return [(TOPIC, partition) for partition in range(self.plan.partitions)]

    def _producer_settings(self) -> list[ProducerSettings]:
        random = self.random

        def choose(acks: int, *, idempotent: bool) -> ProducerSettings:
            in_flight = random.choice((1, 3, 5))
            return ProducerSettings(
                acks, idempotent, in_flight, bool(random.randrange(2)), random.choice((0.05, 0.15, 0.4))
            )

        all_settings = [choose(ALL, idempotent=True), choose(ALL, idempotent=False), choose(ALL, idempotent=True)]
        if random.randrange(2):
            all_settings.append(choose(random.choice((ONE, NONE)), idempotent=False))
        return all_settings
