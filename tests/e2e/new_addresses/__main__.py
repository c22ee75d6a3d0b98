"""`python -m tests.e2e.new_addresses [--rounds N] [--against kafka]`; exit code 1 when a group did
not read on or the producer did not go on.
"""

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.new_addresses.client_processes import GROUP_KINDS
from tests.e2e.new_addresses.moving_cluster import run_moving_cluster
from tests.e2e.new_addresses.rounds import REBALANCE_DELAY_MS, RoundResult, run_joining_rounds, run_rounds

LOG_FOLDER = Path(__file__).parent.parent.parent.parent / "build" / "new-addresses"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.new_addresses", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="number of rounds (10)")
    parser.add_argument("--seed", default="1", help="seed of the pauses and of the ways to lose brokers (1)")
    parser.add_argument("--against", choices=["ottla", "kafka"], default="ottla")
    parser.add_argument("--groups", nargs="+", choices=GROUP_KINDS, default=GROUP_KINDS[:3])
    joining_help = "let brokers fall silent while new members join; only with --groups of librdkafka"
    parser.add_argument("--joining", action="store_true", help=joining_help)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that nothing is left behind
    folder = LOG_FOLDER / f"{options.against}-{options.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    results = []
    rounds = run_joining_rounds if options.joining else run_rounds
    with run_moving_cluster(options.against, REBALANCE_DELAY_MS if options.joining else 0) as moving:
        for result in rounds(moving, options.groups, options.rounds, options.seed, folder):
            results.append(result)
            print(result, flush=True)
    print(f"{len(results)} rounds in {time.monotonic() - began:.0f} s; logs: {folder}")
    for group in options.groups:
        print(summarize_group(group, results))
    return 1 if any(result.stuck for result in results) else 0


def summarize_group(kind: str, results: Sequence[RoundResult]) -> str:
    times = sorted(result.read_on_s[kind] for result in results if kind in result.read_on_s)
    if not times:
        return f"{kind}: never read on"
    middle, late = times[len(times) // 2], times[len(times) * 95 // 100]
    stuck = len(results) - len(times)
    return (
        f"{kind}: read on {len(times)} times, p50 {middle:.1f} s, p95 {late:.1f} s, max {times[-1]:.1f} s; "
        f"{stuck} stuck"
    )


if __name__ == "__main__":
    sys.exit(main())
