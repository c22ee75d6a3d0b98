"""Invariants of transactions at the end of a run. Each check yields descriptions of violations.

`committed`: what a reader of committed records finds after the faults.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from tests.sim.checks import Contents
from tests.sim.history import TopicPartition
from tests.sim.transaction_history import InputPosition, TransactionHistory, TransactionOutcome


def transaction_violations(
    history: TransactionHistory,
    committed: Contents,
    group_offsets: Mapping[TopicPartition, int],
    group: str,
) -> list[str]:
    """`group_offsets`: the committed offsets of the workers' group."""
    return [
        *check_transactions_are_atomic(history, committed),
        *check_read_committed(history, committed, group),
        *check_inputs_have_one_output(history, committed, group_offsets),
        *check_instances_do_not_mix(history, committed),
    ]


def check_transactions_are_atomic(history: TransactionHistory, committed: Contents) -> Iterator[str]:
    """All records of a committed transaction are visible, and none of one that was not committed;
    of one with an unknown outcome, all or none."""
    found: dict[bytes, list[tuple[TopicPartition, int]]] = defaultdict(list)
    for tp, records in committed.items():
        for offset, value in records.items():
            found[value].append((tp, offset))
    for transaction in history.transactions:
        values = transaction.values
        visible = [value for value in values if found[value]]
        for value in visible:
            if len(found[value]) > 1:
                yield f"duplicate: {value[:40]!r} of transaction {transaction} is at {found[value]}"
        if transaction.outcome is TransactionOutcome.open and visible:
            yield f"aborted and visible: {len(visible)} records of {transaction}, such as {visible[0][:40]!r}"
        elif transaction.outcome is TransactionOutcome.committed and len(visible) < len(values):
            lost = next(value for value in values if not found[value])
            yield (
                f"lost: {len(values) - len(visible)} of {len(values)} records of {transaction}, which is committed, "
                f"such as {lost[:40]!r} in {values[lost]}"
            )
        elif visible and len(visible) < len(values):
            yield f"partly visible: {len(visible)} of {len(values)} records of {transaction}"


def check_read_committed(history: TransactionHistory, committed: Contents, group: str) -> Iterator[str]:
    """A reader of committed records never saw one that is not committed, and skipped none. The
    members of `group` may have skipped what another member has read."""
    for reader, partitions in history.visible.items():
        for tp, records in partitions.items():
            now = committed.get(tp, {})
            for offset, value in records.items():
                if now.get(offset) != value:
                    yield f"read and not committed: {reader} read {value[:40]!r} at {tp} offset {offset}"
            if reader != group:
                end = history.positions[reader].get(tp, 0)
                if missed := sorted(offset for offset in now if offset < end and offset not in records):
                    yield f"skipped: {reader} read {tp} up to {end} and never saw {missed[:5]}"


def check_inputs_have_one_output(
    history: TransactionHistory, committed: Contents, group_offsets: Mapping[TopicPartition, int]
) -> Iterator[str]:
    """Each committed input below the group's committed offset has one visible output, others have
    none."""
    made: dict[InputPosition, list[bytes]] = defaultdict(list)
    for records in committed.values():
        for value in records.values():
            if (origin := history.outputs.get(value)) is not None:
                made[origin].append(value)
    for tp, end in group_offsets.items():
        for offset in committed.get(tp, {}):
            count = len(made.pop(InputPosition(tp, offset), ()))
            if offset < end and not count:
                yield f"lost: no output of {tp} offset {offset}; the workers have committed {end}"
            elif count > 1:
                yield f"duplicate: {count} outputs of {tp} offset {offset}"
            elif offset >= end and count:
                yield f"output without offset: of {tp} offset {offset}; the workers have committed {end}"
    for origin, values in made.items():
        yield f"output of nothing: {values[0]!r} was made of {origin}, where no committed record is"


def check_instances_do_not_mix(history: TransactionHistory, committed: Contents) -> Iterator[str]:
    """No record of a former instance of a producer comes after one of a newer instance."""
    instances = {value: (one.producer, one.instance) for one in history.transactions for value in one.values}
    for tp, records in committed.items():
        newest: dict[str, int] = {}
        for offset in sorted(records):
            if (found := instances.get(records[offset])) is not None:
                producer, instance = found
                epoch = history.first_epochs[producer][instance]
                if epoch < newest.get(producer, 0):
                    yield (
                        f"out of order: {records[offset][:40]!r} at {tp} offset {offset} comes after records of a "
                        f"newer instance of {producer}"
                    )
                newest[producer] = max(epoch, newest.get(producer, 0))
