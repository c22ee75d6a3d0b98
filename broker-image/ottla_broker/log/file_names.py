"""Names of a log's files and folders, exactly Apache Kafka's.

A segment's files start with its base offset in 20 digits: `00000000000000000042.log`. A partition's
folder is `<topic>-<partition>`. Suffixes `.deleted`, `.cleaned` and `.swap` mark files that are
being removed or put in place; `-delete`, `-future` and `-stray` mark such folders.
"""

from typing import Final

TopicPartition = tuple[str, int]
"""Name of a topic, and number of one of its partitions."""

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
INDEXES: Final = (OFFSET_INDEX, TIME_INDEX, TXN_INDEX)

DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"

DELETE_FOLDER: Final = "-delete"
STRAY_FOLDER: Final = "-stray"
FUTURE_FOLDER: Final = "-future"
MAX_FILE_NAME: Final = 255

LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
META_PROPERTIES: Final = "meta.properties"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
LOCK: Final = ".lock"

_DIGITS: Final = 20


def segment_file(directory: str, base: int, suffix: str) -> str:
    return f"{directory}/{base:020d}{suffix}"


def offset_of(name: str) -> int | None:
    """The base offset in a file's name; None if the name does not start with 20 digits and a
    dot."""
    digits = name[:_DIGITS]
    return int(digits) if name[_DIGITS : _DIGITS + 1] == "." and digits.isdecimal() else None


def partition_folder(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def future_folder(topic: str, partition: int, unique_id: str) -> str:
    """Folder of a replica that moves to another log directory. `unique_id`: 32 hexadecimal
    digits.
    """
    return f"{partition_folder(topic, partition)}.{unique_id}{FUTURE_FOLDER}"


def parse_future_folder_name(folder: str) -> TopicPartition | None:
    """The partition of a future replica's folder; None for any other name."""
    name, dot, _ = folder.rpartition(".")
    return parse_folder_name(name) if dot and folder.endswith(FUTURE_FOLDER) else None


def parse_folder_name(folder: str) -> TopicPartition | None:
    """The partition of a folder; None for any other name, also for one with a
    folder's suffix."""
    topic, dash, number = folder.rpartition("-")
    return (topic, int(number)) if dash and topic and number.isdecimal() else None
