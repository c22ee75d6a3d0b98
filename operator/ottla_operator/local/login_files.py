"""The passwords of a cluster's brokers and of `ottla up` itself: files that only their owner can
read.
"""

from pathlib import Path
from typing import Final

from ottla_operator.local.home import replace_file
from ottla_operator.plan.inter_broker_login import LoginPasswords

_PRIVATE: Final = 0o600


def read_passwords(folder: Path) -> LoginPasswords | None:
    """None without them. `folder`: see `Home.login`."""
    if not folder.is_dir():
        return None
    return LoginPasswords.parse({it.name: it.read_text() for it in folder.iterdir() if it.is_file()})


def ensure_passwords(folder: Path) -> LoginPasswords:
    """Generates the passwords when there are none."""
    if (found := read_passwords(folder)) is None:
        found = LoginPasswords.generate()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, value in found.to_values().items():
        if not (folder / name).exists() or (folder / name).read_text() != value:
            replace_file(folder / name, value, mode=_PRIVATE)
    return found
