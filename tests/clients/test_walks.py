"""Random walks through Apache Kafka and through Ottla, with the same answers: a handful of seeds of `tests.clients.walks`."""

import asyncio

from tests.clients.walks.pair import both
from tests.clients.walks.runs import Outcome, Verdict, begun

SEEDS = range(1, 13)
STEPS = 50


def test_the_same_walks_give_the_same_answers() -> None:
    with both() as (kafka, ottla):
        outcomes = asyncio.run(walked(kafka.bootstrap, ottla.bootstrap))
    assert not [str(each) for each in outcomes if each.verdict is Verdict.DIFFERS]
    clean = [each for each in outcomes if each.verdict is Verdict.CLEAN]
    assert len(clean) >= len(SEEDS) // 2, "\n".join(map(str, outcomes))  # else they show nothing


async def walked(kafka: str, ottla: str) -> list[Outcome]:
    runs = await begun(kafka, ottla)
    try:
        return [await runs.smaller(await runs.walk(seed, STEPS)) for seed in SEEDS]
    finally:
        runs.close()
