"""The share sessions of a walk's members, and the records that they have acquired."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from ottla_broker.wire.errors import ErrorCode
from tests.clients.walks.steps import Step

Acquirer = tuple[str, str, str, int]  # group, slot, topic, partition


@dataclass(slots=True)
class ShareSessionsState:
    """`session_epochs` has the next epoch by (group, slot)."""

    session_epochs: dict[tuple[Any, ...], int] = field(default_factory=dict)
    _acquired: dict[Acquirer, list[int]] = field(default_factory=dict)

    def acknowledgements(
        self, group: str, slot: str, topic: str, partition: int, types: tuple[int, ...], count: int
    ) -> list[dict[str, Any]]:
        """Batches of the first `count` acquired offsets, each with the next of `types` in turn."""
        offsets = self._acquired.get((group, slot, topic, partition), [])[:count]
        return [
            {
                "first_offset": offset,
                "last_offset": offset,
                "acknowledge_types": [types[at % len(types)]] if types else [],
            }
            for at, offset in enumerate(offsets)
        ]

    def update(self, step: Step, sent: dict[str, Any], answer: Any, topic_of: Callable[[UUID], str]) -> None:
        """Takes over what a response to ShareFetch or ShareAcknowledge means for its session."""
        session, epoch = step.source, sent["share_session_epoch"]
        group, slot = session
        if answer.error_code is ErrorCode.none:
            self.session_epochs[session] = 0 if epoch == -1 else epoch + 1
        if epoch in (0, -1) and answer.error_code is ErrorCode.none:
            self._acquired = {at: found for at, found in self._acquired.items() if at[:2] != session}
        acknowledged = {
            (topic["topic_id"], one["partition_index"]): one["acknowledgement_batches"]
            for topic in sent["topics"]
            for one in topic["partitions"]
        }
        for topic in answer.responses:
            for one in topic.partitions:
                at = group, slot, topic_of(topic.topic_id), int(one.partition_index)
                offsets = self._acquired.setdefault(at, [])
                if int(getattr(one, "acknowledge_error_code", one.error_code)) == 0:
                    batches = acknowledged.get((topic.topic_id, one.partition_index), [])
                    done = {it for batch in batches for it in range(batch["first_offset"], batch["last_offset"] + 1)}
                    offsets[:] = [offset for offset in offsets if offset not in done]
                spans = getattr(one, "acquired_records", ())
                offsets += [offset for span in spans for offset in range(span.first_offset, span.last_offset + 1)]
