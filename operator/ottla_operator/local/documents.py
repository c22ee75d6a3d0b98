"""Resources from YAML files, as `kubectl apply -f` takes them, with the line of every field for
error messages.

YAML is read as Kubernetes reads it: dates stay text, a duplicate key is an error, `List` objects
are opened, empty documents are ignored.
"""

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from ottla_operator.local import schema_files, secrets
from ottla_operator.plan import listener_certificates
from ottla_operator.plan.component_users import mirror_user, needs_mirror_user, needs_pipeline_user, pipeline_user
from ottla_operator.plan.console import console_files
from ottla_operator.plan.refused_settings import find_refused_settings
from ottla_operator.plan.source_credentials import SecretUnusable
from ottla_operator.resources import validation
from ottla_operator.resources.cluster import Cluster
from ottla_operator.resources.common import API_VERSION
from ottla_operator.resources.group import stored_group_name
from ottla_operator.resources.mirror import Mirror
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline
from ottla_operator.resources.schema_resource import stored_subject_name
from ottla_operator.resources.topic import stored_topic_name

_Loader: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_FIELD = re.compile(r"spec(?:\.\w+|\[\d+\])+")
SUFFIXES = (".yaml", ".yml", ".json")
STORED_NAMES: Final[Mapping[str, tuple[str, Callable[[Json], str]]]] = {
    "Topic": ("topic", stored_topic_name),
    "Group": ("group", stored_group_name),
    "Schema": ("subject", stored_subject_name),
}
"""Kind → what its resources describe on the brokers, and the name of that."""


class InvalidFiles(Exception):
    """Problems of the files, one line each."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


@dataclass(frozen=True, slots=True)
class Document:
    """One resource as written. `lines`: line number of each field, from 1. `schema_file`: the file
    that `spec.schema` was read from.
    """

    file: Path
    data: dict[str, Json]
    lines: dict[validation.FieldPath, int] = field(repr=False)
    schema_file: Path | None = None

    @property
    def kind(self) -> str:
        return str(self.data["kind"])

    @property
    def name(self) -> str:
        return str(self.data["metadata"]["name"])

    def locate(self, path: validation.FieldPath) -> str:
        """file:line of a field, or of the innermost object around it that is written."""
        while path not in self.lines:
            path = path[:-1]
        return f"{self.file}:{self.lines[path]}"

    def find_setting(self, message: str) -> validation.FieldPath | None:
        """The first setting of `spec.config` that a broker's message names, or None."""
        config = self.data["spec"].get("config") or {}
        return next((("spec", "config", key) for key in config if key in message), None)

    def find_field(self, message: str) -> validation.FieldPath | None:
        """The field that a message begins with, as in `spec.transforms[0].sql: …`, or
        None.
        """
        found = _FIELD.match(message)
        if found is None:
            return None
        return tuple(int(it) if it.isdigit() else it for it in re.findall(r"\w+", found[0]))

    def describe(self, problem: validation.Problem) -> str:
        return f"{self.locate(problem.path)}: {problem}"


def find_files(inputs: Iterable[Path]) -> list[Path]:
    """Files as given, and the YAML and JSON files of folders, without subfolders. Raises
    InvalidFiles, also for a folder without a YAML file.
    """
    found: list[Path] = []
    problems: list[str] = []
    for path in inputs:
        try:
            if path.is_dir():
                files = sorted(it for it in path.iterdir() if it.suffix in SUFFIXES and it.is_file())
                if not any(it.suffix in SUFFIXES[:2] for it in files):
                    problems.append(f"{path}: no .yaml file in this folder")
                found += files
            elif path.is_file():
                found.append(path)
            else:
                problems.append(f"{path}: no such file or folder")
        except OSError as error:
            problems.append(f"{path}: cannot read: {error.strerror}")
    if problems:
        raise InvalidFiles(problems)
    return list(dict.fromkeys(found))


def read_files(inputs: Iterable[Path], had_resources: Collection[Path] = ()) -> list[Document]:
    """All resources of the files and the Secrets beside them, each validated, and then together.
    Objects of other API groups are ignored. `had_resources`: files that had resources when they
    were read last. If such a file is empty now, that is an error, since an editor may be writing
    it. Raises InvalidFiles.
    """
    documents: list[Document] = []
    problems: list[str] = []
    for file in find_files(inputs):
        try:
            documents += read_file(file, had_resources=file in had_resources)
        except InvalidFiles as bad:
            problems += bad.lines
    if not problems:
        documents = _insert_schema_texts(documents, problems)
    problems = problems or list(_find_conflicts(documents)) or list(find_incompatible_resources(documents))
    if problems:
        raise InvalidFiles(problems)
    return documents


