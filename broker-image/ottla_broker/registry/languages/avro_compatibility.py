"""Compatibility of Avro schemas: a reader's schema must decode what a writer's has encoded (Avro's
schema resolution).

Rules: the Avro specification, "Schema Resolution". Inside of a recursive type, the pair that is
already being compared counts as compatible: the other parts of the type decide.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ottla_broker.registry.languages.avro_schema import NAMED, PRIMITIVES, full_name, load_json, namespace_of
from ottla_broker.registry.languages.incompatibility import Incompatibility
from ottla_broker.registry.schema import NamedSchema

PROMOTIONS: Final[Mapping[str, frozenset[str]]] = {
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),
    "double": frozenset({"int", "long", "float"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}
"""Reader's type → writer's types that are promoted to it."""
MAX_REPORTED: Final = 100
"""The largest number of incompatibilities that are reported for one pair of types."""


@dataclass(eq=False, slots=True)
class AvroType:
    """A type whose references to named types are resolved. `kind`: a primitive type, a kind of
    named type, "array", "map" or "union". `name`: the full name of a named type. `fields`: by name,
    in their order. `branches`: those of a union; of an array or map the one type of its items or
    values.
    """

    kind: str
    name: str = ""
    aliases: frozenset[str] = frozenset()
    fields: dict[str, "AvroField"] = field(default_factory=dict)
    branches: list["AvroType"] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    has_default: bool = False
    size: int = 0

    def __str__(self) -> str:
        return self.name or self.kind


@dataclass(eq=False, slots=True)
class AvroField:
    name: str
    type: AvroType
    aliases: tuple[str, ...]
    has_default: bool


def parse_avro(text: str, references: Sequence[NamedSchema] = ()) -> AvroType:
    """Parses an Avro schema, which must be valid (`read_avro`)."""
    types: dict[str, AvroType] = {}
    for reference in references:
        _resolve(load_json(reference.text), "", types)
    return _resolve(load_json(text), "", types)


def _resolve(raw: Any, namespace: str, types: dict[str, AvroType]) -> AvroType:
    if isinstance(raw, list):
        return AvroType("union", branches=[_resolve(branch, namespace, types) for branch in raw])
    if isinstance(raw, str):
        return AvroType(raw) if raw in PRIMITIVES else types[full_name(raw, namespace)]
    kind = raw["type"]
    if kind in ("array", "map"):
        inner = raw["items" if kind == "array" else "values"]
        return AvroType(kind, branches=[_resolve(inner, namespace, types)])
    if kind in NAMED:
        return _resolve_named(raw, "record" if kind == "error" else kind, namespace, types)
    return _resolve(kind, namespace, types)


def _resolve_named(raw: dict[str, Any], kind: str, enclosing: str, types: dict[str, AvroType]) -> AvroType:
    namespace = namespace_of(raw, enclosing)
    name = full_name(raw["name"], namespace)
    found = AvroType(
        kind,
        name,
        frozenset(full_name(alias, namespace) for alias in raw.get("aliases") or ()),
        symbols=tuple(raw.get("symbols", ())),
        has_default="default" in raw,
        size=raw.get("size", 0),
    )
    types[name] = found
    for one in raw.get("fields", ()):
        of_field = _resolve(one["type"], namespace, types)
        found.fields[one["name"]] = AvroField(one["name"], of_field, tuple(one.get("aliases") or ()), "default" in one)
    return found


def find_avro_incompatibilities(reader: AvroType, writer: AvroType) -> list[Incompatibility]:
    """The reasons why the reader cannot decode the writer's data; empty when it can."""
    return _Comparison().compare(reader, writer, "")


