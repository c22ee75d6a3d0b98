"""Golden files of Kubernetes objects. `GOLDEN=write` writes those that are missing or have
changed.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

GOLDEN = Path(__file__).parent / "golden"


class PlainDumper(yaml.SafeDumper):
    """Repeats an object instead of writing an alias of it."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


class BlockDumper(PlainDumper):
    """Writes text of several lines as a block."""


BlockDumper.add_representer(
    str,
    lambda dumper, it: dumper.represent_scalar("tag:yaml.org,2002:str", it, style="|" if "\n" in it else None),
)


def golden_cases(folder: Path) -> list[str]:
    """Names of the files `NAME.in.yaml` in a folder."""
    return sorted(path.name.removesuffix(".in.yaml") for path in folder.glob("*.in.yaml"))


def check_golden_file(file: Path, objects: Sequence[Any], dumper: type[PlainDumper]) -> None:
    text = yaml.dump_all(objects, Dumper=dumper, sort_keys=False, width=140)
    if os.environ.get("GOLDEN") == "write":
        file.write_text(text)
    assert text == file.read_text()
