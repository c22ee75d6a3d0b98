"""Compatibility of JSON Schemas: a reader's schema must accept every value that a writer's accepts.

Each keyword of the reader has to be met by the writer's. What cannot be decided by comparing
keywords, such as a changed `not` or `pattern`, counts as incompatible. If the reader declares a
property that an open writer does not declare, the writer's property may have any value. So adding a
property is incompatible unless the writer is closed (`additionalProperties: false`), as in
Confluent's registry.
"""

import json
from typing import Any, Final, NamedTuple

import jsonschema_rs

from ottla_broker.registry.languages.json_keywords import (
    Incompatibilities,
    accepted_types,
    add_bounds_of_values,
    compare_bounds,
    compare_numbers,
    compare_types,
    compare_values,
    find_changed_keywords,
    has_combination,
    incompatibility,
    merge_keyword,
    tuple_items,
    types_of,
)
from ottla_broker.registry.languages.json_schema import ASSERTIONS, JsonDocument, with_draft

MAX_REPORTED: Final = 100
MAX_MERGED: Final = 64
"""The largest number of subschemas of one allOf that are merged; the others are left out."""

Containment: Final = jsonschema_rs.canonical.Containment


class Place(NamedTuple):
    """Where two subschemas are compared. `path`: that of the reader's, for the descriptions.
    `of_reader`, `of_writer`: the documents in which their `$ref`s are looked up.
    """

    path: str
    of_reader: JsonDocument
    of_writer: JsonDocument

    def below(self, path: str) -> "Place":
        return self._replace(path=f"{self.path}/{path}")


