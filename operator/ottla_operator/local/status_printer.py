"""Shows the statuses of resources in the terminal of `ottla up`: as rows of the live view and as
printed lines.
"""

import time
from collections.abc import Mapping
from typing import Final

from ottla_operator.local.documents import Document
from ottla_operator.local.live_view import LiveView, MirrorRow, PipelineRow, SchemaRow, State, TopicRow
from ottla_operator.plan.conditions import Conditions, Ready, Reconciling, Stalled
from ottla_operator.resources.model import Json
from ottla_operator.resources.schema_resource import stored_subject_name
from ottla_operator.resources.topic import stored_topic_name

REPORT_WAITING_S: Final = 15.0
"""A resource that has been reconciling for this long with the same message is reported."""
VOLATILE_REASONS: Final = ("Replicating", "FailingOver")
"""Reasons of Mirrors whose messages change all the time: only the reason is printed."""
PIPELINE_STATES: Final = {
    "Pending": State.waiting,
    "Starting": State.starting,
    "Running": State.running,
    "Finished": State.finished,
    "Failing": State.retrying,
    "Failed": State.failed,
    "Suspended": State.suspended,
}
READINESS_STATES: Final = {Ready: State.ready, Reconciling: State.starting, Stalled: State.failed}


class StatusPrinter:
    """`documents`: the resources' documents by kind and name, for the places of errors."""

    def __init__(self, view: LiveView, documents: Mapping[tuple[str, str], Document]) -> None:
        self._view = view
        self.documents = documents
        self._printed: dict[tuple[str, str], str] = {}
        self._waiting: dict[tuple[str, str], tuple[str, float]] = {}
        """(kind, name) → the message while it is reconciling, and since when."""

    def show(self, resource: Json, conditions: Conditions) -> None:
        """Updates the resource's row in the live view. Prints why it is reconciling, if that takes
        longer than REPORT_WAITING_S, and what a Mirror does when that changes.
        """
        self._update_row(resource, conditions)
        self._print_waiting(resource, conditions)

    def print(self, resource: Json, message: str, *, is_error: bool = False) -> None:
        """Prints a message about a resource, unless the last one about it was the same. An error
        gets the place in the files that it is about.
        """
        key = (resource["kind"], resource["metadata"]["name"])
        if self._printed.get(key) == message:
            return
        self._printed[key] = message
        kind, name = key[0].lower(), key[1]
        text = message if kind == "topic" and "topic " in message else f"{kind} {name}: {message}"
        if is_error and (document := self.documents.get(key)) is not None:
            text = locate_error(document, text, message)
        self._view.say(text, "error" if is_error else "info")

    def _update_row(self, resource: Json, conditions: Conditions) -> None:
        name, status, readiness = resource["metadata"]["name"], resource["status"], conditions.readiness
        state = READINESS_STATES[type(readiness)]
        if readiness.reason == "RetryingAfterError":
            state = State.retrying
        note = "" if isinstance(readiness, Ready) else readiness.message
        match resource["kind"]:
            case "Topic":
                cluster, topic = resource["spec"]["clusterRef"]["name"], stored_topic_name(resource)
                row = self._view.topics.setdefault((cluster, topic), TopicRow(cluster, topic))
                row.state, row.note = state, note
            case "Schema":
                cluster, subject = resource["spec"]["clusterRef"]["name"], stored_subject_name(resource)
                schema = self._view.schemas.setdefault((cluster, subject), SchemaRow(cluster, subject))
                schema.state, schema.note = state, note
                schema.version, schema.id = status.get("version"), status.get("id")
                schema.compatibility = status.get("compatibility", "")
            case "Mirror":
                cluster = resource["spec"]["target"]["clusterRef"]["name"]
                mirror = self._view.mirrors.setdefault((cluster, name), MirrorRow(cluster, name))
                mirror.state = State.running if state is State.ready else state
                mirror.topics, mirror.note = len(status.get("topics") or ()), readiness.message
                mirror.lag_records, mirror.lag_seconds = status.get("lagRecords"), status.get("lagSeconds")
                is_volatile = readiness.reason in VOLATILE_REASONS
                if not isinstance(readiness, Stalled):
                    self.print(resource, readiness.reason if is_volatile else readiness.message)
            case "Pipeline":
                key = pipeline_row_key(resource)
                pipeline = self._view.pipelines.setdefault(key, PipelineRow(*key))
                pipeline.state, pipeline.note = PIPELINE_STATES[status["state"]], note

    def _print_waiting(self, resource: Json, conditions: Conditions) -> None:
        """Prints why a resource is reconciling, once that has lasted."""
        key, readiness, now = (resource["kind"], resource["metadata"]["name"]), conditions.readiness, time.monotonic()
        if not isinstance(readiness, Reconciling):
            self._waiting.pop(key, None)
            return
        if self._waiting.get(key, ("", 0.0))[0] != readiness.message:
            self._waiting[key] = readiness.message, now
        elif now - self._waiting[key][1] >= REPORT_WAITING_S:
            self.print(resource, readiness.message)


def pipeline_row_key(resource: Json) -> tuple[str, str]:
    return resource["spec"]["clusterRef"]["name"], resource["metadata"]["name"]


def locate_error(document: Document, text: str, message: str) -> str:
    """The text of an error with file and line of the setting or field that its message names."""
    if document.kind == "Cluster":
        setting = document.find_setting(message)
        return text if setting is None else f"{text} (spec.config in {document.locate(setting)})"
    path = (
        document.find_field(message)
        if document.kind not in ("Topic", "Group")
        else document.find_setting(message) or ("spec",)
    )
    return text if path is None else f"{document.locate(path)}: {text}"
