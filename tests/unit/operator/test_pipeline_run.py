"""A pipeline's progress as its runner tells it, on the board."""

import json
from pathlib import Path
from typing import Any

from ottla_operator.local.documents import Document
from ottla_operator.local.live_view import LiveView, State
from ottla_operator.local.pipelines import PipelineRun
from ottla_operator.plan.backoff import PIPELINE_RESTARTS
from ottla_operator.resources.pipeline import Pipeline
from tests.unit.operator import samples


def made(folder: Path, said: list[str], **spec: Any) -> PipelineRun:
    data = samples.pipeline(**spec)
    board = LiveView(say=lambda text, kind: said.append(text))
    document = Document(folder / "hourly.yaml", data, {(): 1, ("spec",): 5, ("spec", "transforms", 1): 12})
    return PipelineRun(Pipeline.parse(data), document, folder / "run", "127.0.0.1:9092", board)


def tell(run: PipelineRun, *lines: object) -> None:
    run.progress.parent.mkdir(exist_ok=True)
    with run.progress.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def test_batches_are_added_up(tmp_path: Path) -> None:
    said: list[str] = []
    run = made(tmp_path, said)
    run._tell(State.starting, "", None)
    tell(run, {"state": "starting"}, {"state": "running"})
    assert run._has_started()
    batch = {
        "state": "running",
        "batch": 0,
        "rows": 10,
        "written": 0,
        "processedRowsPerSecond": 5.0,
        "lag": {"records": 7, "seconds": 1.5},
    }
    tell(run, batch)
    run._take_in()
    assert (run.row.rows_in, run.row.rows_out, run.row.lag_records, run.row.lag_seconds) == (10, 0, 7, 1.5)
    assert said == []
    tell(run, {**batch, "batch": 1, "written": 3})
    run._take_in()
    assert (run.row.rows_in, run.row.rows_out) == (20, 3)
    assert said[0].startswith("first pipeline row after")


def test_half_a_line_is_left_for_the_next_time(tmp_path: Path) -> None:
    run = made(tmp_path, [])
    run.progress.parent.mkdir()
    line = json.dumps({"state": "running", "batch": 0, "rows": 10}) + "\n"
    run.progress.write_text(line[:20])
    run._take_in()
    assert run.row.rows_in == 0
    run.progress.write_text(line)
    run._take_in()
    assert run.row.rows_in == 10


def test_a_file_that_has_begun_anew_is_read_from_its_start(tmp_path: Path) -> None:
    run = made(tmp_path, [])
    tell(run, *[{"state": "running", "batch": it, "rows": 1} for it in range(5)])
    run._take_in()
    run.progress.unlink()
    tell(run, {"state": "running", "batch": 5, "rows": 1})
    run._take_in()
    assert run.row.rows_in == 6


def test_what_went_wrong_is_told_in_the_runner_s_words_and_once(tmp_path: Path) -> None:
    said: list[str] = []
    run = made(tmp_path, said)
    run._tell(State.starting, "", None)
    tell(run, {"state": "failed", "error": "column `carier` is not there"})
    run._tell(State.retrying, "exit code 1; again in 1 s", None)
    run._tell(State.retrying, "exit code 1; again in 2 s", None)
    assert run.row.note == "column `carier` is not there; again in 2 s"
    assert len(said) == 1
    assert said[0].startswith("pipeline hourly: column `carier` is not there")


def test_the_line_of_the_field_that_is_wrong_is_told(tmp_path: Path) -> None:
    said: list[str] = []
    run = made(tmp_path, said)
    for error in ("spec.transforms[1] (x): there is no column `carier`", "spec.sources.a.watermark: no", "nothing"):
        run._tell(State.starting, "", None)
        tell(run, {"state": "failed", "error": error})
        run._tell(State.retrying, "exit code 1; again in 1 s", None)
    file = tmp_path / "hourly.yaml"
    assert said[0].startswith(
        f"{file}:12: pipeline hourly: spec.transforms[1] (x): there is no column `carier`; again in 1 s"
    )
    assert said[1].startswith(f"{file}:5: pipeline hourly: spec.sources.a.watermark: no; again")
    assert said[2].startswith("pipeline hourly: nothing; again")


def test_a_pipeline_that_falls_waits_as_a_kubelet_would(tmp_path: Path) -> None:
    assert made(tmp_path, []).keeper.pace == PIPELINE_RESTARTS


def test_what_makes_a_restart_necessary(tmp_path: Path) -> None:
    same, other = made(tmp_path, []).hash, made(tmp_path, [], trigger={"interval": "5s"}).hash
    assert made(tmp_path, []).hash == same != other


def test_relative_checkpoints_start_from_the_file(tmp_path: Path) -> None:
    command = made(tmp_path, [], checkpoint={"path": "state"}).keeper.command
    assert command[command.index("--checkpoint") + 1] == str(tmp_path / "state")
    command = made(tmp_path, []).keeper.command
    assert command[command.index("--checkpoint") + 1] == str(tmp_path / "run" / "checkpoint")


def test_another_text_of_a_python_step_is_another_pipeline(tmp_path: Path) -> None:
    steps = [{"name": "scored", "python": "steps.py:score"}]
    without = made(tmp_path, [], transforms=steps).hash
    (tmp_path / "steps.py").write_text("def score(tables): ...")
    first = made(tmp_path, [], transforms=steps)
    (tmp_path / "steps.py").write_text("def score(tables): return None")
    assert len({without, first.hash, made(tmp_path, [], transforms=steps).hash}) == 3
