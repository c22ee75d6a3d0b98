"""`python -m tests.clients.walks --seeds 200 --first 1`: start both brokers and run walks."""

import argparse
import asyncio
import sys
import time
from collections import Counter
from typing import Final

from tests.clients.secured_pair import SecuredBroker
from tests.clients.walks.broker_pair import run_both_brokers
from tests.clients.walks.themes import CONSUMERS, ON_REQUEST, SHARES, STREAMS, THEMES
from tests.clients.walks.walk_runner import Verdict, create_runner
from tests.jars import KAFKA, KAFKA_4_2, KAFKA_4_3

VERSIONS: Final = {CONSUMERS: KAFKA_4_2, STREAMS: KAFKA_4_3, SHARES: KAFKA_4_3}
"""Versions of Apache Kafka for themes that other versions do not serve, or serve differently."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.clients.walks", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="number of walks")
    parser.add_argument("--first", type=int, default=1, help="first seed")
    parser.add_argument("--steps", type=int, default=60, help="steps per walk")
    parser.add_argument("--theme", choices=[*THEMES, *ON_REQUEST], help="default: chosen by the seed")
    parser.add_argument("--max-differences", type=int, default=5, help="stop after this many distinct differences")
    chosen = parser.parse_args()
    with run_both_brokers(VERSIONS.get(chosen.theme, KAFKA)) as (kafka, ottla):
        return asyncio.run(run_walks(chosen, kafka, ottla))


async def run_walks(chosen: argparse.Namespace, kafka: SecuredBroker, ottla: SecuredBroker) -> int:
    runner = await create_runner(kafka, ottla)
    began = time.monotonic()
    tally = Counter[Verdict]()
    seen: set[tuple[str, ...]] = set()
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        outcome = await runner.minimize(await runner.walk(seed, chosen.steps, chosen.theme))
        tally[outcome.verdict] += 1
        if outcome.difference is not None:
            if (key := (outcome.difference.step.api, *outcome.difference.lines)) not in seen:
                print(outcome, flush=True)
            else:
                print(f"seed {seed}: same difference, {outcome.difference.lines[0]}", flush=True)
            if outcome.verdict is Verdict.DIFFERS:
                seen.add(key)
        if len(seen) >= chosen.max_differences:
            break
    runner.close()
    counts = ", ".join(f"{tally[verdict]} {verdict.value}" for verdict in Verdict)
    print(f"{runner.steps_run} steps in {time.monotonic() - began:.0f} s; walks: {counts}")
    return 1 if tally[Verdict.DIFFERS] else 0


if __name__ == "__main__":
    sys.exit(main())
