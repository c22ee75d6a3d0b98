"""Files of users under `ottla up`: a folder for the clients of each, readable by its owner alone,
and records of the users that have credentials, rules or quotas.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ottla_operator.local.home import PRIVATE, replace_file
from ottla_operator.plan.source_credentials import text_or_bytes
from ottla_operator.plan.user_records import UserRecord, parse_records
from ottla_operator.plan.user_secret import Contents

RECORDS: Final = "users.json"


def read_user_records(cluster: Path) -> dict[str, UserRecord]:
    """The records by the User's uid; empty if the file is missing or corrupt. `cluster`: the
    cluster's folder."""
    try:
        return parse_records(UserRecord, json.loads((cluster / RECORDS).read_text()))
    except (FileNotFoundError, ValueError):
        return {}


def write_user_records(cluster: Path, records: Mapping[str, UserRecord]) -> None:
    replace_file(cluster / RECORDS, json.dumps(records, indent=2), mode=PRIVATE)


def read_user_secret(folder: Path) -> dict[str, str | bytes]:
    """Content of the files by name; empty without the folder."""
    if not folder.is_dir():
        return {}
    return {it.name: text_or_bytes(it.read_bytes()) for it in folder.iterdir() if it.is_file()}


def write_user_secret(folder: Path, data: Contents) -> None:
    """Writes the files, the password last: a folder that was partly written has no password, so
    that it is set again. Deletes files that `data` lacks.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in sorted(data, key=lambda it: it == "password"):
        replace_file(folder / name, data[name], mode=PRIVATE)
    for outdated in set(read_user_secret(folder)) - data.keys():
        (folder / outdated).unlink()


def delete_user_secret(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