class _Comparison:
    """Compares each pair of types once: types that refer to each other would otherwise be compared
    exponentially often. A pair that is in progress counts as compatible.
    """

    def __init__(self) -> None:
        self._decided: dict[tuple[int, int], list[Incompatibility]] = {}

    def compare(self, reader: AvroType, writer: AvroType, path: str) -> list[Incompatibility]:
        """`path`: of the pair in the reader's schema, for the descriptions."""
        pair = id(reader), id(writer)
        if pair in self._decided:
            return self._decided[pair]
        self._decided[pair] = []
        found = self._decided[pair] = self._compare(reader, writer, path)[:MAX_REPORTED]
        return found

    def _compare(self, reader: AvroType, writer: AvroType, path: str) -> list[Incompatibility]:
        if writer.kind == "union":  # each branch may have been written
            found = []
            for branch in writer.branches:
                found += self.compare(reader, branch, path)
            return found
        if reader.kind == "union":
            return self._compare_with_union(reader, writer, path)
        if reader.kind != writer.kind:
            if writer.kind in PROMOTIONS.get(reader.kind, ()):
                return []
            return [
                Incompatibility(
                    "TYPE_MISMATCH",
                    f"The type (path '{path or '/'}') of a field in the new schema does not match with the old schema",
                    path or "/",
                    f"reader type: {reader} not compatible with writer type: {writer}",
                )
            ]
        match reader.kind:
            case "array":
                return self.compare(reader.branches[0], writer.branches[0], f"{path}/items")
            case "map":
                return self.compare(reader.branches[0], writer.branches[0], f"{path}/values")
            case "fixed":
                return self._compare_names(reader, writer, path) or self._compare_sizes(reader, writer, path)
            case "enum":
                return self._compare_names(reader, writer, path) or self._compare_symbols(reader, writer, path)
            case "record":
                return self._compare_names(reader, writer, path) or self._compare_fields(reader, writer, path)
        return []

    def _compare_with_union(self, reader: AvroType, writer: AvroType, path: str) -> list[Incompatibility]:
        for at, branch in enumerate(reader.branches):
            before = dict(self._decided)
            if not self.compare(branch, writer, f"{path}/{at}"):
                return []
            self._decided = before  # what was found compatible may have rested on this branch
        return [
            Incompatibility(
                "MISSING_UNION_BRANCH",
                f"The new schema is missing a type inside a union field at path '{path or '/'}' in the old schema",
                path or "/",
                f"reader union lacking writer type: {writer}",
            )
        ]

    def _compare_names(self, reader: AvroType, writer: AvroType, path: str) -> list[Incompatibility]:
        """Unqualified names are compared, as Avro's libraries do."""
        if reader.name.rpartition(".")[2] == writer.name.rpartition(".")[2] or writer.name in reader.aliases:
            return []
        return [
            Incompatibility(
                "NAME_MISMATCH",
                f"The name of the schema has changed (path '{path}/name')",
                f"{path}/name",
                f"expected: {writer.name}",
            )
        ]

    def _compare_sizes(self, reader: AvroType, writer: AvroType, path: str) -> list[Incompatibility]:
        if reader.size == writer.size:
            return []
        return [
            Incompatibility(
                "FIXED_SIZE_MISMATCH",
                f"The size of FIXED type field at path '{path}/size' in the new schema does not match with the old "
                "schema",
                f"{path}/size",
                f"expected: {writer.size}, found: {reader.size}",
            )
        ]

    def _compare_symbols(self, reader: AvroType, writer: AvroType, path: str) -> list[Incompatibility]:
        missing = [symbol for symbol in writer.symbols if symbol not in reader.symbols]
        if not missing or reader.has_default:
            return []
        return [
            Incompatibility(
                "MISSING_ENUM_SYMBOLS",
                f"The new schema is missing enum symbols '[{', '.join(missing)}]' at path '{path}/symbols' in the old "
                "schema",
                f"{path}/symbols",
                f"[{', '.join(missing)}]",
            )
        ]

    def _compare_fields(self, reader: AvroType, writer: AvroType, path: str) -> list[Incompatibility]:
        found = []
        for at, one in enumerate(reader.fields.values()):
            written = next((writer.fields[name] for name in (one.name, *one.aliases) if name in writer.fields), None)
            if written is not None:
                found += self.compare(one.type, written.type, f"{path}/fields/{at}/type")
            elif not one.has_default and not (one.type.kind == "enum" and one.type.has_default):
                found.append(
                    Incompatibility(
                        "READER_FIELD_MISSING_DEFAULT_VALUE",
                        f"The field '{one.name}' at path '{path}/fields/{at}' in the new schema has no default value "
                        "and is missing in the old schema",
                        f"{path}/fields/{at}",
                        one.name,
                    )
                )
        return found
