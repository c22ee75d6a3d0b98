"""Responses of one broker in one walk: values of references, and names for ids that only this
broker has.
"""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from ottla_broker.wire.batch import Compression
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.records import Record, encode_batch
from tests.clients.walks.batch_faults import FAULTS
from tests.clients.walks.share_state import ShareSessionsState
from tests.clients.walks.step_generator import TOPICS
from tests.clients.walks.steps import BatchSpec, Reference, Step

UNKNOWN = {topic: UUID(int=0x12345678_1234_5678_1234_567812345678 + at) for at, topic in enumerate(TOPICS)}
NO_ID = UUID(int=0)
UNKNOWN_PRODUCER = 2_000_001
SEQUENCES = 1 << 31
MISSING_INTERNAL_TOPICS = 3  # a status of StreamsGroupHeartbeat


Rule = tuple[int, str, int, str, str, int, int]
"""An access control entry: resource type, name, pattern type, principal, host, operation,
permission.
"""


@dataclass(slots=True)
class WalkState:
    """`rules` are access control entries that the walk has created and not deleted."""

    prefix: str
    symbols: dict[Any, str] = field(default_factory=lambda: dict.fromkeys(UNKNOWN.values(), "<unknown>"))
    topics: dict[str, int] = field(default_factory=dict)  # existing topics by full name → partitions
    deleted: set[str] = field(default_factory=set)
    rules: set[Rule] = field(default_factory=set)
    internal_topics: set[str] = field(default_factory=set)  # that a streams group waits for, by full name
    shares: ShareSessionsState = field(default_factory=ShareSessionsState)
    _ids: dict[str, list[UUID]] = field(default_factory=dict)
    _members: dict[tuple[Any, ...], list[str]] = field(default_factory=dict)
    _numbers: dict[tuple[Any, ...], int] = field(default_factory=dict)
    _tasks: dict[tuple[Any, ...], list[dict[str, Any]]] = field(default_factory=dict)

    # --- resolving references

    def resolve(self, given: Any) -> Any:
        """`given` with all references and batches replaced."""
        if isinstance(given, Reference):
            return self._resolve_reference(given)
        if isinstance(given, BatchSpec):
            return self.encode_batch(given)
        if isinstance(given, dict):
            return {name: self.resolve(inner) for name, inner in given.items()}
        if isinstance(given, list):
            return [self.resolve(inner) for inner in given]
        if isinstance(given, tuple) and given and all(isinstance(each, BatchSpec) for each in given):
            return b"".join(self.encode_batch(each) for each in given)
        return given

    def _resolve_reference(self, ref: Reference) -> Any:
        match ref.kind:
            case "name":
                return self.prefix + ref.key[0]
            case "id":
                return next(reversed(self._ids.get(ref.key[0], ())), UNKNOWN[ref.key[0]])
            case "old id":
                return next(iter(self._ids.get(ref.key[0], ())), UNKNOWN[ref.key[0]])
            case "member":
                return next(reversed(self._members.get(ref.key, ())), "")
            case "generation":
                return self._numbers.get((ref.kind, *ref.key), 1) + ref.plus
            case "tasks":
                return self._tasks.get(ref.key, [])
            case "acquired":
                return self.shares.acknowledgements(*ref.key)
            case "share session epoch":
                return self.shares.session_epochs.get(ref.key, 0) + ref.plus
            case "sequence":
                return (self._numbers.get((ref.kind, *ref.key), 0) + ref.plus) % SEQUENCES
            case "producer id":
                return self._numbers.get((ref.kind, *ref.key), UNKNOWN_PRODUCER)
            case _:
                return self._numbers.get((ref.kind, *ref.key), 0) + ref.plus

    def encode_batch(self, given: BatchSpec) -> bytes:
        records = [Record(given.at_ms + number, given.key, value) for number, value in enumerate(given.values)]
        made = encode_batch(
            records,
            compression=Compression(given.compression),
            producer_id=self.resolve(given.producer),
            producer_epoch=self.resolve(given.epoch),
            base_sequence=self.resolve(given.sequence),
            transactional=given.transactional,
        )
        return FAULTS[given.fault](made) if given.fault else made

    # --- updates from responses

    def update(self, step: Step, sent: dict[str, Any], answer: Any) -> None:
        match step.api:
            case "join_group":
                self._update_member(step, answer)
            case "consumer_group_heartbeat" if answer.error_code is ErrorCode.none:
                self._update_consumer(step, answer)
            case "streams_group_heartbeat":
                self._update_streams_member(step, sent, answer)
            case "share_group_heartbeat" if answer.error_code is ErrorCode.none:
                self._numbers["member epoch", *step.source] = max(answer.member_epoch, 0)
            case "share_fetch" | "share_acknowledge":
                self.shares.update(step, sent, answer, self._topic_of)
            case "fetch":
                self._update_session(step, sent, answer)
            case "init_producer_id" | "end_txn":
                self._update_producer(step, answer)
            case "produce":
                self._update_offsets(step, answer)
            case "create_topics" | "create_partitions" | "delete_topics":
                self._update_topics(step, sent, answer)
            case "create_acls" | "delete_acls":
                self._update_rules(step, sent, answer)

    def add_topic_id(self, name: str, topic_id: UUID) -> None:
        ids = self._ids.setdefault(name.removeprefix(self.prefix), [])
        if topic_id not in ids:
            ids.append(topic_id)
            self.symbols[topic_id] = f"<{name.removeprefix(self.prefix)} #{len(ids)}>"

    def _topic_of(self, topic_id: UUID) -> str:
        return next((name for name, ids in self._ids.items() if topic_id in ids), "")

    def _update_member(self, step: Step, answer: Any) -> None:
        if answer.error_code not in (ErrorCode.none, ErrorCode.member_id_required) or not answer.member_id:
            return
        ids = self._members.setdefault(step.source, [])
        if answer.member_id not in self.symbols:
            ids.append(answer.member_id)
            self.symbols[answer.member_id] = f"<{'/'.join(step.source)} #{len(ids)}>"
        elif answer.member_id not in ids:
            ids.append(answer.member_id)
        if answer.error_code is ErrorCode.none:
            self._numbers["generation", *step.source] = answer.generation_id

    def _update_consumer(self, step: Step, answer: Any) -> None:
        self._numbers["member epoch", *step.source] = max(answer.member_epoch, 0)
        if answer.assignment is not None or answer.member_epoch <= 0:
            self._tasks[*step.source, "owned"] = [
                {"topic_id": one.topic_id, "partitions": one.partitions}
                for one in (answer.assignment.topic_partitions if answer.assignment is not None else ())
            ]

    def _update_streams_member(self, step: Step, sent: dict[str, Any], answer: Any) -> None:
        if answer.error_code is not ErrorCode.none:
            return
        self._numbers["member epoch", *step.source] = max(answer.member_epoch, 0)
        for kind in ("active", "standby", "warmup"):
            if (tasks := getattr(answer, f"{kind}_tasks")) is not None or answer.member_epoch <= 0:
                self._tasks[*step.source, kind] = [
                    {"subtopology_id": one.subtopology_id, "partitions": one.partitions} for one in tasks or ()
                ]
        if any(one.status_code == MISSING_INTERNAL_TOPICS for one in answer.status or ()) and sent["topology"]:
            self.internal_topics |= {
                topic["name"]
                for part in sent["topology"]["subtopologies"]
                for topic in (*part["state_changelog_topics"], *part["repartition_source_topics"])
            }

    def _update_rules(self, step: Step, sent: dict[str, Any], answer: Any) -> None:
        if step.api == "create_acls":
            for given, result in zip(sent["creations"], answer.results, strict=True):
                if result.error_code is ErrorCode.none:
                    kind, name, pattern = (given[f"resource_{part}"] for part in ("type", "name", "pattern_type"))
                    entry = (given["principal"], given["host"], given["operation"], given["permission_type"])
                    self.rules.add((kind, name, pattern, *entry))
            return
        for result in answer.filter_results:
            for it in result.matching_acls:
                entry = (it.principal, it.host, it.operation, it.permission_type)
                self.rules.discard((it.resource_type, it.resource_name, it.pattern_type, *entry))

    def _update_producer(self, step: Step, answer: Any) -> None:
        """A new producer id or epoch restarts its sequences at 0."""
        if not step.source or answer.error_code is not ErrorCode.none or getattr(answer, "producer_id", -1) < 0:
            return
        self._numbers["producer id", *step.source] = answer.producer_id
        self._numbers["producer epoch", *step.source] = answer.producer_epoch
        self.symbols.setdefault(("producer", answer.producer_id), f"<{step.source[0]}>")
        own = Reference("producer id", step.source)
        for key in [key for key in self._numbers if key[0] == "sequence" and key[-1] == own]:
            del self._numbers[key]

    def _update_session(self, step: Step, sent: dict[str, Any], answer: Any) -> None:
        if not step.source or getattr(answer, "error_code", None) is not ErrorCode.none:
            return
        epoch = sent.get("session_epoch", -1)
        if epoch == 0 and answer.session_id:
            self._numbers["session", *step.source] = answer.session_id
            self._numbers["session epoch", *step.source] = 1
        elif epoch > 0:
            self._numbers["session epoch", *step.source] = epoch + 1

    def _update_offsets(self, step: Step, answer: Any) -> None:
        results = {
            (getattr(result, "name", None) or result.topic_id, each.index): each
            for result in answer.responses
            for each in result.partition_responses
        }
        for requested in step.fields["topic_data"]:
            named = requested.get("name") or requested["topic_id"]
            topic = named.key[0]
            for wanted in requested["partition_data"]:
                found = results[self.resolve(named), wanted["index"]]
                if found.error_code is not ErrorCode.none or not wanted["records"]:
                    continue
                last: BatchSpec = wanted["records"][-1]
                end = found.base_offset + sum(len(each.values) for each in wanted["records"])
                self._numbers["end", topic, wanted["index"]] = end
                first = self.resolve(last.sequence)
                key = ("sequence", topic, wanted["index"], last.producer)
                self._numbers[key] = (first + len(last.values)) % SEQUENCES

    def _update_topics(self, step: Step, sent: dict[str, Any], answer: Any) -> None:
        if sent.get("validate_only"):
            return
        if step.api == "delete_topics":
            names = {topic_id: self.prefix + name for name, ids in self._ids.items() for topic_id in ids}
            for result in answer.responses:
                name = result.name or names.get(getattr(result, "topic_id", NO_ID))
                if result.error_code is ErrorCode.none and name is not None:
                    self.topics.pop(name, None)
                    self.deleted.add(name)
            return
        wanted = {topic["name"]: topic.get("num_partitions", topic.get("count")) for topic in sent["topics"]}
        for result in answer.topics if step.api == "create_topics" else answer.results:
            if result.error_code is ErrorCode.none:
                self.deleted.discard(result.name)
                self.topics[result.name] = max(wanted[result.name], 1)
