"""Simulate clusters on virtual time.

`python -m tests.sim SEED` replays one run with its trace; `--seeds N [--first K]` runs many on all
cores. With `--mirrors` a run has two clusters, one of which mirrors the other. With `--metadata`
only metadata are changed, and the faults are those of voters; with `--observers` there are also
more brokers than voters. With `--access`, access rules, credentials and quotas change, too. With
`--transactions` producers and workers use transactions, with `--shares` a share group reads, with
`--streams` threads of a Kafka Streams application come and go. With `--disable RULE` brokers run
without this rule, and the checks should detect that.
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

from tests.sim.disabled_rule_runs import DisabledRule, detect, markdown_table, rules_with_name, run_without_rule
from tests.sim.mirror_scenario import run_mirror_seed
from tests.sim.scenario import (
    run_access_seed,
    run_metadata_seed,
    run_observer_seed,
    run_seed,
    run_share_seed,
    run_streams_seed,
    run_transaction_seed,
)
from tests.sim.simulation import Outcome, SimulatorError, run_or_report

MAX_PRINTED = 12  # violations of one run
# Option that chooses the kind of runs → the function that runs a seed, and the option's help.
KINDS: dict[str, tuple[Callable[..., Outcome], str]] = {
    "mirrors": (run_mirror_seed, "simulate two clusters with a mirror"),
    "metadata": (run_metadata_seed, "simulate elections and voters, without records"),
    "observers": (run_observer_seed, "as --metadata, with more brokers than voters"),
    "access": (run_access_seed, "as --metadata, with rules, credentials and quotas"),
    "transactions": (run_transaction_seed, "simulate transactional producers and workers"),
    "shares": (run_share_seed, "simulate members of a share group"),
    "streams": (run_streams_seed, "simulate an application of Kafka Streams"),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("seed", nargs="?", type=int, help="seed to replay")
    parser.add_argument("--seeds", type=int, default=0, metavar="N", help="number of seeds to run")
    parser.add_argument("--first", type=int, default=1, metavar="K", help="first seed")
    parser.add_argument(
        "--brokers", type=int, choices=range(1, 16), metavar="N", help="number of brokers (default: the seed chooses)"
    )
    kinds = parser.add_mutually_exclusive_group()
    for kind, (_, text) in KINDS.items():
        kinds.add_argument(f"--{kind}", dest="kind", action="store_const", const=kind, help=text)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--disable", metavar="RULE", help="disable this rule of the broker; all: each in turn")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    options = parser.parse_args()
    if options.disable is not None:
        try:
            rules = rules_with_name(options.disable)
        except ValueError as reason:
            parser.error(str(reason))
        if options.seed is not None:
            return replay_without_rules(rules, options.seed)
        return detect_disabled_rules(rules, range(options.first, options.first + options.seeds), options.jobs)
    if options.kind == "mirrors" and options.brokers is not None:
        parser.error("--mirrors cannot be used with --brokers")
    run: Callable[..., Outcome] = run_seed if options.kind is None else KINDS[options.kind][0]
    if options.brokers is not None:
        run = partial(run, brokers=options.brokers)
    if options.seed is not None:
        return replay(run, options.seed, getattr(logging, options.log_level.upper()))
    replay_options = f" --{options.kind}" if options.kind else ""
    replay_options += f" --brokers {options.brokers}" if options.brokers else ""
    return run_many(run, range(options.first, options.first + options.seeds), replay_options, options.jobs)


def replay(run: Callable[..., Outcome], seed: int, level: int) -> int:
    outcome = run(seed, on_line=print, level=level)
    print(summary(outcome))
    return print_violations(outcome)


def print_violations(outcome: Outcome) -> int:
    """Returns 1 if there are any, otherwise 0."""
    for violation in outcome.violations[:MAX_PRINTED]:
        print(f"  violation: {violation}")
    if (more := len(outcome.violations) - MAX_PRINTED) > 0:
        print(f"  … and {more} more")
    return 1 if outcome.violations else 0


def summary(outcome: Outcome) -> str:
    faults = format_counts(outcome.faults) or "no faults"
    return (
        f"seed {outcome.seed}, {outcome.brokers} brokers: {'VIOLATIONS' if outcome.violations else 'passed'}; "
        f"{outcome.acks} acks, {outcome.reads} reads in "
        f"{outcome.virtual_s:.0f} s, {outcome.packets} packets, {outcome.cpu_s:.1f} s CPU, digest "
        f"{outcome.digest & 0xFFFFFFFF:08x}; {faults}; {format_counts(outcome.counts)}"
    )


def format_counts(things: Mapping[str, int]) -> str:
    return ", ".join(f"{count} × {name}" for name, count in sorted(things.items()))


def run_many(run: Callable[[int], Outcome], seeds: range, options: str, jobs: int) -> int:
    """Runs many seeds. `options`: command-line options that reproduce the run of a seed."""
    started = time.monotonic()
    failed = []
    faults: Counter[str] = Counter()
    done: Counter[str] = Counter()
    acks, cpu_s = 0, 0.0
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for outcome in pool.imap_unordered(partial(run_or_report, run), seeds):
            if isinstance(outcome, SimulatorError):
                failed.append(outcome.seed)
                print(f"seed {outcome.seed}: the simulator failed\n{outcome.traceback}")
                print(f"  replay: python -m tests.sim {outcome.seed}{options}", flush=True)
                continue
            acks += outcome.acks
            cpu_s += outcome.cpu_s
            faults.update(outcome.faults)
            done.update(outcome.counts)
            if outcome.violations:
                failed.append(outcome.seed)
                print(summary(outcome))
                print_violations(outcome)
                print(f"  replay: python -m tests.sim {outcome.seed}{options}", flush=True)
    minutes = (time.monotonic() - started) / 60
    print(
        f"{len(seeds)} seeds, {len(failed)} failed{f': {sorted(failed)}' if failed else ''}; "
        f"{len(seeds) / minutes:.0f} seeds/minute, "
        f"{cpu_s / max(len(seeds), 1):.1f} s CPU each; {acks} acks; {format_counts(faults)}; {format_counts(done)}"
    )
    return 1 if failed else 0


def replay_without_rules(rules: list[DisabledRule], seed: int) -> int:
    """Replays the seed without each rule. Returns 0 if the checks detect each, otherwise 1."""
    undetected = []
    for rule in rules:
        print(f"without the rule: {rule.name}")
        outcome = run_without_rule(rule, seed, on_line=print)
        print(summary(outcome))
        if not print_violations(outcome):
            undetected.append(rule.name)
    if undetected:
        print(f"seed {seed} does not detect {len(undetected)} of {len(rules)}: {'; '.join(undetected)}")
    return 1 if undetected else 0


def detect_disabled_rules(rules: list[DisabledRule], seeds: range, jobs: int) -> int:
    """Prints the table of detections. Returns 0 if each rule is detected by a seed, otherwise 1."""
    detections = detect(rules, seeds, jobs)
    for line in markdown_table(detections):
        print(line)
    return 0 if all(one.detected_by for one in detections) else 1


if __name__ == "__main__":
    sys.exit(main())
