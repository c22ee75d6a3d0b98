"""The command line without brokers: help, exit codes, errors of one line, and imports."""

import json
import re
import subprocess
import sys
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import typer

from ottla_operator.cli.app import COMMANDS, run
from ottla_operator.cli.options import OutputFormat
from ottla_operator.cli.output import print_rows


def ottla(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs the command in a process of its own. `more`: environment variables."""
    environment = {"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin", "COLUMNS": "100", **more}
    return subprocess.run(
        [sys.executable, "-m", "ottla_operator.cli", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )


def test_help_names_every_command() -> None:
    message = ottla("--help").stdout
    assert all(f" {command} " in message for command in COMMANDS)


@pytest.mark.parametrize("command", [it for it in COMMANDS if it != "broker"])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        run([command, "--help"])
    assert end.value.code == 0
    assert f"usage: ottla {command}" in capsys.readouterr().out.lower()


def test_a_broker_has_help_in_a_process_of_its_own() -> None:
    done = ottla("broker", "--help")
    assert done.returncode == 0
    assert "usage: ottla broker" in done.stdout.lower()


@pytest.mark.parametrize("name", [it for it in COMMANDS if it != "broker"])
def test_help_of_options_has_no_names_of_the_source_code(name: str) -> None:
    module = import_module(f"ottla_operator.cli.{name}")
    commands = [typer.main.get_command(module.app)]
    for command in commands:
        commands += getattr(command, "commands", {}).values()
        for parameter in command.params:
            text = getattr(parameter, "help", None) or ""
            assert not [it for it in re.findall(r"\b[A-Z][a-z]+[A-Z]\w*", text) if it in vars(module)], text


def test_usage_of_the_kubectl_plugin_names_kubectl() -> None:
    script = (
        "import sys; sys.argv = ['/usr/local/bin/kubectl-ottla', 'topics', '--help']\n"
        "from ottla_operator.cli.main import main; main()"
    )
    assert "usage: kubectl ottla topics" in run_script(script, check=False).stdout.lower()
    scripts = {it.name: it.value for it in entry_points(group="console_scripts")}
    assert scripts["kubectl-ottla"] == scripts["ottla"]


def test_help_imports_no_command() -> None:
    script = (
        "import sys; sys.argv = ['ottla', '--help']; from ottla_operator.cli.main import main\n"
        "try: main()\nexcept SystemExit: print(sorted({'rich', 'jsonschema', 'yaml'} & set(sys.modules)))"
    )
    assert run_script(script, check=True).stdout.splitlines()[-1] == "[]"


def test_invalid_usage_exits_with_2() -> None:
    assert ottla("topics", "nonsense").returncode == 2
    assert ottla("produce", "t", "--compression", "zip").returncode == 2
    done = ottla("produce", "--lines", "-", "--key-field", "id")
    assert (done.returncode, "--lines and --key-field exclude each other" in done.stderr) == (2, True)


def test_invalid_file_exits_with_2_and_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "apiVersion: ottla.dev/v1alpha1\nkind: Cluster\nmetadata: {name: a}\nspec: {replica: 1}\n"
    )
    done = ottla("up", str(tmp_path))
    assert done.returncode == 2
    assert f"ottla: {tmp_path}/a.yaml:4: spec.replica: unknown field; did you mean 'replicas'?" in done.stderr
    assert "Traceback" not in done.stderr


CLUSTER = "apiVersion: ottla.dev/v1alpha1\nkind: Cluster\nmetadata: {name: a}\nspec: {replicas: 1}\n"


def test_folder_that_is_not_writable_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(CLUSTER)
    done = ottla("up", str(tmp_path), "--home", str(tmp_path / "a.yaml"))
    assert (done.returncode, done.stderr) == (1, f"ottla: {tmp_path}/a.yaml: File exists\n")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "a").write_text("where the cluster's folder should be")
    done = ottla("up", str(tmp_path / "a.yaml"), "--home", str(tmp_path / "state"))
    assert (done.returncode, done.stderr) == (1, f"ottla: {tmp_path}/state/a/brokers.json: Not a directory\n")


def run_script(script: str, *, check: bool) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
        check=check,
    )


def test_interrupt_during_imports_is_silent() -> None:
    script = (
        "import sys; sys.argv = ['ottla', 'topics', 'list']\n"
        "class Interrupted:\n    def find_spec(self, name, *_):\n        if name == 'typer': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\nfrom ottla_operator.cli.main import main; main()"
    )
    done = run_script(script, check=False)
    assert (done.returncode, done.stderr) == (130, "")


def test_unreachable_broker_exits_with_4_and_one_line() -> None:
    done = ottla("topics", "list", "--bootstrap", "127.0.0.1:1")
    assert done.returncode == 4
    assert len(done.stderr.splitlines()) == 1


def test_invalid_address_exits_with_2() -> None:
    done = ottla("topics", "list", OTTLA_BOOTSTRAP="nonsense")
    assert done.returncode == 2
    assert done.stderr == "ottla: 'nonsense' is not host:port\n"


def test_broker_is_started_without_importing_the_commands_libraries() -> None:
    script = (
        "import os, sys; os.execv = lambda *given: print(given[1][1:], sorted({'typer', 'rich', "
        "'msgspec', 'kio', 'asyncio'} & set(sys.modules)));"
        "sys.argv = ['ottla', 'broker', '--set', 'a=b']; from ottla_operator.cli.main import main; "
        "main.__globals__['os'].execv = os.execv\n"
        "try: main()\nexcept BaseException as end: print(type(end))"
    )
    done = run_script(script, check=True)
    assert done.stdout.splitlines()[0] == "['-m', 'ottla_broker', '--set', 'a=b'] []"


def test_json_rows_have_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"name": "a", "id": None, "isr": [1, 2]}]
    print_rows(rows, {"name": "NAME"}, OutputFormat.json)
    assert json.loads(capsys.readouterr().out) == rows
    print_rows(rows, {"name": "NAME", "isr": "ISR", "id": "ID"}, OutputFormat.table)
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [["NAME", "ISR", "ID"], ["a", "1,2", "-"]]


def test_row_in_a_pipe_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    rows: list[dict[str, object]] = [
        {"what": "word " * 50, "id": "x" * 200, "n": 1},
        {"what": "a", "id": "b", "n": None},
    ]
    print_rows(rows, {"n": "N", "id": "ID", "what": "WHAT"}, OutputFormat.table)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[1].split() == ["1", "x" * 200, *["word"] * 50]
    assert not any(line.endswith(" ") for line in lines)


def test_pipeline_diff_names_changes_and_how_to_apply_them(tmp_path: Path) -> None:
    spec = {
        "clusterRef": {"name": "c"},
        "sources": {"s": {"topic": "t", "format": {"type": "raw"}}},
        "sinks": [{"from": "s", "console": {}}],
    }
    versions = {"old": spec, "same": spec, "new": {**spec, "checkpoint": {"path": "/new"}}}
    for name, version in versions.items():
        pipeline = {"apiVersion": "ottla.dev/v1alpha1", "kind": "Pipeline", "metadata": {"name": "p"}, "spec": version}
        (tmp_path / f"{name}.yaml").write_text(json.dumps(pipeline))
    old, same, new = (str(tmp_path / f"{name}.yaml") for name in versions)
    unchanged = ottla("pipeline", "diff", old, same)
    assert (unchanged.returncode, unchanged.stdout) == (0, "no differences\n")
    found = ottla("pipeline", "diff", old, new, "-o", "json")
    assert found.returncode == 1
    answer = json.loads(found.stdout)
    assert [(it["field"], it["checkpoint"]) for it in answer["changes"]] == [("checkpoint", "new")]
    assert "suspend the old version" in answer["plan"][0]
    missing = ottla("pipeline", "diff", old, new, "--name", "q")
    assert (missing.returncode, missing.stderr) == (3, f"ottla: {old}: there is no Pipeline q\n")
