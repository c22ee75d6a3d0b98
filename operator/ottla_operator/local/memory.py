"""What `ottla up` remembers of a cluster's brokers beside their data, in .ottla/<cluster>/brokers.json."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class Memory:
    """`present`: brokers that were started and not let go: they may hold partitions, whatever the files say now. `spread`: those over which partitions
    were spread. `settings`: that were set for the whole cluster, for running brokers. `throttled`: topics that move under a throttle."""

    path: Path
    present: set[int] = field(default_factory=set)
    spread: set[int] = field(default_factory=set)
    settings: dict[str, str] = field(default_factory=dict)
    throttled: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, folder: Path) -> "Memory":
        """`folder`: the cluster's. What cannot be read is as if nothing were remembered."""
        path = folder / "brokers.json"
        try:
            found: dict[str, Any] = json.loads(path.read_text())
            return cls(
                path,
                set(map(int, found["present"])),
                set(map(int, found["spread"])),
                {str(key): str(value) for key, value in found["settings"].items()},
                list(map(str, found["throttled"])),
            )
        except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
            return cls(path)

    def save(self) -> None:
        told = asdict(self) | {"present": sorted(self.present), "spread": sorted(self.spread)}
        del told["path"]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        scratch = self.path.with_suffix(".tmp")
        scratch.write_text(json.dumps(told, indent=2))
        scratch.replace(self.path)
