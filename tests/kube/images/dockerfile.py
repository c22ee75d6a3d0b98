"""Parses the Dockerfile instructions that the project uses. Any other instruction is an error, so
none is ignored silently.
"""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
INSTRUCTIONS = ("FROM", "RUN", "COPY", "ENV", "USER", "WORKDIR", "ENTRYPOINT", "CMD", "EXPOSE", "LABEL")


class UnsupportedDockerfile(Exception):
    """The Dockerfile contains an instruction or option that this parser does not support."""


@dataclass(frozen=True, slots=True)
class Step:
    """An instruction that creates a layer: RUN or COPY, its arguments, and the working directory
    and environment at its line.
    """

    instruction: str
    text: str
    workdir: str
    environment: dict[str, str]


@dataclass(slots=True)
class Stage:
    """`base` is the name of an image or of an earlier stage; the other fields configure the
    containers of the image.
    """

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


def parse_dockerfile(path: Path) -> dict[str, Stage]:
    """The stages by name, in order. A stage without a name is named by its number. A stage inherits
    the configuration of its base stage.
    """
    stages: dict[str, Stage] = {}
    stage: Stage | None = None
    for instruction, text in _split_instructions(path.read_text()):
        if instruction == "FROM":
            match = re.fullmatch(r"(\S+)(?:\s+AS\s+(\S+))?", text, re.I)
            if match is None:
                raise UnsupportedDockerfile(f"{path}: FROM {text}")
            stage = _start_stage(match[1], match[2] or str(len(stages)), stages)
            stages[stage.name] = stage
        elif stage is None:
            raise UnsupportedDockerfile(f"{path}: {instruction} before FROM")
        else:
            _apply_instruction(stage, instruction, text)
    return stages


def _start_stage(base: str, name: str, stages: dict[str, Stage]) -> Stage:
    stage = Stage(name, base, environment={"PATH": DEFAULT_PATH})
    if (parent := stages.get(base)) is not None:
        stage.environment = dict(parent.environment)
        stage.user, stage.workdir = parent.user, parent.workdir
        stage.entrypoint, stage.command = list(parent.entrypoint), list(parent.command)
        stage.ports, stage.labels = list(parent.ports), dict(parent.labels)
    return stage


def _apply_instruction(stage: Stage, instruction: str, text: str) -> None:
    match instruction:
        case "RUN" | "COPY":
            if instruction == "RUN" and text.startswith("--"):
                raise UnsupportedDockerfile(f"RUN {text}: options of RUN are not supported")
            stage.steps.append(Step(instruction, text, stage.workdir, dict(stage.environment)))
        case "ENV":
            stage.environment |= _parse_pairs(Template(text).safe_substitute(stage.environment))
        case "LABEL":
            stage.labels |= _parse_pairs(text)
        case "USER":
            stage.user = text
        case "WORKDIR":
            stage.workdir = text
        case "ENTRYPOINT":
            stage.entrypoint, stage.command = _parse_json_list(text), []
        case "CMD":
            stage.command = _parse_json_list(text)
        case "EXPOSE":
            stage.ports += text.split()
        case _:
            raise UnsupportedDockerfile(f"{instruction}: supported instructions are {', '.join(INSTRUCTIONS)}")


def _split_instructions(text: str) -> Iterator[tuple[str, str]]:
    """(instruction, arguments) of each instruction: continued lines are joined, comments are
    removed, also between continued lines.
    """
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            instruction, _, rest = line.strip().partition(" ")
            yield instruction.upper(), rest.strip()


def _parse_pairs(text: str) -> dict[str, str]:
    pairs = (word.partition("=") for word in shlex.split(text))
    return {key: value for key, _, value in pairs}


def _parse_json_list(text: str) -> list[str]:
    try:
        words = json.loads(text)
    except ValueError as error:
        raise UnsupportedDockerfile(
            f"{text}: must be a JSON list; a shell would not pass signals to the program"
        ) from error
    return [str(word) for word in words]
