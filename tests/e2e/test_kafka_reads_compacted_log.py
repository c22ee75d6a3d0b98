"""Apache Kafka's DumpLogSegments finds no fault in a folder that Ottla has compacted, and reads the
records that Ottla reads.
"""

import re
from pathlib import Path

from msgspec.structs import replace

from ottla_broker.wire.batch import Compression
from ottla_broker.wire.control_records import encode_end_transaction_marker
from ottla_broker.wire.records import Record, encode_batch
from tests.e2e.dump_log_segments import run_dump_log_segments
from tests.unit.records.compacted_log import CONFIG, DAY_MS, CompactedLog

BATCH = re.compile(
    r"^baseOffset: (?P<base>\d+) lastOffset: (?P<last>\d+) count: (?P<count>\d+) baseSequence: (?P<sequence>-?\d+) .*"
    r"deleteHorizonMs: (?P<horizon>\S+) .* isvalid: (?P<valid>\w+)"
)
RECORD = re.compile(r"^\| offset: (?P<offset>\d+) .*keySize: (?P<key>-?\d+) valueSize: (?P<value>-?\d+)")


def dump_lines(*arguments: str) -> list[str]:
    """Standard output only: on standard error the tool reports the gaps that compaction leaves."""
    return run_dump_log_segments(*arguments).stdout.splitlines()


def create_compacted_log(path: Path) -> CompactedLog:
    """A closed log with all that compaction leaves: batches with gaps in every codec, empty
    batches, markers and tombstones with a delete horizon, an aborted transaction in the index, and
    segments that were merged.
    """
    compacted = CompactedLog(path, replace(CONFIG, segment_bytes=8192))
    for n in range(12):
        for codec in Compression:
            records = [
                Record(
                    compacted.now_ms + at, b"%s-%d" % (codec.name.encode(), at), b"%d" % n * 80, (("round", b"%d" % n),)
                )
                for at in range(6)
            ]
            records.append(Record(compacted.now_ms, b"only-%s-%d" % (codec.name.encode(), n), b"here"))
            compacted.append(encode_batch(records, compression=codec))
        compacted.write("transactional", f"{n}", producer_id=1000, sequence=n)
        marker = encode_end_transaction_marker(
            n % 3 != 1, 1, producer_id=1000, producer_epoch=0, timestamp_ms=compacted.now_ms
        )
        compacted.append(marker)
        compacted.write(f"idempotent-{n % 2}", f"{n}", producer_id=5, sequence=n)
        compacted.write(f"only-zstd-{n - 3}", None)
        compacted.now_ms += 1000
    compacted.write("idempotent-0", "x")
    compacted.write("idempotent-1", "x")
    compacted.log.roll()
    for n in range(12, 14):
        assert compacted.clean()
        compacted.now_ms += 1000
        compacted.write("transactional", "never", producer_id=1000, sequence=n)
        compacted.append(
            encode_end_transaction_marker(False, 1, producer_id=1000, producer_epoch=0, timestamp_ms=compacted.now_ms)
        )
        for _ in range(100):
            compacted.write("dirt", "y" * 50)
        compacted.log.roll()
    compacted.clean()
    compacted.log.close()
    compacted.storage.files.close_all()
    return compacted


def test_dump_log_segments_finds_no_fault(tmp_path: Path) -> None:
    compacted = create_compacted_log(tmp_path)
    expected = [(r.offset, r.value) for r in compacted.records()]
    logs = sorted(Path(compacted.folder).glob("*.log"))
    lines = dump_lines("--deep-iteration", "--files", ",".join(map(str, logs)))
    found = [match.groupdict() for line in lines if (match := BATCH.match(line))]
    assert found, lines
    assert {batch["valid"] for batch in found} == {"true"}
    assert any(batch["count"] == "0" for batch in found), "no batch is empty"
    assert any(batch["horizon"].startswith("OptionalLong[") for batch in found), "no batch has a delete horizon"
    assert any(int(batch["count"]) <= int(batch["last"]) - int(batch["base"]) != 0 for batch in found), (
        "no batch has a gap"
    )
    read = [match.groupdict() for line in lines if (match := RECORD.match(line)) and "endTxnMarker" not in line]
    assert [(int(record["offset"]), int(record["value"])) for record in read] == [
        (offset, -1 if value is None else len(value)) for offset, value in expected
    ]
    assert not [line for line in lines if "Mismatches" in line or "Non-consecutive" in line]


def test_indexes_pass_the_checks_of_dump_log_segments(tmp_path: Path) -> None:
    compacted = create_compacted_log(tmp_path)
    files = [
        str(path)
        for suffix in ("index", "timeindex", "txnindex")
        for path in sorted(Path(compacted.folder).glob(f"*.{suffix}"))
    ]
    assert any(path.endswith(".txnindex") for path in files)
    lines = dump_lines("--index-sanity-check", "--files", ",".join(f for f in files if not f.endswith("txnindex")))
    assert sum("passed sanity check" in line for line in lines) >= 2, lines
    lines = dump_lines("--verify-index-only", "--files", ",".join(f for f in files if not f.endswith("txnindex")))
    assert not [line for line in lines if "Mismatches" in line or "not found" in line], lines
    lines = dump_lines("--files", ",".join(f for f in files if f.endswith("txnindex")))
    assert [line for line in lines if "producerId: 1000" in line], lines


def test_log_without_expired_tombstones_and_markers_is_sound(tmp_path: Path) -> None:
    compacted = create_compacted_log(tmp_path)
    compacted.crash_and_open()
    compacted.now_ms += DAY_MS + 1
    for _ in range(100):
        compacted.write("dirt", "z" * 50)
    compacted.log.roll()
    compacted.log.set_config(replace(compacted.config, min_cleanable_dirty_ratio=0.0))
    assert compacted.clean()
    assert not [record for record in compacted.records() if record.value is None]
    compacted.log.close()
    lines = dump_lines("--deep-iteration", "--files", ",".join(map(str, sorted(Path(compacted.folder).glob("*.log")))))
    assert {match["valid"] for line in lines if (match := BATCH.match(line))} == {"true"}