def _insert_schema_texts(documents: Iterable[Document], problems: list[str]) -> list[Document]:
    """The documents with the texts of files that Schemas refer to. Adds to `problems` what cannot
    be read.
    """
    found = []
    for document in documents:
        problem = schema_files.find_unsupported_source(document.data)
        if (path := schema_files.schema_path(document.data, document.file.parent)) is not None:
            text = schema_files.read_schema_text(path)
            if isinstance(text, str):
                lines = {**document.lines, schema_files.TEXT: document.lines[schema_files.FILE]}
                document = Document(document.file, schema_files.with_text(document.data, text), lines, path)
            else:
                problem = text
        if problem is not None:
            problems.append(document.describe(problem))
        found.append(document)
    return found


def read_file(file: Path, had_resources: bool = False) -> list[Document]:
    """Reads the resources of one file and validates each separately. Raises InvalidFiles."""
    try:
        text = file.read_text(encoding="utf-8")
        if had_resources and not text.strip():
            raise InvalidFiles([f"{file}:1: the file is empty; delete it to remove its resources"])
        found = [it for it in parse(text, file) if not _is_foreign(it.data)]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise InvalidFiles(
            [f"{file}:{mark.line + 1 if mark else 1}: not YAML: {error.problem or error.context}"]
        ) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        message = f"byte {error.object[error.start]:#04x} is not UTF-8"
        raise InvalidFiles([f"{file}:{line}: not YAML: {message}"]) from error
    except yaml.YAMLError as error:
        raise InvalidFiles([f"{file}:1: not YAML: {' '.join(str(error).split())}"]) from error
    except OSError as error:  # no permission, or it was deleted just now
        raise InvalidFiles([f"{file}: cannot read: {error.strerror}"]) from error
    if problems := [it.describe(problem) for it in found for problem in _find_problems(it.data)]:
        raise InvalidFiles(problems)
    return found


def parse(text: str, file: Path) -> Iterator[Document]:
    """The documents of a file. Raises yaml.YAMLError."""
    for node in yaml.compose_all(text, Loader=_Loader):
        lines: dict[validation.FieldPath, int] = {}
        data = _construct(node, (), lines)
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


def _find_problems(data: Json) -> Iterable[validation.Problem]:
    if secrets.is_secret(data):
        return secrets.validate_secret(data)
    problems = validation.validate_resource(data)
    return problems if problems or data["kind"] != "Cluster" else _setting_problems(Cluster.parse(data))


def _setting_problems(cluster: Cluster) -> list[validation.Problem]:
    return [
        validation.Problem(("spec", "config", *([it.name] if it.name else [])), it.reason)
        for it in find_refused_settings(cluster)
    ]


def _is_foreign(data: Json) -> bool:
    """True for an object of another API group, such as a Namespace. False for data that is not an
    object with `apiVersion` and `kind`, which `validate_resource` refuses.
    """
    if not isinstance(data, dict) or secrets.is_secret(data):
        return False
    version = data.get("apiVersion")
    return (
        isinstance(version, str)
        and version.split("/")[0] != API_VERSION.split("/")[0]
        and isinstance(data.get("kind"), str)
    )


def _find_conflicts(documents: list[Document]) -> Iterator[str]:
    """Problems of resources that are each valid: duplicate names, references to nothing."""
    first: dict[tuple[str, str], Document] = {}
    for document in documents:
        key = (document.kind, document.name)
        if key in first:
            duplicate, first_place = document.locate(("metadata", "name")), first[key].locate(())
            yield f"{duplicate}: {document.kind} {document.name!r} is already described, in {first_place}"
        first.setdefault(key, document)
    clusters = {name for kind, name in first if kind == "Cluster"}
    policies = {name for kind, name in first if kind == "AccessPolicy"}
    names: dict[tuple[str, str, str], Document] = {}
    for document in documents:
        for path, name in _cluster_refs(document.data):
            if name not in clusters:
                hint = validation.did_you_mean(name, clusters) or (
                    f"; they describe {', '.join(sorted(clusters))}" if clusters else "; the files describe no Cluster"
                )
                message = f"Cluster {name!r} is not in these files{hint}"
                yield document.describe(validation.Problem(path, message))
        references = document.data["spec"].get("aclsFrom") or () if document.kind == "User" else ()
        for index, reference in enumerate(references):
            if (name := reference["name"]) not in policies:
                message = f"AccessPolicy {name!r} is not in these files{validation.did_you_mean(name, policies)}"
                yield document.describe(validation.Problem(("spec", "aclsFrom", index, "name"), message))
        if document.kind in STORED_NAMES:
            what, stored_name = STORED_NAMES[document.kind]
            stored = document.data["spec"]["clusterRef"]["name"], what, stored_name(document.data)
            if stored in names:
                where = names[stored].locate(())
                message = f"{what} {stored[2]!r} of cluster {stored[0]!r} is already described, in {where}"
                yield document.describe(validation.Problem(("spec",), message))
            names.setdefault(stored, document)


