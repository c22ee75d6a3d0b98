"""Random schemas, schemas similar to them, and random values, from one random generator."""

import copy
import json
from random import Random
from typing import Any

NAMES = ("a", "b", "c")


# -- Avro


class AvroSchemas:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._count = 0

    def new_schema(self, depth: int = 0) -> Any:
        """`depth`: number of schemas that enclose this one. Names of types are unique."""
        random = self._random
        kind = random.choice(("primitive", "primitive", "enum", "fixed", "array", "map", "union", "record", "record"))
        if depth > 2:
            kind = "primitive"
        self._count += 1
        name = f"{kind}{self._count}"
        match kind:
            case "enum":
                return {"type": "enum", "name": name, "symbols": random.sample(["X", "Y", "Z"], random.randint(1, 3))}
            case "fixed":
                return {"type": "fixed", "name": name, "size": random.randint(1, 3)}
            case "array":
                return {"type": "array", "items": self.new_schema(depth + 1)}
            case "map":
                return {"type": "map", "values": self.new_schema(depth + 1)}
            case "union":
                return random.sample(["null", "int", "string", "boolean", "double"], random.randint(1, 3))
            case "record":
                fields = [{"name": it, "type": self.new_schema(depth + 1)} for it in random.sample(NAMES, 2)]
                return {"type": "record", "name": name, "fields": fields}
        return random.choice(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))

    def similar_schema(self, schema: Any) -> Any:
        """A copy with a few changes or none, compatible or not; sometimes an unrelated schema."""
        random, schema = self._random, copy.deepcopy(schema)
        if random.random() < 0.1:
            return self.new_schema(2)
        if isinstance(schema, list):
            extra = [one for one in ("null", "long", "string") if one not in schema]
            return schema + extra[:1] if random.random() < 0.5 else schema[:1]
        if isinstance(schema, str):
            wider = {"int": "long", "long": "double", "float": "double", "string": "bytes", "bytes": "string"}
            return wider.get(schema, schema) if random.random() < 0.4 else schema
        match schema["type"]:
            case "enum":
                if random.random() < 0.5:
                    schema["symbols"] = random.sample(["X", "Y", "Z"], random.randint(1, 3))
                if random.random() < 0.3:
                    schema["default"] = schema["symbols"][0]
            case "fixed" if random.random() < 0.3:
                schema["size"] = random.randint(1, 3)
            case "array":
                schema["items"] = self.similar_schema(schema["items"])
            case "map":
                schema["values"] = self.similar_schema(schema["values"])
            case "record":
                self._change_record(schema)
        return schema

    def _change_record(self, schema: Any) -> None:
        random = self._random
        schema["fields"] = [field | {"type": self.similar_schema(field["type"])} for field in schema["fields"]]
        if random.random() < 0.3:
            schema["fields"].pop()
        if random.random() < 0.3:
            schema["fields"].append({"name": "new", "type": "int", **({"default": 0} if random.random() < 0.6 else {})})
        if random.random() < 0.2:
            schema["name"] = f"Other{schema['name']}"
            if random.random() < 0.5:
                schema["aliases"] = [schema["name"].removeprefix("Other")]

    def new_value(self, schema: Any) -> Any:
        """A value that the schema describes."""
        random = self._random
        if isinstance(schema, list):
            return self.new_value(random.choice(schema))
        kind = schema if isinstance(schema, str) else schema["type"]
        match kind:
            case "null":
                return None
            case "boolean":
                return random.random() < 0.5
            case "int" | "long":
                return random.randint(-5, 5)
            case "float" | "double":
                return float(random.randint(-5, 5))
            case "bytes":
                return b"bytes"
            case "string":
                return "text"
            case "enum":
                return random.choice(schema["symbols"])
            case "fixed":
                return b"x" * schema["size"]
            case "array":
                return [self.new_value(schema["items"]) for _ in range(random.randint(1, 2))]
            case "map":
                return {"key": self.new_value(schema["values"])}
        return {field["name"]: self.new_value(field["type"]) for field in schema["fields"]}


# -- JSON Schema


class JsonSchemas:
    def __init__(self, random: Random) -> None:
        self._random = random

    def new_schema(self, depth: int = 0) -> Any:
        random = self._random
        match random.randrange(9 if depth < 2 else 6):
            case 0:
                return {"type": "string", **({"maxLength": random.randrange(1, 4)} if random.random() < 0.5 else {})}
            case 1:
                bounds = {"minimum": random.randrange(4), "maximum": random.randrange(4, 8)}
                return {"type": "integer", **{key: at for key, at in bounds.items() if random.random() < 0.5}}
            case 2:
                return {"type": "number"}
            case 3:
                return {"enum": random.sample(["a", 1, None, True, 2], random.randint(1, 3))}
            case 4:
                return {"type": random.sample(["string", "integer", "null", "boolean", "number"], 2)}
            case 5:
                return random.choice((True, {}, {"const": 1}))
            case 6:
                return {"type": "array", "items": self.new_schema(depth + 1)}
            case 7:
                return self._object(depth)
        return {random.choice(("anyOf", "oneOf", "allOf")): [self.new_schema(depth + 1), self.new_schema(depth + 1)]}

    def _object(self, depth: int) -> Any:
        random = self._random
        properties = {name: self.new_schema(depth + 1) for name in random.sample(NAMES, random.randrange(3))}
        found: dict[str, Any] = {"type": "object", "properties": properties}
        if random.random() < 0.5:
            found["additionalProperties"] = random.choice((False, True, {"type": "string"}))
        if properties and random.random() < 0.5:
            found["required"] = [random.choice(list(properties))]
        return found

    def similar_schema(self, schema: Any) -> Any:
        """A copy with a few changes or none, compatible or not; sometimes an unrelated schema."""
        random = self._random
        schema = json.loads(json.dumps(schema))
        other = self.new_schema()
        if isinstance(schema, dict) and isinstance(other, dict) and random.random() < 0.6:
            schema |= {key: value for key, value in other.items() if random.random() < 0.4}
        return schema if random.random() < 0.7 else self.new_schema()

    def new_value(self, depth: int = 0) -> Any:
        """Any value, whether a schema accepts it or not."""
        random = self._random
        match random.randrange(8 if depth < 2 else 6):
            case 0 | 1:
                return random.choice(("", "a", "abcd"))
            case 2 | 3:
                return random.choice((0, 1, 2, 3, 5, 9, 1.5))
            case 4:
                return None
            case 5:
                return random.random() < 0.5
            case 6:
                return [self.new_value(depth + 1) for _ in range(random.randrange(3))]
        return {name: self.new_value(depth + 1) for name in random.sample(NAMES, random.randrange(3))}
