"""`ottla schema` with the registry of a broker."""

import json
from pathlib import Path

from tests.ottla_command import run_ottla

USER = {"type": "record", "name": "User", "fields": [{"name": "name", "type": "string"}]}
AGE = {"name": "age", "type": "int"}


def ottla_schema(url: str, *arguments: str) -> tuple[int, str]:
    done = run_ottla("schema", *arguments, "--registry", url)
    return done.returncode, done.stdout + done.stderr


def test_a_schema_is_registered_compared_and_checked(registry: str, tmp_path: Path) -> None:
    old, new = tmp_path / "user.avsc", tmp_path / "user2.avsc"
    old.write_text(json.dumps(USER))
    new.write_text(json.dumps(USER | {"fields": [*USER["fields"], AGE]}))
    assert ottla_schema(registry, "list") == (0, "SUBJECT  VERSION  ID  TYPE\n")
    assert ottla_schema(registry, "get", "users-value")[0] == 3
    assert ottla_schema(registry, "register", "users-value", str(old)) == (0, "users-value has the schema with id 1\n")
    assert ottla_schema(registry, "diff", "users-value", str(old)) == (0, "")
    code, text = ottla_schema(registry, "diff", "users-value", str(new))
    assert code == 1 and '+      "name": "age",' in text
    code, text = ottla_schema(registry, "check", "users-value", str(new))
    assert code == 1 and "BACKWARD" in text and "READER_FIELD_MISSING_DEFAULT_VALUE" in text and "age" in text
    assert ottla_schema(registry, "register", "users-value", str(new))[0] == 1
    code, text = ottla_schema(registry, "register", "users-value", str(new), "--compatibility", "FORWARD")
    assert (code, text) == (0, "users-value has the schema with id 2\n")
    code, text = ottla_schema(registry, "list", "-o", "json")
    assert code == 0 and [(row["subject"], row["version"]) for row in json.loads(text)] == [("users-value", 2)]
    assert json.loads(ottla_schema(registry, "get", "users-value", "--version", "1")[1]) == USER


def test_errors_have_their_exit_codes(registry: str, tmp_path: Path) -> None:
    odd = tmp_path / "user.txt"
    odd.write_text("{}")
    code, text = ottla_schema(registry, "register", "users-value", str(odd))
    assert code == 2 and "--type" in text
    assert ottla_schema(registry, "register", "x", str(odd), "--type", "AVRO")[0] == 1
    assert ottla_schema("http://127.0.0.1:1", "list")[0] == 4
