"""The small text files of Kafka's log directories.

`recovery-point-offset-checkpoint`, `log-start-offset-checkpoint` and
`replication-offset-checkpoint` hold `0`, the number of entries, and one `<topic> <partition>
<offset>` a line. `partition.metadata` holds `version: 0` and `topic_id: <base64>`.
`meta.properties` is a Java properties file, `version=1`.
"""

import json
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from ottla_broker.log.disk import Disk
from ottla_broker.log.file_names import TopicPartition
from ottla_broker.runtime import uuid_from_text, uuid_text

Offsets = dict[TopicPartition, int]

_TOPIC_ID_FRONT: Final = "version: 0\ntopic_id: "
_ID_CHARACTERS: Final = 22


def read_offsets(disk: Disk, path: str) -> Offsets:
    """Offsets by (topic, partition); empty if there is no file, or an empty one, as Kafka writes it
    at its first start. Raises ValueError, which names the file and the line."""
    if not disk.exists(path):
        return {}
    lines = disk.read_file(path).decode().splitlines()
    if not lines:
        return {}
    if lines[0].strip() != "0":
        raise ValueError(f"{path}:1: version {lines[0]!r}; only 0 is known")
    offsets: Offsets = {}
    for number, line in enumerate(lines[2:], 3):
        try:
            topic, partition, offset = line.split()
            offsets[topic, int(partition)] = int(offset)
        except ValueError:
            raise ValueError(f"{path}:{number}: {line!r} is not <topic> <partition> <offset>") from None
    announced = lines[1].strip() if len(lines) > 1 else "no"
    if str(len(offsets)) != announced:
        raise ValueError(f"{path}:2: {announced} entries announced, {len(offsets)} found")
    return offsets


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    lines = ["0", str(len(offsets)), *(f"{topic} {partition} {at}" for (topic, partition), at in offsets.items())]
    return ("\n".join(lines) + "\n").encode()


def read_topic_id(disk: Disk, path: str) -> UUID | None:
    """The topic's id in a `partition.metadata`; None if there is no file or only its beginning: it
    is written without waiting for the device, so that a loss of power can leave it empty or torn.
    Raises ValueError, which names the file."""
    if not disk.exists(path):
        return None
    text = disk.read_file(path).decode(errors="replace")
    if text == _TOPIC_ID_FRONT[: len(text)] or (
        text.startswith(_TOPIC_ID_FRONT) and len(text) < len(_TOPIC_ID_FRONT) + _ID_CHARACTERS
    ):
        return None
    values = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    try:
        if values["version"] == "0":
            return uuid_from_text(values["topic_id"])
    except (KeyError, ValueError):
        pass
    raise ValueError(f"{path}: not a partition.metadata of version 0: {text!r}")


def encode_topic_id(topic_id: UUID) -> bytes:
    return f"{_TOPIC_ID_FRONT}{uuid_text(topic_id)}\n".encode()


def read_properties(disk: Disk, path: str) -> dict[str, str]:
    """A Java properties file of plain `key=value` lines; empty if there is none."""
    if not disk.exists(path):
        return {}
    lines = (line.strip() for line in disk.read_file(path).decode().splitlines())
    pairs = (line.partition("=") for line in lines if line and line[0] not in "#!")
    return {key.strip(): value.strip() for key, _, value in pairs}


def encode_properties(values: Mapping[str, str]) -> bytes:
    return ("".join(f"{key}={value}\n" for key, value in values.items())).encode()


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    """`.kafka_cleanshutdown` (KIP-966): at the next registration the broker epoch proves that
    nothing was lost."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def decode_clean_shutdown(data: bytes) -> int:
    """The broker epoch when it stopped cleanly; −1 if the file does not have it."""
    try:
        epoch = json.loads(data).get("brokerEpoch")
    except (ValueError, AttributeError):
        return -1
    return epoch if isinstance(epoch, int) else -1
