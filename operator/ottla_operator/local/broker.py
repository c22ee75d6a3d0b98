"""One broker of a cluster as a process that is kept running, with the settings it was started with."""

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ottla_operator.local import ports, processes
from ottla_operator.local.keeper import Keeper
from ottla_operator.local.live_view import State
from ottla_operator.plan.broker_processes import BrokerProcessPlan
from ottla_operator.plan.settings import Settings

Tell = Callable[[State, str, int | None], None]


@dataclass(slots=True)
class LocalBroker:
    """`plan`: how it is started from now on; replacing it restarts nothing. `started`: what its process was started with, None when that is not
    known."""

    plan: BrokerProcessPlan
    folder: Path
    tell: Tell
    started: Settings | None = None
    keeper: Keeper = field(init=False)
    _task: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        if processes.left_behind(self.folder) is not None:
            self.started = self._noted()
        self.keeper = self._kept()

    @property
    def ready(self) -> bool:
        return self.keeper.ready.is_set()

    def start(self) -> None:
        self._task = asyncio.create_task(self.keeper.run())

    async def stop(self) -> bool:
        """Whether it ended by itself."""
        clean = await self.keeper.stop()
        if self._task is not None:
            await self._task
        return clean

    async def restart(self) -> None:
        """Returns when the process with the old settings is gone, and one with the new ones is coming."""
        await self.stop()
        self.keeper = self._kept()
        self.start()

    def take(self, plan: BrokerProcessPlan) -> None:
        self.plan = plan
        self.keeper.command = command(plan)

    def _kept(self) -> Keeper:
        return Keeper(
            folder=self.folder,
            command=command(self.plan),
            hash=None,  # whatever it was started with: brokers are restarted one after the other, and not because we come
            tell=self.tell,
            is_ready=lambda output: " ready on " in output,
            in_the_way=lambda: next(
                (reason for port in self.plan.ports.values() if (reason := ports.in_use(port))), None
            ),
            prepare=self._note,
        )

    @property
    def _file(self) -> Path:
        return self.folder / "settings.json"

    def _note(self) -> None:
        self.started = dict(self.plan.settings)
        self.folder.mkdir(parents=True, exist_ok=True)
        scratch = self._file.with_suffix(".tmp")  # whoever reads it meanwhile sees the old ones whole
        scratch.write_text(json.dumps(self.started, indent=2))
        scratch.replace(self._file)

    def _noted(self) -> Settings | None:
        try:
            found = json.loads(self._file.read_text())
        except (FileNotFoundError, ValueError):
            return None
        return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else None


def command(plan: BrokerProcessPlan) -> Sequence[str]:
    return [
        sys.executable,
        "-m",
        "ottla_broker",
        *(part for key, value in plan.settings.items() for part in ("--set", f"{key}={value}")),
    ]
