"""Resources from YAML files: what `kubectl apply -f` takes, with the line of every field, for errors to name.

YAML as Kubernetes reads it: dates stay text, a key that comes twice is an error, `List` objects are opened, empty
documents are passed over.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from ottla_operator.local import secrets
from ottla_operator.resources import validation
from ottla_operator.resources.common import API_VERSION
from ottla_operator.resources.model import Json

_Loader: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_FIELD = re.compile(r"spec(?:\.\w+|\[\d+\])+")
SUFFIXES = (".yaml", ".yml", ".json")


class InvalidFiles(Exception):
    """Findings about the files, one line each, ready to be shown."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


@dataclass(frozen=True, slots=True)
class Document:
    """One resource and where each of its fields stands. `lines`: path of a field → line, from 1."""

    file: Path
    data: dict[str, Json]
    lines: dict[validation.FieldPath, int] = field(repr=False)

    @property
    def kind(self) -> str:
        return str(self.data["kind"])

    @property
    def name(self) -> str:
        return str(self.data["metadata"]["name"])

    def where(self, path: validation.FieldPath) -> str:
        """file:line of a field, or of the nearest object around it that is written down."""
        while path not in self.lines:
            path = path[:-1]
        return f"{self.file}:{self.lines[path]}"

    def setting_named(self, note: str) -> validation.FieldPath | None:
        """The field of the first setting of `spec.config` that a sentence of the brokers names."""
        config = self.data["spec"].get("config", {})
        return next((("spec", "config", key) for key in config if key in note), None)

    def field_named(self, note: str) -> validation.FieldPath | None:
        """The field with which a sentence begins: `spec.transforms[0].sql: …`."""
        found = _FIELD.match(note)
        if found is None:
            return None
        return tuple(int(it) if it.isdigit() else it for it in re.findall(r"\w+", found[0]))

    def says(self, problem: validation.Problem) -> str:
        return f"{self.where(problem.path)}: {problem}"


def files_of(inputs: Iterable[Path]) -> list[Path]:
    """The files that directories (not their subdirectories) and files name. BadInput when there are none."""
    found: list[Path] = []
    wrong: list[str] = []
    for path in inputs:
        try:
            if path.is_dir():
                here = sorted(it for it in path.iterdir() if it.suffix in SUFFIXES and it.is_file())
                if not any(it.suffix in SUFFIXES[:2] for it in here):
                    wrong.append(f"{path}: there is no .yaml file in this folder")
                found += here
            elif path.is_file():
                found.append(path)
            else:
                wrong.append(f"{path}: there is no such file or folder")
        except OSError as error:
            wrong.append(f"{path}: cannot be read: {error.strerror}")
    if wrong:
        raise InvalidFiles(wrong)
    return list(dict.fromkeys(found))


def read_files(inputs: Iterable[Path], held: Collection[Path] = ()) -> list[Document]:
    """All resources of the files, and Secrets that they may speak of; each checked, and then together. Other objects of other API groups are passed
    over. `held`: files that held resources a moment ago; one of them that is empty now is being written, or emptied by mistake: an error."""
    documents: list[Document] = []
    wrong: list[str] = []
    for file in files_of(inputs):
        try:
            documents += read_file(file, held=file in held)
        except InvalidFiles as bad:
            wrong += bad.lines
    wrong = wrong or list(_together(documents))
    if wrong:
        raise InvalidFiles(wrong)
    return documents


def read_file(file: Path, held: bool = False) -> list[Document]:
    """The resources of one file, each checked by itself."""
    try:
        text = file.read_text(encoding="utf-8")
        if held and not text.strip():
            raise InvalidFiles([f"{file}:1: the file is empty; to take out what it described, remove it"])
        found = [it for it in parse(text, file) if not _foreign(it.data)]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise InvalidFiles(
            [f"{file}:{mark.line + 1 if mark else 1}: not YAML: {error.problem or error.context}"]
        ) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        said = f"byte {error.object[error.start]:#04x} is not text in UTF-8"
        raise InvalidFiles([f"{file}:{line}: not YAML: {said}"]) from error
    except yaml.YAMLError as error:
        raise InvalidFiles([f"{file}:1: not YAML: {' '.join(str(error).split())}"]) from error
    except OSError as error:  # no permission, or it was there a moment ago
        raise InvalidFiles([f"{file}: cannot be read: {error.strerror}"]) from error
    if wrong := [it.says(problem) for it in found for problem in _problems(it.data)]:
        raise InvalidFiles(wrong)
    return found


