"""Which changes of a Pipeline's spec keep its checkpoint, and which need a new one. Pure.

The rules are Spark's ("Recovery semantics after changes in a streaming query" of its guide to
Structured Streaming) and those of our runner, which stores topics, state store and shuffle
partitions beside Spark's checkpoint. Where only Spark can tell, because it depends on the columns
of a state, the runner refuses the change when it starts, and the old spec still runs.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline, PipelineSpec
from ottla_operator.resources.sinks import SINK_TARGETS, Sink
from ottla_operator.resources.transforms import Transform

CheckpointEffect = Literal["keeps", "depends", "new"]

FIXED_CONF: Final = ("spark.sql.shuffle.partitions", "spark.sql.streaming.stateStore.providerClass")
"""Spark's properties that the checkpoint fixes with its first batch."""
_STATEFUL_SQL: Final = re.compile(
    r"\b(group\s+by|distinct|limit|(count|sum|avg|min|max|first|last)\s*\()", re.IGNORECASE
)
_JOINED: Final = re.compile(r"\bjoin\s+(\w+)", re.IGNORECASE)
_WORD: Final = re.compile(r"\w+")
_COMPARED_BY_PART: Final = frozenset({"sources", "transforms", "sinks", "dedupe"})


@dataclass(frozen=True, slots=True)
class SpecChange:
    """`field`: path in the spec. `before`, `after`: values, empty where there is none.
    `checkpoint`: whether it can be kept. `reason`: the cause, or what the change does to the rows.
    """

    field: str
    before: str
    after: str
    checkpoint: CheckpointEffect
    reason: str


@dataclass(frozen=True, slots=True)
class _Effect:
    checkpoint: CheckpointEffect
    reason: str


_NEXT_START: Final = _Effect("keeps", "applies from the next start")
_STREAMS: Final = _Effect("new", "the checkpoint has the offsets of each of its streams, whose number is fixed")
_OFFSETS: Final = _Effect("new", "the offsets of the checkpoint are those of other topics")
_OTHER_STREAMS: Final = _Effect("new", "the checkpoint has the offsets of the streams that were read before")
_STATE: Final = _Effect("new", "the state of the checkpoint is that of another computation")
_COLUMNS: Final = _Effect("depends", "Spark refuses it when it starts if the columns that are kept as state change")
_PYTHON: Final = _Effect("depends", "Spark refuses it when it starts if the function's state has changed")
_FIXED: Final = _Effect("new", "the checkpoint fixes it with its first batch")
_STATELESS: Final = _Effect("keeps", "rows that are written already are not corrected")

_SOURCE_EFFECTS: Final[Mapping[str, _Effect]] = {
    "topic": _OFFSETS,
    "startingOffsets": _Effect("keeps", "has no effect: the pipeline resumes from its checkpoint"),
    "maxOffsetsPerTrigger": _NEXT_START,
    "onDataLoss": _NEXT_START,
    "isolation": _NEXT_START,
}
_TABLE: Final = _Effect("keeps", "the table is read again as a whole")
_SINK_EFFECTS: Final[Mapping[str, _Effect]] = {
    "key": _Effect("keeps", "records that are written already keep their keys"),
    "delivery": _NEXT_START,
    "compareWith": _NEXT_START,
}
_NEW_SINK: Final = _Effect("keeps", "the sink begins at startingOffsets, in a checkpoint of its own")
_GONE_SINK: Final = _Effect("keeps", "what it has written stays")
_OTHER_TARGET: Final = _Effect(
    "keeps", "rows that are written already stay where they are, and are not in the new target"
)
_SPEC_EFFECTS: Final[Mapping[str, _Effect]] = {
    "checkpoint": _Effect("new", "an empty location is a new checkpoint; moved files are the old one"),
    "clusterRef": _OFFSETS,
    "replaces": _Effect("keeps", "applies immediately, without a restart"),
    "consumerGroup": _Effect(
        "keeps", "stop the pipeline first: a batch that is interrupted by the change may be written twice"
    ),
}


