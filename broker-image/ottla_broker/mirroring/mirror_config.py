"""A mirror's settings, and which names its patterns match."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeVar

from ottla_broker.config import (
    APPENDED,
    MIRROR_BOOTSTRAP_SERVERS,
    MIRROR_CREDENTIALS_VERSION,
    MIRROR_FETCH_MAX_BYTES,
    MIRROR_FETCH_MAX_WAIT_MS,
    MIRROR_GROUPS,
    MIRROR_MAX_PARTITION_FETCH_BYTES,
    MIRROR_METADATA_MAX_AGE_MS,
    MIRROR_OFFSETS,
    MIRROR_ON_DIVERGENCE,
    MIRROR_ON_SOURCE_TRUNCATION,
    MIRROR_PREFIX,
    MIRROR_ROLE,
    MIRROR_SYNC_ACLS,
    MIRROR_SYNC_CONFIGS,
    MIRROR_THROTTLED_RATE,
    MIRROR_TOPICS,
    MIRROR_USERS,
    REPLICATE,
    RESYNC,
    TRUNCATE,
    Setting,
)
from ottla_broker.config.mirror_settings import source_security
from ottla_broker.config.setting import value_or_default
from ottla_broker.config.value_types import MAX_INT64
from ottla_broker.metadata.image import INTERNAL_TOPICS, MIRROR_RESOURCE, MetadataImage
from ottla_broker.metadata.records import METADATA_TOPIC
from ottla_broker.wire.client import Client, parse_bootstrap_servers
from ottla_broker.wire.client_security import UNSECURED, ClientSecurity

T = TypeVar("T")

NEVER_MIRRORED: Final = INTERNAL_TOPICS | {METADATA_TOPIC}
_INTERNAL_PREFIX: Final = "__"


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """`max_bytes_per_s` is the throttle of each broker.

    `reads_committed` fetches as a read_committed consumer does.
    """

    max_wait_ms: int = 500
    max_bytes: int = 10 << 20
    max_partition_bytes: int = 1 << 20
    max_bytes_per_s: int = MAX_INT64
    reads_committed: bool = False


@dataclass(frozen=True, slots=True)
class MirrorConfig:
    """`bootstrap_servers` are host:port pairs separated by commas.

    `resyncs_on_truncation`: a topic whose source has diverged is deleted and mirrored again from
    the source's log; with appended offsets, its partitions continue at the divergence.
    `truncates_on_divergence`: records that the source does not have may be truncated when a topic
    becomes mirrored. `appends_records`: mirrored records get offsets of their own here.
    `topic_prefix` comes before a topic's name. `users`: patterns of the users whose credentials are
    copied. `credentials_version` is only compared: another one makes brokers reconnect.
    """

    name: str
    bootstrap_servers: str
    topics: tuple[str, ...]
    groups: tuple[str, ...]
    role: str
    resyncs_on_truncation: bool
    sync_configs: bool
    metadata_max_age_s: float
    fetch_limits: FetchLimits
    truncates_on_divergence: bool = False
    security: ClientSecurity = UNSECURED
    credentials_version: str = ""
    topic_prefix: str = ""
    appends_records: bool = False
    sync_acls: bool = False
    users: tuple[str, ...] = ()

    def source_client(self, client_id: str) -> Client:
        return Client(parse_bootstrap_servers(self.bootstrap_servers), client_id=client_id, security=self.security)

    @property
    def is_replicating(self) -> bool:
        return self.role == REPLICATE

    def target_topic(self, topic: str) -> str:
        """Name here of a topic of the source."""
        return self.topic_prefix + topic


def mirror_configs(image: MetadataImage) -> dict[str, MirrorConfig]:
    """Every mirror's settings by its name."""
    return {
        name: _parse_config(name, settings)
        for (kind, name), settings in image.configs.items()
        if kind == MIRROR_RESOURCE
    }


def mirror_config(image: MetadataImage, name: str) -> MirrorConfig | None:
    settings = image.configs.get((MIRROR_RESOURCE, name))
    return None if settings is None else _parse_config(name, settings)


def _parse_config(name: str, settings: Mapping[str, str]) -> MirrorConfig:
    def value(setting: Setting[T]) -> T:
        return value_or_default(setting, settings)

    appends, max_bytes_per_s = value(MIRROR_OFFSETS) == APPENDED, value(MIRROR_THROTTLED_RATE)
    return MirrorConfig(
        name=name,
        bootstrap_servers=",".join(value(MIRROR_BOOTSTRAP_SERVERS)),
        topics=value(MIRROR_TOPICS),
        groups=value(MIRROR_GROUPS),
        role=value(MIRROR_ROLE),
        resyncs_on_truncation=value(MIRROR_ON_SOURCE_TRUNCATION) == RESYNC,
        sync_configs=value(MIRROR_SYNC_CONFIGS),
        metadata_max_age_s=value(MIRROR_METADATA_MAX_AGE_MS) / 1000,
        # One fetch returns no more bytes than the throttle allows in a second.
        fetch_limits=FetchLimits(
            value(MIRROR_FETCH_MAX_WAIT_MS),
            min(value(MIRROR_FETCH_MAX_BYTES), max_bytes_per_s),
            min(value(MIRROR_MAX_PARTITION_FETCH_BYTES), max_bytes_per_s),
            max_bytes_per_s,
            reads_committed=appends,
        ),
        truncates_on_divergence=value(MIRROR_ON_DIVERGENCE) == TRUNCATE,
        security=source_security(value),
        credentials_version=value(MIRROR_CREDENTIALS_VERSION),
        topic_prefix=value(MIRROR_PREFIX),
        appends_records=appends,
        sync_acls=value(MIRROR_SYNC_ACLS),
        users=value(MIRROR_USERS),
    )


def matches_topic(name: str, patterns: Sequence[str]) -> bool:
    """True if `patterns` choose the topic. Topics that brokers write themselves are never
    mirrored.
    """
    return name not in NEVER_MIRRORED and matches_name(name, patterns)


def matches_name(name: str, patterns: Sequence[str]) -> bool:
    """True if a pattern matches the name and no pattern with a leading `!` does.

    A pattern is a name, or contains `*` for any characters. Only a pattern without `*` matches
    names that begin with `__`.
    """
    included = any(_matches(name, pattern) for pattern in patterns if not pattern.startswith("!"))
    return included and not any(_matches(name, pattern[1:]) for pattern in patterns if pattern.startswith("!"))


def _matches(name: str, pattern: str) -> bool:
    if "*" not in pattern:
        return name == pattern
    return not name.startswith(_INTERNAL_PREFIX) and _compile_pattern(pattern).fullmatch(name) is not None


@lru_cache(maxsize=1024)
def _compile_pattern(pattern: str) -> "re.Pattern[str]":
    return re.compile(".*".join(re.escape(part) for part in pattern.split("*")), re.DOTALL)
