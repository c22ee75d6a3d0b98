"""`python -m tests.e2e.rounds [N] [--seed TEXT]`: N rounds of faults; exit code 1 if one failed."""

import argparse
import sys
import time
from pathlib import Path

from tests.clusters import ProcessCluster
from tests.e2e.rounds.round_runner import RoundResult, run_round, run_three_brokers

LOG_FOLDER = Path(__file__).parent.parent.parent.parent / "build" / "rounds"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.rounds", description=__doc__)
    parser.add_argument("rounds", nargs="?", type=int, default=10, metavar="N", help="number of rounds (10)")
    parser.add_argument("--seed", default="1", help="seed of the rounds, which are named SEED-NUMBER (1)")
    parser.add_argument("--first", type=int, default=1, metavar="NUMBER", help="number of the first round (1)")
    parser.add_argument("--against", choices=["ottla", "kafka"], default="ottla")
    options = parser.parse_args()
    started = time.monotonic()
    outcomes: list[RoundResult] = []
    numbers = list(range(options.first, options.first + options.rounds))
    while numbers:
        with run_three_brokers(options.against) as cluster:
            outcomes += _run_rounds(cluster, options.seed, numbers)
    failed = [outcome for outcome in outcomes if outcome.problems]
    acknowledged_count = sum(outcome.acknowledged_count for outcome in outcomes)
    print(
        f"{len(outcomes)} rounds in {time.monotonic() - started:.0f} s: {acknowledged_count} records acknowledged, "
        f"{len(failed)} rounds failed; their logs: {LOG_FOLDER}"
    )
    return 1 if failed else 0


def _run_rounds(cluster: ProcessCluster, seed: str, numbers: list[int]) -> list[RoundResult]:
    """Runs rounds and removes their numbers from `numbers`, until one fails. The next round then
    needs a new cluster.
    """
    outcomes = []
    while numbers:
        outcome = run_round(cluster, f"{seed}-{numbers.pop(0)}", LOG_FOLDER)
        outcomes.append(outcome)
        verdict = "ok" if not outcome.problems else "FAILED: " + "; ".join(outcome.problems[:3])[:600]
        print(
            f"{outcome.log_file.stem}: {outcome.faults}: {outcome.acknowledged_count} acks, "
            f"longest gap {outcome.gap_s:.1f} s, healthy after {outcome.recovery_s:.1f} s, "
            f"{outcome.took_s:.1f} s in total: {verdict}",
            flush=True,
        )
        if outcome.problems:
            break
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
