"""The status of a Pipeline beside its conditions."""

from ottla_operator.plan.pipeline.desired import Launcher
from ottla_operator.plan.pipeline.verdict import PipelineRun
from ottla_operator.resources.model import Json

LONGEST = 4096
_LAUNCHED = {"Driver": "Deployment/{}-driver", "SparkOperator": "SparkApplication/{}"}


def status_fields(body: Json, run: PipelineRun, launcher: Launcher | None, lag_records: int | None) -> dict[str, Json]:
    """None: not known now, and left out. `body`: the Pipeline as it was seen; what its last driver told stays while nobody tells anything else. `behind`:
    records not read yet, by the brokers: they know it also while no driver runs, or while one is held up."""
    before = body.get("status") or {}
    same = before.get("observedGeneration") == body["metadata"]["generation"]
    told = run.runner
    lag = lag_records if lag_records is not None else (told.lag_records if told else before.get("lagRecords"))
    return {
        "state": run.state,
        "inputRowsPerSecond": told.input_rows_per_second if told and run.state == "Running" else None,
        "lagRecords": lag,
        "lagSeconds": told.lag_seconds if told else (0.0 if lag == 0 else None),
        "lastProgress": (told and told.last_progress) or before.get("lastProgress"),
        "lastError": (run.error or (before.get("lastError") if same else None) or "")[:LONGEST] or None,
        "restarts": run.restarts if run.restarts is not None else before.get("restarts"),
        "application": _LAUNCHED[launcher].format(body["metadata"]["name"]) if launcher else before.get("application"),
    }
