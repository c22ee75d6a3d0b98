"""A producer whose process is killed at a step of a transaction, in the first attempts of writer
0.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer

STEPS: Final = ("begin", "produce", "offsets", "commit", "committed")
"""Steps at which the process can be killed: before the transaction, amid its records, before the
batch's number is added to it, before it is committed, and after that."""
_WRITTEN_BEFORE_DEATH: Final = 5


class DyingProducer:
    """Calls a real producer. `deaths`: the number of processes that are killed. `folder` has a file
    for each of them.
    """

    def __init__(self, properties: dict[str, Any], step: str, folder: Path, deaths: int) -> None:
        self._producer = Producer(properties)
        self._die = (
            partial(_die_unless_enough_have, folder, deaths)
            if properties["transactional.id"].endswith(".0")
            else _go_on
        )
        self._step = step
        self._produced = 0

    def init_transactions(self, timeout: float) -> None:
        self._producer.init_transactions(timeout)

    def begin_transaction(self) -> None:
        self._die_at("begin")
        self._producer.begin_transaction()

    def produce(self, *arguments: Any, **options: Any) -> None:
        self._producer.produce(*arguments, **options)
        self._produced += 1
        if self._produced == _WRITTEN_BEFORE_DEATH:
            self._producer.flush(30)
            self._die_at("produce")

    def poll(self, timeout: float) -> None:
        self._producer.poll(timeout)

    def send_offsets_to_transaction(self, *arguments: Any) -> None:
        self._producer.flush(30)
        self._die_at("offsets")
        self._producer.send_offsets_to_transaction(*arguments)

    def commit_transaction(self, timeout: float) -> None:
        self._die_at("commit")
        self._producer.commit_transaction(timeout)
        self._die_at("committed")

    def _die_at(self, step: str) -> None:
        if step == self._step:
            self._die()


def _die_unless_enough_have(folder: Path, deaths: int) -> None:
    died = len(list(folder.iterdir()))
    if died < deaths:
        (folder / str(died)).touch()
        os.kill(os.getpid(), signal.SIGKILL)


def _go_on() -> None:
    """Other writers than the first are not killed."""


def dying_producer_opener(step: str, folder: Path, deaths: int) -> Callable[[dict[str, Any]], DyingProducer]:
    """A function that takes a producer's properties, in place of `open_producer`."""
    folder.mkdir()
    return partial(DyingProducer, step=step, folder=folder, deaths=deaths)
