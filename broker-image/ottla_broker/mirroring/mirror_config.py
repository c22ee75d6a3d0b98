"""A mirror's settings as they count now."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

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
    MIRROR_SYNC_CONFIGS,
    MIRROR_THROTTLED_RATE,
    MIRROR_TOPICS,
    REPLICATE,
    RESYNC,
    TRUNCATE,
    Setting,
    SettingError,
)
from ottla_broker.config.problems import parse_value
from ottla_broker.config.sources import source_security
from ottla_broker.config.value_types import MAX_INT64
from ottla_broker.metadata.image import MIRROR_RESOURCE, MetadataImage
from ottla_broker.wire.channel import UNSECURED
from ottla_broker.wire.client import Client, parse_bootstrap_servers
from ottla_broker.wire.client_security import ClientSecurity

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """How a mirror fetches: milliseconds and bytes. `rate`: bytes a second for each broker; `committed_only`: only what readers of committed
    transactions see."""

    max_wait_ms: int = 500
    max_bytes: int = 10 << 20
    max_partition_bytes: int = 1 << 20
    max_bytes_per_s: int = MAX_INT64
    reads_committed: bool = False


@dataclass(frozen=True, slots=True)
class MirrorConfig:
    """`bootstrap`: host:port pairs separated by commas. `replicates`: whether copies are filled; `resyncs`: whether one that the source has parted
    from is made anew; `truncates`: whether what a topic has beyond its source may be cut off when it becomes a copy; `prefix`: before a topic's name
    there makes that of its copy; `appends`: whether records get offsets of their own here."""

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

    def source_client(self, client_id: str) -> Client:
        """Of the source."""
        return Client(parse_bootstrap_servers(self.bootstrap_servers), client_id=client_id, security=self.security)

    @property
    def is_replicating(self) -> bool:
        return self.role == REPLICATE

    def target_topic(self, topic: str) -> str:
        """What the copy of a topic of the source is called."""
        return self.topic_prefix + topic


def mirror_configs(image: MetadataImage) -> dict[str, MirrorConfig]:
    """By name."""
    return {name: _link(name, set_) for (kind, name), set_ in image.configs.items() if kind == MIRROR_RESOURCE}


def mirror_config(image: MetadataImage, name: str) -> MirrorConfig | None:
    settings = image.configs.get((MIRROR_RESOURCE, name))
    return None if settings is None else _link(name, settings)


def _link(name: str, settings: Mapping[str, str]) -> MirrorConfig:
    def of(setting: Setting[T]) -> T:
        text = settings.get(setting.name)
        try:
            return setting.default if text is None else parse_value(setting, text)
        except SettingError:  # written by another version, which allowed more
            return setting.default

    appends = of(MIRROR_OFFSETS) == APPENDED
    return MirrorConfig(
        name,
        ",".join(of(MIRROR_BOOTSTRAP_SERVERS)),
        of(MIRROR_TOPICS),
        of(MIRROR_GROUPS),
        of(MIRROR_ROLE),
        of(MIRROR_ON_SOURCE_TRUNCATION) == RESYNC,
        of(MIRROR_SYNC_CONFIGS),
        of(MIRROR_METADATA_MAX_AGE_MS) / 1000,
        _pace(
            of(MIRROR_FETCH_MAX_WAIT_MS),
            of(MIRROR_FETCH_MAX_BYTES),
            of(MIRROR_MAX_PARTITION_FETCH_BYTES),
            of(MIRROR_THROTTLED_RATE),
            appends,
        ),
        of(MIRROR_ON_DIVERGENCE) == TRUNCATE,
        source_security(of),
        of(MIRROR_CREDENTIALS_VERSION),
        of(MIRROR_PREFIX),
        appends,
    )


def _pace(max_wait_ms: int, max_bytes: int, partition_bytes: int, rate: int, committed_only: bool) -> FetchLimits:
    """One fetch brings no more than what a second may."""
    return FetchLimits(max_wait_ms, min(max_bytes, rate), min(partition_bytes, rate), rate, committed_only)