def parse(text: str, file: Path) -> Iterator[Document]:
    """The documents of one file. Raises yaml.MarkedYAMLError."""
    for node in yaml.compose_all(text, Loader=_Loader):
        lines: dict[validation.FieldPath, int] = {}
        data = _value(node, (), lines)
        if data is None:
            continue
        if (
            isinstance(data, dict)
            and str(data.get("kind", "")).endswith("List")
            and isinstance(data.get("items"), list)
        ):
            for index, item in enumerate(data["items"]):
                prefix = ("items", index)
                yield Document(file, item, {path[2:]: line for path, line in lines.items() if path[:2] == prefix})
        else:
            yield Document(file, data, lines)


def _problems(data: Json) -> Iterable[validation.Problem]:
    return secrets.problems(data) if secrets.is_secret(data) else validation.validate_resource(data)


def _foreign(data: Json) -> bool:
    """A good object that is not ours: a Namespace beside our resources, data beside the YAML."""
    if not isinstance(data, dict) or secrets.is_secret(data):
        return False
    version = data.get("apiVersion")
    return (
        isinstance(version, str)
        and version.split("/")[0] != API_VERSION.split("/")[0]
        and isinstance(data.get("kind"), str)
    )


def _together(documents: list[Document]) -> Iterator[str]:
    """What is wrong with resources that are each good: names that come twice, references to nothing."""
    first: dict[tuple[str, str], Document] = {}
    for document in documents:
        key = (document.kind, document.name)
        if key in first:
            at, there = document.where(("metadata", "name")), first[key].where(())
            yield f"{at}: {document.kind} {document.name!r} is already there, in {there}"
        first.setdefault(key, document)
    clusters = {name for kind, name in first if kind == "Cluster"}
    topics: dict[tuple[str, str], Document] = {}
    for document in documents:
        for path, name in _cluster_refs(document.data):
            if name not in clusters:
                hint = validation.did_you_mean(name, clusters) or (
                    f"; there is {', '.join(sorted(clusters))}" if clusters else "; there is no Cluster at all"
                )
                said = f"there is no Cluster {name!r} in these files{hint}"
                yield document.says(validation.Problem(path, said))
        if document.kind == "Topic":
            spec = document.data["spec"]
            key = (spec["clusterRef"]["name"], spec.get("topicName", document.name))
            if key in topics:
                said = f"topic {key[1]!r} of cluster {key[0]!r} is already described, in {topics[key].where(())}"
                yield document.says(validation.Problem(("spec",), said))
            topics.setdefault(key, document)


def _cluster_refs(data: dict[str, Json]) -> Iterator[tuple[validation.FieldPath, str]]:
    spec = data.get("spec")
    for path in (("clusterRef",), ("source", "clusterRef"), ("target", "clusterRef")):
        at = spec
        for step in path:
            at = at.get(step) if isinstance(at, dict) else None
        if isinstance(at, dict):
            yield ("spec", *path, "name"), at["name"]


def _value(node: yaml.Node, path: validation.FieldPath, lines: dict[validation.FieldPath, int]) -> Json:
    lines.setdefault(path, node.start_mark.line + 1)
    match node:
        case yaml.MappingNode():
            return _mapping(node, path, lines)
        case yaml.SequenceNode():
            return [_value(item, (*path, index), lines) for index, item in enumerate(node.value)]
        case _:
            return _scalar(node)


def _mapping(
    node: yaml.MappingNode, path: validation.FieldPath, lines: dict[validation.FieldPath, int]
) -> dict[str, Json]:
    made: dict[str, Json] = {}
    merged: dict[str, Json] = {}
    for key_node, value_node in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            for source in value_node.value if isinstance(value_node, yaml.SequenceNode) else (value_node,):
                merged = {**_value(source, path, lines), **merged}
            continue
        key = _scalar(key_node)
        if key in made:
            raise yaml.MarkedYAMLError(
                problem=f"the key {key!r} comes twice in one object", problem_mark=key_node.start_mark
            )
        lines[(*path, key)] = key_node.start_mark.line + 1
        made[key] = _value(value_node, (*path, key), lines)
    return {**merged, **made}


def _scalar(node: yaml.Node) -> Json:
    if node.tag == "tag:yaml.org,2002:timestamp" or not isinstance(node, yaml.ScalarNode):
        return node.value
    return yaml.SafeLoader("").construct_object(node)
