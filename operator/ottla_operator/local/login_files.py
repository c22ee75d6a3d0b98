"""The passwords of a cluster's brokers and of `ottla up` itself: files that only their owner can
read.
"""

from pathlib import Path
from typing import Final

from ottla_operator.local.documents import InvalidFiles
from ottla_operator.local.home import read_texts, write_private_files
from ottla_operator.plan.inter_broker_login import LOGIN_MODULE, LOGIN_VERSION
from ottla_operator.plan.password_rotation import CLIENT_PROPERTIES, ROTATION, LoginSecret, UnusableLogin

WRITTEN_AFTER_PASSWORDS: Final = {ROTATION, LOGIN_MODULE, LOGIN_VERSION, CLIENT_PROPERTIES}


def read_login(folder: Path) -> LoginSecret | None:
    """None if there are no passwords, or only a part of the first ones, which no process has read.
    Raises InvalidFiles if passwords are missing or cannot be used: brokers that run have the former
    ones. `folder`: see `Home.login`.
    """
    advice = f"restore it, or stop the cluster's brokers and delete {folder}: then new passwords are generated"
    try:
        values = read_texts(folder)
    except UnicodeDecodeError as error:
        raise InvalidFiles([f"{folder}: a file is not text in UTF-8; {advice}"]) from error
    try:
        return LoginSecret.parse(values)
    except UnusableLogin as error:
        if not values.keys() & WRITTEN_AFTER_PASSWORDS:
            return None
        raise InvalidFiles([f"{folder / error.key}: {error.reason}; {advice}"]) from error


def ensure_login(folder: Path, due_rotation: str) -> LoginSecret:
    """The passwords, generated if there are none. New ones count as rotated for `due_rotation` (see
    `password_rotation.due_rotation`). Raises InvalidFiles.
    """
    found = read_login(folder) or LoginSecret.generate(due_rotation)
    write_login(folder, found)
    return found


def write_login(folder: Path, login: LoginSecret) -> None:
    values = login.to_values()
    write_private_files(folder, values)
    for outdated in read_texts(folder).keys() - values.keys():
        (folder / outdated).unlink()
