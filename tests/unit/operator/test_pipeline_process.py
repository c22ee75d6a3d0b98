"""A pipeline's process: its progress events in the live view, and its state."""

import json
from pathlib import Path
from typing import Any

import pytest

from ottla_operator.local import pipelines
from ottla_operator.local.documents import Document
from ottla_operator.local.home import Home
from ottla_operator.local.live_view import LiveView, State
from ottla_operator.local.pipelines import PipelineProcess, PipelineProcesses, ProcessConnection
from ottla_operator.local.status_printer import locate_error
from ottla_operator.local.supervisor import ProcessStatus
from ottla_operator.plan.backoff import PIPELINE_RESTARTS
from ottla_operator.plan.source_credentials import ObservedSecret
from ottla_operator.reconcile.platform import Blocked
from ottla_operator.resources.pipeline import Pipeline
from tests.unit.operator import samples


def create_process(folder: Path, messages: list[str], **spec: Any) -> PipelineProcess:
    data = samples.pipeline(**spec)
    view = LiveView(say=lambda text, kind: messages.append(text))
    document = Document(folder / "hourly.yaml", data, {(): 1, ("spec",): 5, ("spec", "transforms", 1): 12})
    connection = ProcessConnection("127.0.0.1:9092")
    return PipelineProcess(Pipeline.parse(data), document, folder / "run", connection, view, lambda: None)


def record_progress(run: PipelineProcess, *lines: object) -> None:
    run.progress.parent.mkdir(exist_ok=True)
    with run.progress.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def test_batches_are_added_up(tmp_path: Path) -> None:
    messages: list[str] = []
    run = create_process(tmp_path, messages)
    record_progress(run, {"state": "starting"}, {"state": "running"})
    run.read_progress()
    assert run.runner is not None and run.runner.state == "running"
    batch = {
        "state": "running",
        "batch": 0,
        "rows": 10,
        "written": 0,
        "inputRowsPerSecond": 4.0,
        "processedRowsPerSecond": 5.0,
        "lag": {"records": 7, "seconds": 1.5},
    }
    record_progress(run, batch)
    run.read_progress()
    assert (run.row.rows_in, run.row.rows_out, run.row.lag_records, run.row.lag_seconds) == (10, 0, 7, 1.5)
    assert run.runner.input_rows_per_second == 4.0
    assert messages == []
    record_progress(run, {**batch, "batch": 1, "written": 3})
    run.read_progress()
    assert (run.row.rows_in, run.row.rows_out) == (20, 3)
    assert messages[0].startswith("first pipeline row after")


def test_time_of_the_last_batch_and_address_of_sparks_ui_stay(tmp_path: Path) -> None:
    run = create_process(tmp_path, [])
    record_progress(run, {"at": "1", "state": "starting", "sparkUi": "http://127.0.0.1:4040"})
    record_progress(run, {"at": "2", "state": "running", "batch": 0}, {"at": "3", "state": "stopping"})
    run.read_progress()
    assert run.runner is not None
    assert (run.runner.last_progress, run.runner.spark_ui) == ("2", "http://127.0.0.1:4040")


def test_an_incomplete_line_is_read_later(tmp_path: Path) -> None:
    run = create_process(tmp_path, [])
    run.progress.parent.mkdir()
    line = json.dumps({"state": "running", "batch": 0, "rows": 10}) + "\n"
    run.progress.write_text(line[:20])
    run.read_progress()
    assert run.row.rows_in == 0
    run.progress.write_text(line)
    run.read_progress()
    assert run.row.rows_in == 10


def test_a_new_progress_file_is_read_from_its_start(tmp_path: Path) -> None:
    run = create_process(tmp_path, [])
    record_progress(run, *[{"state": "running", "batch": it, "rows": 1} for it in range(5)])
    run.read_progress()
    run.progress.unlink()
    record_progress(run, {"state": "running", "batch": 5, "rows": 1})
    run.read_progress()
    assert run.row.rows_in == 6


