"""`python -m tests.sim SEED`: one run, with everything that happens in it. `--seeds N [--first K]`: many, on all cores."""

import argparse
import logging
import multiprocessing
import os
import sys
import time
from functools import partial

from tests.sim.scenario import Outcome, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("seed", nargs="?", type=int, help="replay this one")
    parser.add_argument("--seeds", type=int, default=0, metavar="N", help="run so many")
    parser.add_argument("--first", type=int, default=1, metavar="K", help="the first of them")
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    options = parser.parse_args()
    if options.seed is not None:
        return replay(options.seed, options.brokers, getattr(logging, options.log_level.upper()))
    return many(range(options.first, options.first + options.seeds), options.brokers, options.jobs)


def replay(seed: int, brokers: int, level: int) -> int:
    outcome = run(seed, brokers, tell=print, level=level)
    print(summary(outcome))
    return report(outcome)


def report(outcome: Outcome) -> int:
    for promise in outcome.broken:
        print(f"  broken: {promise}")
    return 1 if outcome.broken else 0


def summary(outcome: Outcome) -> str:
    faults = ", ".join(f"{count} × {name}" for name, count in sorted(outcome.faults.items())) or "no faults"
    return (
        f"seed {outcome.seed}: {'BROKEN' if outcome.broken else 'kept'}; {outcome.acks} acks, {outcome.reads} reads in "
        f"{outcome.virtual_s:.0f} s, {outcome.packets} packets, {outcome.cpu_s:.1f} s CPU, digest {outcome.digest & 0xFFFFFFFF:08x}; {faults}"
    )


def many(seeds: range, brokers: int, jobs: int) -> int:
    started = time.monotonic()
    bad = []
    faults: dict[str, int] = {}
    acks, cpu_s = 0, 0.0
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for outcome in pool.imap_unordered(partial(run, brokers=brokers), seeds):
            acks += outcome.acks
            cpu_s += outcome.cpu_s
            for name, count in outcome.faults.items():
                faults[name] = faults.get(name, 0) + count
            if outcome.broken:
                bad.append(outcome.seed)
                print(summary(outcome))
                report(outcome)
                print(f"  replay: python -m tests.sim {outcome.seed} --brokers {brokers}", flush=True)
    minutes = (time.monotonic() - started) / 60
    told = ", ".join(f"{count} × {name}" for name, count in sorted(faults.items()))
    print(
        f"{len(seeds)} seeds, {len(bad)} broken{f': {sorted(bad)}' if bad else ''}; {len(seeds) / minutes:.0f} seeds/minute, "
        f"{cpu_s / max(len(seeds), 1):.1f} s CPU each; {acks} acks; {told}"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