def find_incompatible_resources(documents: Sequence[Document]) -> Iterator[str]:
    """Problems of resources that cannot be fulfilled together: Topics with more replicas than their
    Cluster has brokers, and Secrets that listeners and consoles cannot use.
    """
    clusters = {it.name: it for it in documents if it.kind == "Cluster"}
    for document in documents:
        if document.kind != "Topic" or (cluster := clusters.get(document.data["spec"]["clusterRef"]["name"])) is None:
            continue
        replicas, brokers = document.data["spec"].get("replicas"), cluster.data["spec"]["replicas"]
        if replicas is not None and replicas > brokers:
            where = cluster.locate(("spec", "replicas"))
            message = f"{replicas} replicas need as many brokers; Cluster {cluster.name} has {brokers}, in {where}"
            yield document.describe(validation.Problem(("spec", "replicas"), message))
    found = secrets.read_secrets(it.data for it in documents if it.kind == secrets.KIND)
    for cluster in clusters.values():
        try:
            certificates = listener_certificates.read_certificates(Cluster.parse(cluster.data), found)
            if certificates is not None:
                listener_certificates.check_certificates(certificates, time.time())
        except SecretUnusable as error:
            yield f"{cluster.locate(('spec', 'tls', 'secretRef'))}: {error}"
        try:
            console_files(Cluster.parse(cluster.data), found)
        except SecretUnusable as error:
            yield f"{cluster.locate(('spec', 'console', 'oidc'))}: {error}"


def _cluster_refs(data: dict[str, Json]) -> Iterator[tuple[validation.FieldPath, str]]:
    spec = data.get("spec")
    for path in (("clusterRef",), ("source", "clusterRef"), ("target", "clusterRef")):
        value = spec
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        if isinstance(value, dict):
            yield ("spec", *path, "name"), value["name"]


def _construct(node: yaml.Node, path: validation.FieldPath, lines: dict[validation.FieldPath, int]) -> Json:
    lines.setdefault(path, node.start_mark.line + 1)
    match node:
        case yaml.MappingNode():
            return _construct_mapping(node, path, lines)
        case yaml.SequenceNode():
            return [_construct(item, (*path, index), lines) for index, item in enumerate(node.value)]
        case _:
            return _construct_scalar(node)


def _construct_mapping(
    node: yaml.MappingNode, path: validation.FieldPath, lines: dict[validation.FieldPath, int]
) -> dict[str, Json]:
    mapping: dict[str, Json] = {}
    merged: dict[str, Json] = {}
    for key_node, value_node in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            for source in value_node.value if isinstance(value_node, yaml.SequenceNode) else (value_node,):
                merged = {**_construct(source, path, lines), **merged}
            continue
        key = _construct_scalar(key_node)
        if key in mapping:
            raise yaml.MarkedYAMLError(problem=f"the key {key!r} is duplicated", problem_mark=key_node.start_mark)
        lines[(*path, key)] = key_node.start_mark.line + 1
        mapping[key] = _construct(value_node, (*path, key), lines)
    return {**merged, **mapping}


def _construct_scalar(node: yaml.Node) -> Json:
    if node.tag == "tag:yaml.org,2002:timestamp" or not isinstance(node, yaml.ScalarNode):
        return node.value
    return yaml.SafeLoader("").construct_object(node)


def component_documents(documents: Sequence[Document]) -> list[Document]:
    """The Users that Pipelines and Mirrors connect as, where their Clusters need it and no User of
    that name is described. Each is located where its Pipeline or Mirror is.
    """
    clusters = {it.name: Cluster.parse(it.data) for it in documents if it.kind == "Cluster"}
    described = {it.name for it in documents if it.kind == "User"}
    found: list[Document] = []
    for document in documents:
        user = _component_user(document, clusters)
        if user is not None and user["metadata"]["name"] not in described:
            found.append(Document(document.file, user, document.lines))
    return found


def _component_user(document: Document, clusters: Mapping[str, Cluster]) -> Json | None:
    match document.kind:
        case "Pipeline":
            pipeline = Pipeline.parse(document.data)
            cluster = clusters.get(pipeline.spec.cluster_ref.name)
            if cluster is not None and needs_pipeline_user(pipeline, cluster):
                return pipeline_user(pipeline, cluster)
        case "Mirror":
            mirror = Mirror.parse(document.data)
            source = clusters.get(mirror.spec.source.cluster_ref.name) if mirror.spec.source.cluster_ref else None
            if source is not None and needs_mirror_user(mirror, source):
                return mirror_user(mirror, source)
    return None
