"""Both brokers, and walks through them: `python -m tests.clients.walks --seeds 200 --first 1`."""

import argparse
import asyncio
import sys
import time
from collections import Counter

from tests.clients.walks.pair import both
from tests.clients.walks.runs import Verdict, begun
from tests.clients.walks.themes import EXPIRY, THEMES


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.clients.walks", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many walks")
    parser.add_argument("--first", type=int, default=1, help="the first one's seed")
    parser.add_argument("--steps", type=int, default=60, help="of each walk")
    parser.add_argument("--theme", choices=[*THEMES, EXPIRY], help="default: the seed's own")
    parser.add_argument("--most", type=int, default=5, help="stop after so many different differences")
    chosen = parser.parse_args()
    with both() as (kafka, ottla):
        return asyncio.run(walks(chosen, kafka.bootstrap, ottla.bootstrap))


async def walks(chosen: argparse.Namespace, kafka: str, ottla: str) -> int:
    runs = await begun(kafka, ottla)
    began = time.monotonic()
    tally = Counter[Verdict]()
    seen: set[tuple[str, ...]] = set()
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        outcome = await runs.smaller(await runs.walk(seed, chosen.steps, chosen.theme))
        tally[outcome.verdict] += 1
        if outcome.found is not None:
            if (what := (outcome.found.step.api, *outcome.found.lines)) not in seen:
                print(outcome, flush=True)
            else:
                print(f"seed {seed}: as before, {outcome.found.lines[0]}", flush=True)
            if outcome.verdict is Verdict.DIFFERS:
                seen.add(what)
        if len(seen) >= chosen.most:
            break
    runs.close()
    said = ", ".join(f"{tally[verdict]} {verdict.value}" for verdict in Verdict)
    print(f"{runs.walked} steps in {time.monotonic() - began:.0f} s; walks: {said}")
    return 1 if tally[Verdict.DIFFERS] else 0


if __name__ == "__main__":
    sys.exit(main())