def compare_specs(before: Pipeline, after: Pipeline) -> list[SpecChange]:
    """Differences of two versions of a Pipeline, by field."""
    changes = [*_source_changes(before.spec, after.spec), *_step_changes(before.spec, after.spec)]
    changes += [*_sink_changes(before.spec, after.spec), *_dedupe_changes(before.spec, after.spec)]
    changes += _conf_changes(before.spec.spark.conf, after.spec.spark.conf)
    for field, values in _fields(_other_fields(before.spec), _other_fields(after.spec)):
        changes += _field_change(field, *values, _SPEC_EFFECTS.get(field, _NEXT_START))
    return changes


def needs_new_checkpoint(changes: Sequence[SpecChange]) -> bool:
    return any(it.checkpoint == "new" for it in changes)


def plan_migration(name: str, changes: Sequence[SpecChange]) -> list[str]:
    """What to do to apply the changes, step by step."""
    if needs_new_checkpoint(changes):
        return [
            f"suspend the old version and wait until it has stopped: spec.state: suspended, "
            f"kubectl wait pipeline/{name} --for=jsonpath={{.status.state}}=Suspended",
            "apply the new version with another spec.checkpoint, an empty one, and spec.state: running",
            "set startingOffsets of its streams: earliest to compute all results again, or the time at which the old "
            "version stopped to continue after it; windows that are open then are incomplete",
            "sinks get the rows since startingOffsets again: choose new topics, tables or folders, except where "
            "outputMode: update replaces rows by key",
            "or run the new version beside the old one until it has caught up: another metadata.name, new targets, and "
            "spec.replaces",
            "delete the old checkpoint when the results are right",
        ]
    if any(it.checkpoint == "depends" for it in changes):
        return [
            "apply the new version: it continues from the checkpoint",
            "if it fails because the state has changed, apply the old version again, which continues too, or follow "
            "the plan for a new checkpoint: another spec.checkpoint, and startingOffsets",
        ]
    return ["apply the new version: it continues from the checkpoint"] if changes else []


def is_stateful(step: Transform, spec: PipelineSpec) -> bool:
    """Whether a step keeps state, as far as its text shows. Joins with tables keep none."""
    if step.sql is None:
        return step.transform_with_state is not None
    return bool(_STATEFUL_SQL.search(step.sql)) or not set(_JOINED.findall(step.sql)) <= spec.tables.keys()


def has_state(spec: PipelineSpec) -> bool:
    return spec.dedupe is not None or any(is_stateful(step, spec) for step in spec.transforms)


def _streams_read(step: Transform, spec: PipelineSpec) -> frozenset[str]:
    """Streams and steps that a step reads, as far as its text shows. Empty for Python."""
    known = spec.streams.keys() | {it.name for it in spec.transforms}
    state = step.transform_with_state
    named = [*_WORD.findall(step.sql or ""), *(step.union or ()), *((state.source,) if state else ())]
    return frozenset(known & set(named))


def _other_fields(spec: PipelineSpec) -> dict[str, Json]:
    """Fields of a spec that are compared as a whole."""
    fields = {name: value for name, value in spec.to_json().items() if name not in _COMPARED_BY_PART}
    spark = {name: value for name, value in fields.pop("spark", {}).items() if name != "conf"}
    return {**fields, **({"spark": spark} if spark else {})}


def _source_changes(before: PipelineSpec, after: PipelineSpec) -> Iterator[SpecChange]:
    for name in _names(before.sources, after.sources):
        old, new = before.sources.get(name), after.sources.get(name)
        if old is None or new is None:
            is_stream = name in before.streams or name in after.streams
            effect = _STREAMS if is_stream else _TABLE
            yield from _field_change(f"sources.{name}", old and old.topic, new and new.topic, effect)
            continue
        for field, values in _fields(old.to_json(), new.to_json()):
            yield from _field_change(f"sources.{name}.{field}", *values, _source_effect(field, old.mode, after))


def _source_effect(field: str, mode: str, after: PipelineSpec) -> _Effect:
    if field == "mode":
        return _STREAMS
    if mode == "table":
        return _TABLE
    if field in _SOURCE_EFFECTS:
        return _SOURCE_EFFECTS[field]
    return _COLUMNS if has_state(after) or _calls_python(after) else _STATELESS  # format, key, watermark


