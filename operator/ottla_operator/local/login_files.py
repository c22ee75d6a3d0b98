"""The passwords of a cluster's brokers and of `ottla up` itself: files that only their owner can
read.
"""

from pathlib import Path
from typing import Final

from ottla_operator.local.home import replace_file
from ottla_operator.plan.password_rotation import LoginSecret

_PRIVATE: Final = 0o600


def read_login(folder: Path) -> LoginSecret | None:
    """None without passwords. `folder`: see `Home.login`."""
    if not folder.is_dir():
        return None
    return LoginSecret.parse({it.name: it.read_text() for it in folder.iterdir() if it.is_file()})


def ensure_login(folder: Path, due_rotation: str) -> LoginSecret:
    """Generates the passwords when there are none, which then need no rotation for
    `due_rotation`.
    """
    found = read_login(folder) or LoginSecret.generate(due_rotation)
    write_login(folder, found)
    return found


def write_login(folder: Path, login: LoginSecret) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    values = login.to_values()
    for name, value in values.items():
        if not (folder / name).exists() or (folder / name).read_text() != value:
            replace_file(folder / name, value, mode=_PRIVATE)
    for file in folder.iterdir():
        if file.is_file() and file.name not in values:
            file.unlink()
