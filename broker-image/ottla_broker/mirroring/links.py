"""A mirror's settings as they count now."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from ottla_broker.config import (
    MIRROR_BOOTSTRAP_SERVERS,
    MIRROR_CREDENTIALS_VERSION,
    MIRROR_FETCH_MAX_BYTES,
    MIRROR_FETCH_MAX_WAIT_MS,
    MIRROR_GROUPS,
    MIRROR_MAX_PARTITION_FETCH_BYTES,
    MIRROR_METADATA_MAX_AGE_MS,
    MIRROR_ON_DIVERGENCE,
    MIRROR_ON_SOURCE_TRUNCATION,
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
from ottla_broker.config.kinds import MAX_INT64
from ottla_broker.config.problems import parse_value
from ottla_broker.config.sources import secured
from ottla_broker.metadata.image import MIRROR_RESOURCE, Image
from ottla_broker.wire.channel import OPEN
from ottla_broker.wire.client import Client, parse_bootstrap
from ottla_broker.wire.secured import Secured

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pace:
    """How a mirror fetches: milliseconds and bytes. `rate`: bytes a second for each broker."""

    max_wait_ms: int = 500
    max_bytes: int = 10 << 20
    partition_bytes: int = 1 << 20
    rate: int = MAX_INT64


@dataclass(frozen=True, slots=True)
class Link:
    """`bootstrap`: host:port pairs separated by commas. `replicates`: whether copies are filled; `resyncs`: whether one that the source has parted
    from is made anew; `truncates`: whether what a topic has beyond its source may be cut off when it becomes a copy."""

    name: str
    bootstrap: str
    topics: tuple[str, ...]
    groups: tuple[str, ...]
    role: str
    resyncs: bool
    sync_configs: bool
    refresh_s: float
    pace: Pace
    truncates: bool = False
    secured: Secured = OPEN
    credentials_version: str = ""

    def client(self, client_id: str) -> Client:
        """Of the source."""
        return Client(parse_bootstrap(self.bootstrap), client_id=client_id, secured=self.secured)

    @property
    def replicates(self) -> bool:
        return self.role == REPLICATE


def links(image: Image) -> dict[str, Link]:
    """By name."""
    return {name: _link(name, set_) for (kind, name), set_ in image.configs.items() if kind == MIRROR_RESOURCE}


def link(image: Image, name: str) -> Link | None:
    settings = image.configs.get((MIRROR_RESOURCE, name))
    return None if settings is None else _link(name, settings)


def _link(name: str, settings: Mapping[str, str]) -> Link:
    def of(setting: Setting[T]) -> T:
        text = settings.get(setting.name)
        try:
            return setting.default if text is None else parse_value(setting, text)
        except SettingError:  # written by another version, which allowed more
            return setting.default

    return Link(
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
        ),
        of(MIRROR_ON_DIVERGENCE) == TRUNCATE,
        secured(of),
        of(MIRROR_CREDENTIALS_VERSION),
    )


def _pace(max_wait_ms: int, max_bytes: int, partition_bytes: int, rate: int) -> Pace:
    """One fetch brings no more than what a second may."""
    return Pace(max_wait_ms, min(max_bytes, rate), min(partition_bytes, rate), rate)
