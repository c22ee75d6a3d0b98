"""Reading a Dockerfile: the instructions that ours use, and an error for every other one, so that none is passed over in silence."""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
KNOWN = ("FROM", "RUN", "COPY", "ENV", "USER", "WORKDIR", "ENTRYPOINT", "CMD", "EXPOSE", "LABEL")


class NotUnderstood(Exception):
    """The Dockerfile uses what this reader does not know."""


@dataclass(frozen=True, slots=True)
class Step:
    """`instruction`: RUN or COPY, which make a layer; `text`: all that follows it; `workdir`, `environment`: as they are at that line."""

    instruction: str
    text: str
    workdir: str
    environment: dict[str, str]


@dataclass(slots=True)
class Stage:
    """`base`: an image's name or an earlier stage's. The rest is what a container of it gets."""

    name: str
    base: str
    steps: list[Step] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    user: str = ""
    workdir: str = "/"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    ports: list[str] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)


def read(path: Path) -> dict[str, Stage]:
    """The stages by name, in their order; one without a name is called by its number. A stage starts as its base stage ended."""
    stages: dict[str, Stage] = {}
    stage: Stage | None = None
    for instruction, text in _instructions(path.read_text()):
        if instruction == "FROM":
            found = re.fullmatch(r"(\S+)(?:\s+AS\s+(\S+))?", text, re.I)
            if found is None:
                raise NotUnderstood(f"{path}: FROM {text}")
            stage = _from(found[1], found[2] or str(len(stages)), stages)
            stages[stage.name] = stage
        elif stage is None:
            raise NotUnderstood(f"{path}: {instruction} before FROM")
        else:
            _apply(stage, instruction, text)
    return stages


def _from(base: str, name: str, stages: dict[str, Stage]) -> Stage:
    made = Stage(name, base, environment={"PATH": PATH})
    if (parent := stages.get(base)) is not None:
        made.environment = dict(parent.environment)
        made.user, made.workdir = parent.user, parent.workdir
        made.entrypoint, made.command = list(parent.entrypoint), list(parent.command)
        made.ports, made.labels = list(parent.ports), dict(parent.labels)
    return made


def _apply(stage: Stage, instruction: str, text: str) -> None:
    match instruction:
        case "RUN" | "COPY":
            if instruction == "RUN" and text.startswith("--"):
                raise NotUnderstood(f"RUN {text}: no options here")
            stage.steps.append(Step(instruction, text, stage.workdir, dict(stage.environment)))
        case "ENV":
            stage.environment |= _pairs(Template(text).safe_substitute(stage.environment))
        case "LABEL":
            stage.labels |= _pairs(text)
        case "USER":
            stage.user = text
        case "WORKDIR":
            stage.workdir = text
        case "ENTRYPOINT":
            stage.entrypoint, stage.command = _words(text), []
        case "CMD":
            stage.command = _words(text)
        case "EXPOSE":
            stage.ports += text.split()
        case _:
            raise NotUnderstood(f"{instruction}: this reader knows {', '.join(KNOWN)}")


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    """Continued lines are one; comments go, also between continued lines."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            instruction, _, rest = line.strip().partition(" ")
            yield instruction.upper(), rest.strip()


def _pairs(text: str) -> dict[str, str]:
    pairs = (word.partition("=") for word in shlex.split(text))
    return {key: value for key, _, value in pairs}


def _words(text: str) -> list[str]:
    try:
        words = json.loads(text)
    except ValueError as error:
        raise NotUnderstood(
            f"{text}: give it as a JSON list, so that no shell stands between signals and the program"
        ) from error
    return [str(word) for word in words]