def _calls_python(spec: PipelineSpec) -> bool:
    return any(step.python is not None for step in spec.transforms)


def _step_changes(before: PipelineSpec, after: PipelineSpec) -> Iterator[SpecChange]:
    old_steps, new_steps = ({step.name: step for step in spec.transforms} for spec in (before, after))
    for name in _names(old_steps, new_steps):
        old, new = old_steps.get(name), new_steps.get(name)
        effect = _step_effect(old, new, before, after)
        yield from _field_change(f"transforms.{name}", _step_value(old), _step_value(new), effect)
        if old is not None and new is not None:
            rules, other_rules = ([it.to_json() for it in step.expect] or None for step in (old, new))
            yield from _field_change(f"transforms.{name}.expect", rules, other_rules, _STATELESS)


def _step_effect(old: Transform | None, new: Transform | None, before: PipelineSpec, after: PipelineSpec) -> _Effect:
    if (old is not None and is_stateful(old, before)) or (new is not None and is_stateful(new, after)):
        return _STATE
    if old is not None and new is not None and _streams_read(old, before) != _streams_read(new, after):
        return _OTHER_STREAMS
    if any(it is not None and it.python is not None for it in (old, new)):
        return _PYTHON
    return _COLUMNS if has_state(after) else _STATELESS


def _step_value(step: Transform | None) -> Json:
    if step is None:
        return None
    return {name: value for name, value in step.to_json().items() if name not in ("name", "expect")}


def _sink_changes(before: PipelineSpec, after: PipelineSpec) -> Iterator[SpecChange]:
    old_sinks, new_sinks = ({sink.query_name: sink for sink in spec.sinks} for spec in (before, after))
    keeps_state = has_state(before) or has_state(after) or _calls_python(after)
    for name in _names(old_sinks, new_sinks):
        old, new = old_sinks.get(name), new_sinks.get(name)
        if old is None or new is None:
            effect = _GONE_SINK if new is None else _NEW_SINK
            yield from _field_change(f"sinks.{name}", old and _target_kind(old), new and _target_kind(new), effect)
            continue
        for field, values in _fields(old.to_json(), new.to_json()):
            yield from _field_change(f"sinks.{name}.{field}", *values, _sink_effect(field, keeps_state=keeps_state))


def _sink_effect(field: str, *, keeps_state: bool) -> _Effect:
    if field == "from":
        return _OTHER_STREAMS
    if field == "outputMode":
        return _STATE if keeps_state else _STATELESS
    return _SINK_EFFECTS.get(field, _OTHER_TARGET if field in SINK_TARGETS else _STATELESS)


def _target_kind(sink: Sink) -> str:
    return next(name for name in SINK_TARGETS if name in sink.to_json())


def _dedupe_changes(before: PipelineSpec, after: PipelineSpec) -> Iterator[SpecChange]:
    old, new = before.dedupe, after.dedupe
    if (
        old is not None
        and new is not None
        and old.columns == new.columns
        and (old.within is None) == (new.within is None)
    ):
        yield from _field_change("dedupe.within", old.within, new.within, _NEXT_START)
        return
    yield from _field_change("dedupe", old and old.to_json(), new and new.to_json(), _STATE)


def _conf_changes(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[SpecChange]:
    for name, values in _fields(before, after):
        yield from _field_change(f"spark.conf.{name}", *values, _FIXED if name in FIXED_CONF else _NEXT_START)


def _names(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    return [*before, *(it for it in after if it not in before)]


def _fields(before: Mapping[str, Json], after: Mapping[str, Json]) -> Iterator[tuple[str, tuple[Json, Json]]]:
    """Each field of two objects, with its values; None where an object does not have it."""
    for name in sorted(before.keys() | after.keys()):
        yield name, (before.get(name), after.get(name))


def _field_change(field: str, before: Json, after: Json, effect: _Effect) -> Iterator[SpecChange]:
    if before != after:
        yield SpecChange(field, _text(before), _text(after), effect.checkpoint, effect.reason)


def _text(value: Json) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
