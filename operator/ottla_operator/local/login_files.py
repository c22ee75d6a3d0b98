"""The passwords of a cluster's brokers and of `ottla up` itself: files that only their owner can
read.
"""

from pathlib import Path

from ottla_operator.local.home import read_texts, write_private_files
from ottla_operator.plan.password_rotation import LoginSecret


def read_login(folder: Path) -> LoginSecret | None:
    """None if passwords are missing or cannot be read. `folder`: see `Home.login`."""
    return LoginSecret.parse(read_texts(folder))


def ensure_login(folder: Path, due_rotation: str) -> LoginSecret:
    """The passwords, generated if there are none that can be read. New ones count as rotated for
    `due_rotation` (see `password_rotation.due_rotation`).
    """
    found = read_login(folder) or LoginSecret.generate(due_rotation)
    write_login(folder, found)
    return found


def write_login(folder: Path, login: LoginSecret) -> None:
    values = login.to_values()
    write_private_files(folder, values)
    for outdated in read_texts(folder).keys() - values.keys():
        (folder / outdated).unlink()
