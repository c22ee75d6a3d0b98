"""Random walks: the same random requests get the same responses from Apache Kafka and Ottla, for a
few seeds. Some walks have a theme: several users with access rules that change, producers with
transactions, members of consumer groups or streams groups, or members of share groups.
"""

import asyncio
from collections.abc import Sequence

import pytest

from tests.clients.secured_pair import SecuredBroker
from tests.clients.walks.broker_pair import run_both_brokers
from tests.clients.walks.themes import ACCESS, CONSUMERS, SHARES, STREAMS, TRANSACTIONS
from tests.clients.walks.walk_runner import Verdict, WalkOutcome, create_runner
from tests.jars import KAFKA, KAFKA_4_2, KAFKA_4_3
from tests.slow_tests import quick_and_slow

Walk = tuple[int, int, str | None]  # seed, steps, theme


def walks(steps: int, theme: str | None, first: int, last: int) -> list[Walk]:
    return [(seed, steps, theme) for seed in range(first, last + 1)]


@pytest.mark.parametrize(
    "chosen",
    quick_and_slow(
        [*walks(50, None, 1, 4), *walks(80, ACCESS, 1, 2), *walks(60, TRANSACTIONS, 1, 2)],
        [*walks(50, None, 5, 12), *walks(80, ACCESS, 3, 8), *walks(60, TRANSACTIONS, 3, 8)],
    ),
)
def test_same_walks_get_the_same_responses(chosen: Sequence[Walk]) -> None:
    check_walks(KAFKA, chosen)


@pytest.mark.parametrize("chosen", quick_and_slow(walks(60, CONSUMERS, 1, 4), walks(60, CONSUMERS, 5, 12)))
def test_same_walks_of_consumer_groups_get_the_same_responses(chosen: Sequence[Walk]) -> None:
    check_walks(KAFKA_4_2, chosen)


@pytest.mark.parametrize("chosen", quick_and_slow(walks(40, STREAMS, 1, 4), walks(40, STREAMS, 5, 24)))
def test_same_walks_of_streams_groups_get_the_same_responses(chosen: Sequence[Walk]) -> None:
    check_walks(KAFKA_4_3, chosen)


@pytest.mark.parametrize("chosen", quick_and_slow(walks(40, SHARES, 1, 4), walks(40, SHARES, 5, 24)))
def test_same_walks_of_share_groups_get_the_same_responses(chosen: Sequence[Walk]) -> None:
    check_walks(KAFKA_4_3, chosen)


def check_walks(version: str, walks: Sequence[Walk]) -> None:
    """`version` is that of Apache Kafka."""
    with run_both_brokers(version) as (kafka, ottla):
        outcomes = asyncio.run(run_walks(kafka, ottla, walks))
    assert not [str(each) for each in outcomes if each.verdict is Verdict.DIFFERS]
    clean = [each for each in outcomes if each.verdict is Verdict.EQUAL]
    assert len(clean) >= len(outcomes) // 2, "\n".join(map(str, outcomes))  # otherwise they show nothing


async def run_walks(kafka: SecuredBroker, ottla: SecuredBroker, walks: Sequence[Walk]) -> list[WalkOutcome]:
    runner = await create_runner(kafka, ottla)
    try:
        return [await runner.minimize(await runner.walk(*walk)) for walk in walks]
    finally:
        runner.close()
