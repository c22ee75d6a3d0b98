"""Random walks: the same random requests get the same responses from Apache Kafka and Ottla, for a
few seeds; in some of them several users send the requests, with rules that change, in others
producers run transactions, or members of groups of the consumer protocol or of streams groups join,
commit and leave, or members of share groups acquire and acknowledge records.
"""

import asyncio
from collections.abc import Sequence

from tests.clients.secured_pair import SecuredBroker
from tests.clients.walks.broker_pair import run_both_brokers
from tests.clients.walks.themes import ACCESS, CONSUMERS, SHARES, STREAMS, TRANSACTIONS
from tests.clients.walks.walk_runner import Verdict, WalkOutcome, create_runner
from tests.jars import KAFKA, KAFKA_4_2, KAFKA_4_3

Walk = tuple[int, int, str | None]  # seed, steps, theme
WALKS: Sequence[Walk] = (
    *((seed, 50, None) for seed in range(1, 13)),
    *((seed, 80, ACCESS) for seed in range(1, 9)),
    *((seed, 60, TRANSACTIONS) for seed in range(1, 9)),
)
CONSUMER_WALKS: Sequence[Walk] = tuple((seed, 60, CONSUMERS) for seed in range(1, 13))
STREAMS_WALKS: Sequence[Walk] = tuple((seed, 40, STREAMS) for seed in range(1, 25))
SHARE_WALKS: Sequence[Walk] = tuple((seed, 40, SHARES) for seed in range(1, 25))


def test_same_walks_get_the_same_responses() -> None:
    check_walks(KAFKA, WALKS)


def test_same_walks_of_consumer_groups_get_the_same_responses() -> None:
    check_walks(KAFKA_4_2, CONSUMER_WALKS)


def test_same_walks_of_streams_groups_get_the_same_responses() -> None:
    check_walks(KAFKA_4_3, STREAMS_WALKS)


def test_same_walks_of_share_groups_get_the_same_responses() -> None:
    check_walks(KAFKA_4_3, SHARE_WALKS)


def check_walks(version: str, walks: Sequence[Walk]) -> None:
    """`version`: of Apache Kafka."""
    with run_both_brokers(version) as (kafka, ottla):
        outcomes = asyncio.run(run_walks(kafka, ottla, walks))
    assert not [str(each) for each in outcomes if each.verdict is Verdict.DIFFERS]
    clean = [each for each in outcomes if each.verdict is Verdict.EQUAL]
    assert len(clean) >= len(outcomes) // 2, "\n".join(map(str, outcomes))  # otherwise they show nothing


async def run_walks(kafka: SecuredBroker, ottla: SecuredBroker, walks: Sequence[Walk]) -> list[WalkOutcome]:
    runs = await create_runner(kafka, ottla)
    try:
        return [await runs.minimize(await runs.walk(*walk)) for walk in walks]
    finally:
        runs.close()
