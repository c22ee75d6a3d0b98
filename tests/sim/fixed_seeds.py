"""Runs of fixed seeds, in as many processes as there are processors."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from multiprocessing import get_context

from tests.sim.simulation import Outcome


@cache
def pool() -> ProcessPoolExecutor:
    """Worker processes that all tests of this process share: each must import the broker first,
    which takes as long as a short run.
    """
    return ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn"))


def outcomes(run: Callable[[int], Outcome], seeds: Iterable[int]) -> list[Outcome]:
    """The outcomes of these seeds, without traces. A seed that several tests of this process need
    runs once.
    """
    return [running.result() for running in [_submit(run, seed) for seed in seeds]]


@cache
def _submit(run: Callable[[int], Outcome], seed: int) -> Future[Outcome]:
    return pool().submit(_run_without_trace, run, seed)


def _run_without_trace(run: Callable[[int], Outcome], seed: int) -> Outcome:
    return replace(run(seed), trace=[])


def violations(outcomes: Iterable[Outcome], option: str = "") -> dict[str, list[str]]:
    """The violated invariants by the command that runs the seed. `option`: that of `tests.sim` for
    such runs.
    """
    return {
        f"seed {outcome.seed} (python -m tests.sim {option} {outcome.seed})": outcome.violations
        for outcome in outcomes
        if outcome.violations
    }