def test_an_error_is_observed_in_the_runner_s_words(tmp_path: Path) -> None:
    run = create_process(tmp_path, [])
    record_progress(run, {"state": "failed", "error": "column `carier` does not exist"})
    run.supervisor.status = ProcessStatus(State.retrying, "exit code 1", None, 2.0, 1, 1)
    run.read_progress()
    observed = run.observe()
    assert observed.last_message == f"column `carier` does not exist (see {tmp_path / 'run' / 'output.log'})"
    assert (observed.restarts, observed.exit_code) == (1, 1)


def test_an_error_names_the_line_of_its_field(tmp_path: Path) -> None:
    document, file = create_process(tmp_path, []).document, tmp_path / "hourly.yaml"
    errors = ("spec.transforms[1] (x): no column `carier`", "spec.sources.a.watermark: no", "nothing")
    located = [locate_error(document, f"pipeline hourly: {error}", error) for error in errors]
    assert located == [
        f"{file}:12: pipeline hourly: spec.transforms[1] (x): no column `carier`",
        f"{file}:5: pipeline hourly: spec.sources.a.watermark: no",
        "pipeline hourly: nothing",
    ]


def test_a_failed_pipeline_is_restarted_with_a_kubelet_s_delays(tmp_path: Path) -> None:
    assert create_process(tmp_path, []).supervisor.delays == PIPELINE_RESTARTS


def test_a_changed_spec_changes_the_hash(tmp_path: Path) -> None:
    same, other = create_process(tmp_path, []).hash, create_process(tmp_path, [], trigger={"interval": "5s"}).hash
    assert create_process(tmp_path, []).hash == same != other


def test_relative_checkpoints_start_from_the_file_s_folder(tmp_path: Path) -> None:
    command = create_process(tmp_path, [], checkpoint={"path": "state"}).supervisor.command
    assert command[command.index("--checkpoint") + 1] == str(tmp_path / "state")
    command = create_process(tmp_path, []).supervisor.command
    assert command[command.index("--checkpoint") + 1] == str(tmp_path / "run" / "checkpoint")


def test_a_changed_python_step_changes_the_hash(tmp_path: Path) -> None:
    steps = [{"name": "scored", "python": "steps.py:score"}]
    without = create_process(tmp_path, [], transforms=steps).hash
    (tmp_path / "steps.py").write_text("def score(tables): ...")
    first = create_process(tmp_path, [], transforms=steps)
    (tmp_path / "steps.py").write_text("def score(tables): return None")
    assert len({without, first.hash, create_process(tmp_path, [], transforms=steps).hash}) == 3


def test_secrets_of_sinks_are_files_that_only_the_owner_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines, "find_missing_prerequisite", lambda: None)
    target = {"url": "jdbc:postgresql://db/flights", "table": "t", "secretRef": {"name": "db"}}
    data = samples.pipeline(sinks=[{"from": "flights", "jdbc": target}])
    processes = PipelineProcesses(Home(tmp_path), LiveView(say=lambda *_: None), lambda _: None)
    document, connection = Document(tmp_path / "hourly.yaml", data, {}), ProcessConnection("127.0.0.1:9092")
    with pytest.raises(Blocked) as blocked:
        processes.plan(Pipeline.parse(data), document, connection, {})
    assert "a sink or object store needs Secret db, which is in none of the files" in str(blocked.value)
    secret = ObservedSecret({"user": "me", "password": "secret"}, "1")
    launch = processes.plan(Pipeline.parse(data), document, connection, {"db": secret})
    password = launch.desired.secrets / "db" / "password"
    assert (password.read_text(), password.stat().st_mode & 0o777) == ("secret", 0o600)
    command = launch.desired.supervisor.command
    assert command[command.index("--secrets") + 1] == str(launch.desired.secrets.resolve())
