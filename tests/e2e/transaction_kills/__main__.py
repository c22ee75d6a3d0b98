"""`python -m tests.e2e.transaction_kills [N] [--seed TEXT]`: N kills; exit code 1 if a record was
copied twice or not at all, or a record was copied that was not produced.
"""

import argparse
import sys
import time
from functools import partial
from random import Random

from tests.e2e.transaction_kills.kills import kill_under_load, run_three_brokers


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.transaction_kills", description=__doc__)
    parser.add_argument("kills", nargs="?", type=int, default=100, metavar="N", help="number of kills (100)")
    parser.add_argument("--seed", default="1", help="seed of the choice of brokers and moments (1)")
    parser.add_argument("--against", choices=["ottla", "kafka"], default="ottla")
    options = parser.parse_args()
    started = time.monotonic()
    with run_three_brokers(options.against) as cluster:
        result = kill_under_load(cluster, options.kills, Random(options.seed), partial(print, flush=True))
    print(f"{options.kills} kills in {time.monotonic() - started:.0f} s: {result}")
    return 1 if result.duplicates or result.losses or result.unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
