"""`python -m tests.sim SEED`: one run, with everything that happens in it. `--seeds N [--first K]`: many, on all cores. Either with `--mirrors`: two
clusters, one of which is a mirror of the other; or with `--broken RULE`: without a rule of the broker, to see whether that is noticed.
"""

import argparse
import logging
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

from tests.sim.broken_runs import Rule, catches, rules_of, run_broken, table
from tests.sim.mirror_scenario import run_mirrors
from tests.sim.scenario import run
from tests.sim.simulation import Outcome

MOST_TOLD = 12  # broken promises of one run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("seed", nargs="?", type=int, help="replay this one")
    parser.add_argument("--seeds", type=int, default=0, metavar="N", help="run so many")
    parser.add_argument("--first", type=int, default=1, metavar="K", help="the first of them")
    parser.add_argument("--brokers", type=int, choices=[1, 3, 5], help="else as many as each seed wants")
    parser.add_argument("--mirrors", action="store_true", help="two clusters, one of which is a mirror of the other")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--broken", metavar="RULE", help="without this rule; all: without one after the other")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    options = parser.parse_args()
    if options.broken is not None:
        try:
            rules = rules_of(options.broken)
        except ValueError as reason:
            parser.error(str(reason))
        if options.seed is not None:
            return replay_broken(rules[0], options.seed)
        return broken(rules, range(options.first, options.first + options.seeds), options.jobs)
    if options.mirrors and options.brokers is not None:
        parser.error("--brokers: with --mirrors each seed says how many there are")
    one: Callable[..., Outcome] = run_mirrors if options.mirrors else partial(run, brokers=options.brokers)
    if options.seed is not None:
        return replay(one, options.seed, getattr(logging, options.log_level.upper()))
    same = " --mirrors" if options.mirrors else f" --brokers {options.brokers}" if options.brokers else ""
    return many(one, range(options.first, options.first + options.seeds), same, options.jobs)


def replay(one: Callable[..., Outcome], seed: int, level: int) -> int:
    outcome = one(seed, tell=print, level=level)
    print(summary(outcome))
    return report(outcome)


def report(outcome: Outcome) -> int:
    for promise in outcome.broken[:MOST_TOLD]:
        print(f"  broken: {promise}")
    if (more := len(outcome.broken) - MOST_TOLD) > 0:
        print(f"  … and {more} more")
    return 1 if outcome.broken else 0


def summary(outcome: Outcome) -> str:
    faults = counted(outcome.faults) or "no faults"
    return (
        f"seed {outcome.seed}, {outcome.brokers} brokers: {'BROKEN' if outcome.broken else 'kept'}; {outcome.acks} acks, {outcome.reads} reads in "
        f"{outcome.virtual_s:.0f} s, {outcome.packets} packets, {outcome.cpu_s:.1f} s CPU, digest {outcome.digest & 0xFFFFFFFF:08x}; {faults}; {counted(outcome.done)}"
    )


def counted(things: Mapping[str, int]) -> str:
    return ", ".join(f"{count} × {name}" for name, count in sorted(things.items()))


def many(one: Callable[[int], Outcome], seeds: range, same: str, jobs: int) -> int:
    """`same`: with which options a seed is the same run again."""
    started = time.monotonic()
    bad = []
    faults: Counter[str] = Counter()
    done: Counter[str] = Counter()
    acks, cpu_s = 0, 0.0
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for outcome in pool.imap_unordered(one, seeds):
            acks += outcome.acks
            cpu_s += outcome.cpu_s
            faults.update(outcome.faults)
            done.update(outcome.done)
            if outcome.broken:
                bad.append(outcome.seed)
                print(summary(outcome))
                report(outcome)
                print(f"  replay: python -m tests.sim {outcome.seed}{same}", flush=True)
    minutes = (time.monotonic() - started) / 60
    print(
        f"{len(seeds)} seeds, {len(bad)} broken{f': {sorted(bad)}' if bad else ''}; {len(seeds) / minutes:.0f} seeds/minute, "
        f"{cpu_s / max(len(seeds), 1):.1f} s CPU each; {acks} acks; {counted(faults)}; {counted(done)}"
    )
    return 1 if bad else 0


def replay_broken(rule: Rule, seed: int) -> int:
    outcome = run_broken(rule, seed, tell=print)
    print(summary(outcome))
    return 0 if report(outcome) else 1


def broken(rules: list[Rule], seeds: range, jobs: int) -> int:
    """Whether each was noticed by one seed at least."""
    caught = catches(rules, seeds, jobs)
    for line in table(caught):
        print(line)
    return 0 if all(one.by for one in caught) else 1


if __name__ == "__main__":
    sys.exit(main())
