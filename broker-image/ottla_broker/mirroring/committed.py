"""What of a source's answer is to be appended: data of transactions that were committed, or of none. Pure.

The source was asked as a reader of what is committed: it sends nothing behind the first open transaction, and tells which aborted transactions have
records in what it sends (KIP-98). Markers end transactions of the source's producers, of which nothing is left here: they are left out too.
"""

from collections.abc import Iterable, Iterator, Sequence

from ottla_broker.log.transaction_markers import read_end_marker
from ottla_broker.log.validation import HeaderFields
from ottla_broker.wire.batch import CONTROL_FLAG, LOG_OVERHEAD, TRANSACTIONAL_FLAG, BatchHeader


def committed_batches(
    records: memoryview, batches: Iterable[tuple[int, HeaderFields]], aborted: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, HeaderFields]]:
    """Those of `batches` that have records to be appended. `aborted`: (producer id, first offset). KafkaError: CORRUPT_MESSAGE."""
    to_begin = sorted(aborted, key=lambda one: one[1], reverse=True)
    aborting: set[int] = set()
    for at, fields in batches:
        base, length, _, _, _, attributes, delta, _, _, producer_id, _, _, count = fields
        while to_begin and to_begin[-1][1] <= base + delta:
            aborting.add(to_begin.pop()[0])
        if attributes & CONTROL_FLAG:
            marker = read_end_marker(records[at : at + length + LOG_OVERHEAD], BatchHeader(*fields)) if count else None
            if marker is not None and marker.aborts:
                aborting.discard(producer_id)
        elif count and not (attributes & TRANSACTIONAL_FLAG and producer_id in aborting):
            yield at, fields
