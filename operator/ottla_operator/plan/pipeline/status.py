"""The status of a Pipeline beside its conditions."""

from ottla_operator.plan.pipeline.verdict import Run
from ottla_operator.plan.pipeline.whole import Launcher
from ottla_operator.resources.model import Json

LONGEST = 4096
_LAUNCHED = {"Driver": "Deployment/{}-driver", "SparkOperator": "SparkApplication/{}"}


def status_of(body: Json, run: Run, launcher: Launcher | None, behind: int | None) -> dict[str, Json]:
    """None: not known now, and left out. `body`: the Pipeline as it was seen; what its last driver told stays while nobody tells anything else. `behind`:
    records not read yet, by the brokers: they know it also while no driver runs, or while one is held up."""
    before = body.get("status") or {}
    same = before.get("observedGeneration") == body["metadata"]["generation"]
    told = run.told
    lag = behind if behind is not None else (told.lag_records if told else before.get("lagRecords"))
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
