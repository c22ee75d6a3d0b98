"""`ottla schema`."""

import difflib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from ottla_operator.cli.exit_codes import CommandError, ExitCode
from ottla_operator.cli.options import Output, OutputFormat, new_app
from ottla_operator.cli.output import print_document, print_rows
from ottla_operator.kafka.client import Unreachable
from ottla_operator.kafka.schema_registry import RegistryRefusal, SchemaRegistryClient

T = TypeVar("T")

app = new_app("Manage schemas.")

DEFAULT_REGISTRY: Final = "http://127.0.0.1:8081"
TYPES: Final = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}

Registry = Annotated[
    str, typer.Option("--registry", envvar="OTTLA_REGISTRY", metavar="URL", help="Address of a schema registry.")
]
RegistryLogin = Annotated[
    str, typer.Option("--login", envvar="OTTLA_REGISTRY_LOGIN", metavar="NAME:PASSWORD", help="HTTP basic login.")
]
Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="Subject, such as orders-value.")]
File = Annotated[
    Path,
    typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="File with the schema: .avsc, .json, .proto."),
]
Type = Annotated[
    str | None,
    typer.Option("--type", "-t", metavar="TYPE", help="AVRO, JSON or PROTOBUF. Default: by the file's name."),
]
References = Annotated[
    list[str] | None,
    typer.Option("--reference", metavar="NAME=SUBJECT:VERSION", help="Schema that this one refers to. Repeatable."),
]


@app.command("list")
def list_(
    registry: Registry = DEFAULT_REGISTRY,
    login: RegistryLogin = "",
    output: Output = OutputFormat.table,
) -> None:
    """List subjects with their latest versions."""

    def work(client: SchemaRegistryClient) -> list[dict[str, Any]]:
        return [client.get_version(subject) for subject in client.list_subjects()]

    rows = [{"schemaType": "AVRO"} | found for found in call_registry(registry, login, work)]
    print_rows(rows, {"subject": "SUBJECT", "version": "VERSION", "id": "ID", "schemaType": "TYPE"}, output)


@app.command()
def get(
    subject: Subject,
    version: Annotated[str, typer.Option("--version", help="Version number, or latest.")] = "latest",
    registry: Registry = DEFAULT_REGISTRY,
    login: RegistryLogin = "",
    output: Output = OutputFormat.table,
) -> None:
    """Print a schema.

    With -o json or yaml, its id, version and references are printed too.
    """
    found = call_registry(registry, login, lambda client: client.get_version(subject, version))
    if output is OutputFormat.table:
        print("\n".join(readable_lines(found)))
    else:
        print_document(found, output)


@app.command()
def register(
    subject: Subject,
    file: File,
    type_: Type = None,
    reference: References = None,
    compatibility: Annotated[
        str | None,
        typer.Option("--compatibility", metavar="LEVEL", help="Compatibility level to set first, such as BACKWARD."),
    ] = None,
    registry: Registry = DEFAULT_REGISTRY,
    login: RegistryLogin = "",
) -> None:
    """Register a schema, unless it is incompatible.

    Example: ottla schema register orders-value order.avsc
    """
    schema = read_schema(file, type_, reference)

    def work(client: SchemaRegistryClient) -> int:
        if compatibility is not None:
            client.set_compatibility(subject, compatibility)
        return client.register(subject, schema)

    print(f"{subject} has the schema with id {call_registry(registry, login, work)}")


@app.command()
def check(
    subject: Subject,
    file: File,
    type_: Type = None,
    reference: References = None,
    registry: Registry = DEFAULT_REGISTRY,
    login: RegistryLogin = "",
) -> None:
    """Check whether a schema could be registered.

    Exits with 1 if it could not.
    """
    schema = read_schema(file, type_, reference)
    problems, level = call_registry(
        registry, login, lambda it: (it.find_incompatibilities(subject, schema), it.get_compatibility(subject))
    )
    if problems:
        raise CommandError(ExitCode.failed, "\n".join([f"{file} is incompatible with {subject} ({level}):", *problems]))
    print(f"{file} is compatible with {subject} ({level})")


@app.command()
def diff(
    subject: Subject,
    file: File,
    version: Annotated[str, typer.Option("--version", help="Version number, or latest.")] = "latest",
    registry: Registry = DEFAULT_REGISTRY,
    login: RegistryLogin = "",
) -> None:
    """Print how a file differs from a registered schema.

    Exits with 1 if it differs.
    """
    found = call_registry(registry, login, lambda client: client.get_version(subject, version))
    old = readable_lines(found)
    new = readable_lines({**found, "schema": file.read_text()})
    lines = list(difflib.unified_diff(old, new, f"{subject} version {found['version']}", str(file), lineterm=""))
    print("\n".join(lines), end="\n" if lines else "")
    if lines:
        raise typer.Exit(ExitCode.failed)


def call_registry(url: str, login: str, work: Callable[[SchemaRegistryClient], T]) -> T:
    """Runs a command's work with a client of the registry. Raises CommandError."""
    try:
        return work(SchemaRegistryClient(url, login=login))
    except RegistryRefusal as error:
        code = ExitCode.not_found if error.is_not_found else ExitCode.failed
        raise CommandError(code, f"{error} (error {error.code})") from None
    except Unreachable as error:
        raise CommandError(ExitCode.unreachable, str(error)) from None


def read_schema(file: Path, type_: str | None, references: list[str] | None) -> dict[str, Any]:
    """The schema of a file as a request to the registry has it. Raises typer.BadParameter."""
    kind = (type_ or TYPES.get(file.suffix, "")).upper()
    if kind not in TYPES.values():
        raise typer.BadParameter(f"the type of {file} is not clear from its name: set --type to AVRO, JSON or PROTOBUF")
    return {
        "schema": file.read_text(),
        "schemaType": kind,
        "references": [parse_reference(text) for text in references or []],
    }


def parse_reference(text: str) -> dict[str, Any]:
    """Parses NAME=SUBJECT:VERSION. Raises typer.BadParameter."""
    name, equals, target = text.partition("=")
    subject, colon, version = target.rpartition(":")
    if not (name and equals and subject and colon and version.isdigit()):
        raise typer.BadParameter(f"--reference {text}: expected NAME=SUBJECT:VERSION")
    return {"name": name, "subject": subject, "version": int(version)}


def readable_lines(version: dict[str, Any]) -> list[str]:
    """Lines of the text of a version, as the registry returns it: JSON with one attribute on a
    line, Protobuf unchanged.
    """
    text = str(version["schema"])
    if version.get("schemaType") == "PROTOBUF":
        return text.strip().splitlines()
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False).splitlines()
    except ValueError:
        return text.splitlines()
