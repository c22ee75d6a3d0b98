"""Random walks: the same random requests get the same responses from Apache Kafka and Ottla, for a
few seeds; in some of them several users send the requests, with rules that change, and in others
producers run transactions.
"""

import asyncio

from tests.clients.secured_pair import SecuredBroker
from tests.clients.walks.broker_pair import run_both_brokers
from tests.clients.walks.themes import ACCESS, TRANSACTIONS
from tests.clients.walks.walk_runner import Verdict, WalkOutcome, create_runner

SEEDS = range(1, 13)
STEPS = 50
ACCESS_SEEDS = range(1, 9)
ACCESS_STEPS = 80
TRANSACTION_SEEDS = range(1, 9)
TRANSACTION_STEPS = 60


def test_same_walks_get_the_same_responses() -> None:
    with run_both_brokers() as (kafka, ottla):
        outcomes = asyncio.run(run_walks(kafka, ottla))
    assert not [str(each) for each in outcomes if each.verdict is Verdict.DIFFERS]
    clean = [each for each in outcomes if each.verdict is Verdict.EQUAL]
    assert len(clean) >= len(outcomes) // 2, "\n".join(map(str, outcomes))  # otherwise they show nothing


async def run_walks(kafka: SecuredBroker, ottla: SecuredBroker) -> list[WalkOutcome]:
    runs = await create_runner(kafka, ottla)
    try:
        walks = [
            *((seed, STEPS, None) for seed in SEEDS),
            *((seed, ACCESS_STEPS, ACCESS) for seed in ACCESS_SEEDS),
            *((seed, TRANSACTION_STEPS, TRANSACTIONS) for seed in TRANSACTION_SEEDS),
        ]
        return [await runs.minimize(await runs.walk(*walk)) for walk in walks]
    finally:
        runs.close()
