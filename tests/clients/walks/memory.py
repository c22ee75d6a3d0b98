"""What one broker has told so far in one walk: the values of references, and names for the ids that only it knows."""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from ottla_broker.wire.batch import Compression
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.records import Record, encode_batch
from tests.clients.walks.drawing import TOPICS
from tests.clients.walks.faults import FAULTS
from tests.clients.walks.steps import Batch, Ref, Step

UNKNOWN = {topic: UUID(int=0x12345678_1234_5678_1234_567812345678 + at) for at, topic in enumerate(TOPICS)}
UNTOLD = UUID(int=0)
SEQUENCES = 1 << 31


@dataclass(slots=True)
class Memory:
    prefix: str
    symbols: dict[Any, str] = field(default_factory=lambda: dict.fromkeys(UNKNOWN.values(), "<nobody>"))
    topics: dict[str, int] = field(default_factory=dict)  # those that are there, by whole name: how many partitions
    gone: set[str] = field(default_factory=set)
    _ids: dict[str, list[UUID]] = field(default_factory=dict)
    _members: dict[tuple[Any, ...], list[str]] = field(default_factory=dict)
    _numbers: dict[tuple[Any, ...], int] = field(default_factory=dict)

    # --- values of references

    def value(self, given: Any) -> Any:
        """`given` with every reference and batch in it replaced."""
        if isinstance(given, Ref):
            return self._of(given)
        if isinstance(given, Batch):
            return self.encoded(given)
        if isinstance(given, dict):
            return {name: self.value(inner) for name, inner in given.items()}
        if isinstance(given, list):
            return [self.value(inner) for inner in given]
        if isinstance(given, tuple) and given and all(isinstance(each, Batch) for each in given):
            return b"".join(self.encoded(each) for each in given)
        return given

    def _of(self, ref: Ref) -> Any:
        match ref.kind:
            case "name":
                return self.prefix + ref.of[0]
            case "id":
                return next(reversed(self._ids.get(ref.of[0], ())), UNKNOWN[ref.of[0]])
            case "old id":
                return next(iter(self._ids.get(ref.of[0], ())), UNKNOWN[ref.of[0]])
            case "member":
                return next(reversed(self._members.get(ref.of, ())), "")
            case "generation":
                return self._numbers.get((ref.kind, *ref.of), 1) + ref.plus
            case "sequence":
                return (self._numbers.get((ref.kind, *ref.of), 0) + ref.plus) % SEQUENCES
            case _:
                return self._numbers.get((ref.kind, *ref.of), 0) + ref.plus

    def encoded(self, given: Batch) -> bytes:
        records = [Record(given.at_ms + number, given.key, value) for number, value in enumerate(given.values)]
        made = encode_batch(
            records,
            compression=Compression(given.compression),
            producer_id=given.producer,
            producer_epoch=given.epoch,
            base_sequence=self.value(given.sequence),
        )
        return FAULTS[given.fault](made) if given.fault else made

    # --- what is learnt

    def learn(self, step: Step, sent: dict[str, Any], answer: Any) -> None:
        match step.api:
            case "join_group":
                self._joined(step, answer)
            case "fetch":
                self._fetched(step, sent, answer)
            case "produce":
                self._produced(step, answer)
            case "create_topics" | "create_partitions" | "delete_topics":
                self._topics_changed(step, sent, answer)

    def seen_topic(self, name: str, topic_id: UUID) -> None:
        ids = self._ids.setdefault(name.removeprefix(self.prefix), [])
        if topic_id not in ids:
            ids.append(topic_id)
            self.symbols[topic_id] = f"<{name.removeprefix(self.prefix)} #{len(ids)}>"

    def _joined(self, step: Step, answer: Any) -> None:
        if answer.error_code not in (ErrorCode.none, ErrorCode.member_id_required) or not answer.member_id:
            return
        ids = self._members.setdefault(step.learns, [])
        if answer.member_id not in self.symbols:
            ids.append(answer.member_id)
            self.symbols[answer.member_id] = f"<{'/'.join(step.learns)} #{len(ids)}>"
        elif answer.member_id not in ids:
            ids.append(answer.member_id)
        if answer.error_code is ErrorCode.none:
            self._numbers["generation", *step.learns] = answer.generation_id

    def _fetched(self, step: Step, sent: dict[str, Any], answer: Any) -> None:
        if not step.learns or getattr(answer, "error_code", None) is not ErrorCode.none:
            return
        epoch = sent.get("session_epoch", -1)
        if epoch == 0 and answer.session_id:
            self._numbers["session", *step.learns] = answer.session_id
            self._numbers["session epoch", *step.learns] = 1
        elif epoch > 0:
            self._numbers["session epoch", *step.learns] = epoch + 1

    def _produced(self, step: Step, answer: Any) -> None:
        told = {
            (getattr(said, "name", None) or said.topic_id, each.index): each
            for said in answer.responses
            for each in said.partition_responses
        }
        for asked in step.fields["topic_data"]:
            named = asked.get("name") or asked["topic_id"]
            topic = named.of[0]
            for wanted in asked["partition_data"]:
                found = told[self.value(named), wanted["index"]]
                if found.error_code is not ErrorCode.none or not wanted["records"]:
                    continue
                last: Batch = wanted["records"][-1]
                end = found.base_offset + sum(len(each.values) for each in wanted["records"])
                self._numbers["end", topic, wanted["index"]] = end
                first = self.value(last.sequence)
                key = ("sequence", topic, wanted["index"], last.producer)
                self._numbers[key] = (first + len(last.values)) % SEQUENCES

    def _topics_changed(self, step: Step, sent: dict[str, Any], answer: Any) -> None:
        if sent.get("validate_only"):
            return
        if step.api == "delete_topics":
            names = {topic_id: self.prefix + name for name, ids in self._ids.items() for topic_id in ids}
            for said in answer.responses:
                name = said.name or names.get(getattr(said, "topic_id", UNTOLD))
                if said.error_code is ErrorCode.none and name is not None:
                    self.topics.pop(name, None)
                    self.gone.add(name)
            return
        wanted = {topic["name"]: topic.get("num_partitions", topic.get("count")) for topic in sent["topics"]}
        for said in answer.topics if step.api == "create_topics" else answer.results:
            if said.error_code is ErrorCode.none:
                self.gone.discard(said.name)
                self.topics[said.name] = max(wanted[said.name], 1)
