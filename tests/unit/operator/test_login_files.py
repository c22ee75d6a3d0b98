"""The passwords of brokers under `ottla up`: generated once, and never replaced because a file of
theirs cannot be used.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from ottla_operator.local.documents import InvalidFiles
from ottla_operator.local.home import Home, read_texts
from ottla_operator.local.live_view import LiveView
from ottla_operator.local.login_files import ensure_login, read_login
from ottla_operator.local.up import UpRunner
from tests.unit.operator import samples


def test_passwords_are_generated_once(tmp_path: Path) -> None:
    folder = tmp_path / "login"
    assert read_login(folder) is None
    generated = ensure_login(folder, "")
    assert ensure_login(folder, "") == read_login(folder) == generated


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda it: (it / "broker.password").unlink(), "broker.password: it is missing; a password has at least 24"),
        (lambda it: (it / "operator.password").write_text("x"), "operator.password: it has 1 character; a password"),
        (lambda it: (it / "rotation").write_text("?"), "rotation: it is not the state of a rotation"),
        (lambda it: (it / "operator.password").write_bytes(b"\xff" * 40), "login: a file is not text in UTF-8"),
    ],
)
def test_passwords_that_cannot_be_used_are_an_error_and_stay(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    folder = tmp_path / "login"
    ensure_login(folder, "")
    damage(folder)
    before = {it: it.read_bytes() for it in folder.iterdir()}
    with pytest.raises(InvalidFiles, match=message) as raised:
        ensure_login(folder, "")
    assert f"or stop the cluster's brokers and delete {folder}" in str(raised.value)
    assert {it: it.read_bytes() for it in folder.iterdir()} == before


def test_first_passwords_that_were_partly_written_are_generated_again(tmp_path: Path) -> None:
    folder = tmp_path / "login"
    generated = ensure_login(folder, "")
    for name in read_texts(folder).keys() - {"broker.password"}:
        (folder / name).unlink()
    assert ensure_login(folder, "") not in (None, generated)


def test_up_does_not_start_with_passwords_that_cannot_be_used(tmp_path: Path) -> None:
    home, file = Home(tmp_path / "home"), tmp_path / "cluster.yaml"
    file.write_text(yaml.safe_dump(samples.cluster()))
    ensure_login(home.login("demo"), "")
    up = UpRunner([file], home, LiveView(say=lambda text, kind: None))
    up.read_files()
    (home.login("demo") / "operator.password").write_text("")
    with pytest.raises(InvalidFiles, match=r"operator\.password: it has 0 characters"):
        up.read_files()