class JsonComparison:
    """Compares each pair of subschemas once; a pair in progress counts as compatible."""

    def __init__(self, reader: JsonDocument, writer: JsonDocument) -> None:
        self._reader, self._writer = reader, writer
        self._decided: dict[tuple[int, int], Incompatibilities] = {}
        self._kept: list[Any] = []  # merged schemas, whose ids in `_decided` must not be reused

    def find_incompatibilities(self) -> Incompatibilities:
        """The reasons why the reader refuses what the writer accepts; empty when it refuses
        nothing.
        """
        decided = find_containment(self._reader, self._writer)
        if decided == Containment.YES:
            return []
        found = self.compare(self._reader.root, self._writer.root, Place("#", self._reader, self._writer))
        if not found and decided == Containment.NO and '"oneOf"' in json.dumps(self._reader.root):
            found = [incompatibility("SUM_TYPE_CHANGED", "Several branches of a oneOf accept the same value", "#")]
        return found

    def compare(self, reader: Any, writer: Any, place: Place) -> Incompatibilities:
        """The reasons why `reader` refuses what `writer` accepts."""
        reader, of_reader = place.of_reader.resolve(reader)
        writer, of_writer = place.of_writer.resolve(writer)
        pair = id(reader), id(writer)
        if pair in self._decided:
            return self._decided[pair]
        self._kept += [reader, writer]
        self._decided[pair] = []
        place = Place(place.path, of_reader, of_writer)
        found = self._decided[pair] = self._compare(reader, writer, place)[:MAX_REPORTED]
        return found

    def _compare(self, reader: Any, writer: Any, place: Place) -> Incompatibilities:
        if writer is False or reader is True or not (isinstance(reader, dict) and reader.keys() & ASSERTIONS):
            if reader is False and writer is not False:
                return [incompatibility("SCHEMA_REMOVED", "The new schema accepts nothing", place.path)]
            return []
        if writer is True:
            writer = {}
        if "allOf" in writer:
            writer = self._merge(writer, place.of_writer)
        for branches in ("anyOf", "oneOf"):
            if branches in writer:
                return self._compare_branches(branches, reader, writer, place)
        types = types_of(writer)
        if len(types) > 1 and "enum" not in writer and "const" not in writer and has_combination(reader):
            found = []
            for one in types:
                found += self._compare_combinations(reader, writer | {"type": one}, place)
            return found
        return self._compare_combinations(reader, writer, place)

    def _compare_branches(self, keyword: str, reader: Any, writer: Any, place: Place) -> Incompatibilities:
        """The reader must accept every branch of the writer's anyOf or oneOf."""
        others = {name: value for name, value in writer.items() if name != keyword}
        found = []
        for branch in writer[keyword]:
            branch, of_branch = place.of_writer.resolve(branch)
            if branch is False:
                continue
            of_both = branch if not others.keys() & ASSERTIONS else self._merge({"allOf": [others, branch]}, of_branch)
            found += self.compare(reader, of_both, place._replace(of_writer=of_branch))
        return found

    def _compare_combinations(self, reader: Any, writer: Any, place: Place) -> Incompatibilities:
        """The reader must accept the writer in its allOf, anyOf and oneOf, and in its other
        keywords.
        """
        found = []
        for number, part in enumerate(reader.get("allOf", ())):
            found += self.compare(part, writer, place.below(f"allOf/{number}"))
        for keyword in ("anyOf", "oneOf"):
            branches = reader.get(keyword)
            if branches is not None and not self._accepts_one(branches, writer, place.below(keyword)):
                kind = "SUM_TYPE_NARROWED"
                found.append(
                    incompatibility(
                        kind, f"No branch of {keyword} in the new schema accepts the old schema", place.path
                    )
                )
        return found + self._compare_keywords(reader, writer, place)

    def _accepts_one(self, branches: Any, writer: Any, place: Place) -> bool:
        for number, branch in enumerate(branches):
            before = dict(self._decided)
            if not self.compare(branch, writer, place.below(str(number))):
                return True
            self._decided = before  # what was found compatible may have rested on this branch
        return False

    def _merge(self, writer: dict[str, Any], of_writer: JsonDocument) -> dict[str, Any]:
        """One schema that accepts at least the values that all parts of the writer's allOf accept.
        A keyword that cannot be merged is left out, and the schema accepts more.
        """
        merged: dict[str, Any] = {name: value for name, value in writer.items() if name != "allOf"}
        waiting = [(part, of_writer) for part in writer["allOf"]]
        for _ in range(MAX_MERGED):
            if not waiting:
                break
            part, document = waiting.pop(0)
            part, document = document.resolve(part)
            if not isinstance(part, dict):
                continue
            waiting += [(one, document) for one in part.get("allOf", ())]
            if document is not of_writer and "$ref" in str(part):
                part = {name: value for name, value in part.items() if name in ("type", "enum", "const", "required")}
            for name, value in part.items():
                if name != "allOf":
                    merged[name] = merge_keyword(name, merged[name], value) if name in merged else value
        return merged

    # -- keywords

    def _compare_keywords(self, reader: Any, writer: Any, place: Place) -> Incompatibilities:
        found = compare_values(reader, writer, place.path) + compare_types(reader, writer, place.path)
        if found:
            return found
        types = accepted_types(writer)
        writer = add_bounds_of_values(writer)
        if "number" in types or "integer" in types:
            found += compare_numbers(reader, writer, place.path)
        if "string" in types:
            found += compare_bounds(reader, writer, place.path, "Length", "string")
        if "array" in types:
            found += compare_bounds(reader, writer, place.path, "Items", "array")
            found += self._compare_arrays(reader, writer, place)
        if "object" in types:
            found += compare_bounds(reader, writer, place.path, "Properties", "object")
            found += self._compare_objects(reader, writer, place)
        return found + list(find_changed_keywords(reader, writer, types, place.path))

    def _compare_arrays(self, reader: Any, writer: Any, place: Place) -> Incompatibilities:
        found = []
        if reader.get("uniqueItems") and not writer.get("uniqueItems"):
            found.append(incompatibility("UNIQUE_ITEMS_ADDED", "The new schema requires unique items", place.path))
        read, written = tuple_items(reader), tuple_items(writer)
        for number in range(max(len(read[0]), len(written[0]))):
            one = read[0][number] if number < len(read[0]) else read[1]
            other = written[0][number] if number < len(written[0]) else written[1]
            found += self.compare(one, other, place.below(f"items/{number}"))
        return found + self.compare(read[1], written[1], place.below("items"))

    def _compare_objects(self, reader: Any, writer: Any, place: Place) -> Incompatibilities:
        found: Incompatibilities = []
        read, written = reader.get("properties") or {}, writer.get("properties") or {}
        rest, rest_written = reader.get("additionalProperties", True), writer.get("additionalProperties", True)
        if (patterns := reader.get("patternProperties")) and patterns != writer.get("patternProperties"):
            return [
                incompatibility(
                    "PATTERN_PROPERTIES_CHANGED", "patternProperties differ from the old schema's", place.path
                )
            ]
        for name in dict.fromkeys((*read, *written)):
            one, other = read.get(name, rest), written.get(name, rest_written)
            where = place.below(f"properties/{name}")
            problems = self.compare(one, other, where)
            if problems and name not in written:
                problems = [
                    incompatibility(
                        "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
                        f"The property '{name}' is added, and the old schema accepts any value there",
                        where.path,
                        name,
                    )
                ]
            elif problems and name not in read:
                problems = [
                    incompatibility(
                        "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL",
                        f"The property '{name}' is removed, and the new schema does not accept its values",
                        where.path,
                        name,
                    )
                ]
            found += problems
        for name in reader.get("required", ()):
            declared = read.get(name)
            if name not in writer.get("required", ()) and not (isinstance(declared, dict) and "default" in declared):
                text = f"The property '{name}' is required and is not in the old schema"
                found.append(incompatibility("REQUIRED_ATTRIBUTE_ADDED", text, f"{place.path}/required/{name}", name))
        if self.compare(rest, rest_written, place.below("additionalProperties")):
            kind = "ADDITIONAL_PROPERTIES_REMOVED" if rest is False else "ADDITIONAL_PROPERTIES_NARROWED"
            found.append(
                incompatibility(kind, "The new schema refuses additional properties of the old one", place.path)
            )
        return found


def find_containment(reader: JsonDocument, writer: JsonDocument) -> Any:
    """YES if the reader accepts every value of the writer, NO if it does not, UNKNOWN if
    jsonschema-rs can prove neither.
    """
    try:
        return canonical_form(reader).covers(canonical_form(writer))
    except (ValueError, TypeError, LookupError, jsonschema_rs.ReferencingError, jsonschema_rs.ValidationError):
        return Containment.UNKNOWN


def canonical_form(document: JsonDocument) -> Any:
    root = with_draft(document.root if isinstance(document.root, dict) else {"allOf": [document.root]})
    return jsonschema_rs.canonicalize(root, registry=document.registry(), base_uri=document.address, offline=True)
