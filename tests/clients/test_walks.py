"""Random walks: the same random requests get the same responses from Apache Kafka and Ottla, for a
few seeds.
"""

import asyncio

from tests.clients.walks.broker_pair import run_both_brokers
from tests.clients.walks.walk_runner import Verdict, WalkOutcome, create_runner

SEEDS = range(1, 13)
STEPS = 50


def test_same_walks_get_the_same_responses() -> None:
    with run_both_brokers() as (kafka, ottla):
        outcomes = asyncio.run(run_walks(kafka.bootstrap, ottla.bootstrap))
    assert not [str(each) for each in outcomes if each.verdict is Verdict.DIFFERS]
    clean = [each for each in outcomes if each.verdict is Verdict.EQUAL]
    assert len(clean) >= len(SEEDS) // 2, "\n".join(map(str, outcomes))  # otherwise they show nothing


async def run_walks(kafka: str, ottla: str) -> list[WalkOutcome]:
    runs = await create_runner(kafka, ottla)
    try:
        return [await runs.minimize(await runs.walk(seed, STEPS)) for seed in SEEDS]
    finally:
        runs.close()
