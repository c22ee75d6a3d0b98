"""The features whose level the whole cluster agrees on (KIP-584), which ApiVersions reports to
clients.

A cluster that has recorded no level has the default one.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec

from ottla_broker.metadata.records import FeatureLevelRecord
from ottla_broker.wire.errors import ErrorCode, KafkaError


class Feature(msgspec.Struct, frozen=True):
    """`lowest` to `highest`: the levels that brokers support. `may_be_lowered`: False if its
    finalized level can only rise.
    """

    name: str
    lowest: int
    highest: int
    default: int
    may_be_lowered: bool = True


METADATA_VERSION: Final = Feature("metadata.version", 27, 27, 27)
"""Kafka's MetadataVersion 4.1-IV1. Ottla has the metadata and the requests between brokers of one
level only.
"""
KRAFT_VERSION: Final = Feature("kraft.version", 0, 1, 1, may_be_lowered=False)
"""1: the log of the metadata names its voters, which can change (KIP-853). Ottla's log always does;
voters of level 0 would be named by the settings of Apache Kafka's controllers.
"""
TRANSACTION_VERSION: Final = Feature("transaction.version", 0, 2, 2)
"""0, 1: producers keep their epoch (0 without flexible records); 2: each end of a transaction
raises it (KIP-890).
"""
GROUP_VERSION: Final = Feature("group.version", 0, 1, 1)
"""1: the consumer protocol is served (KIP-848)."""
SHARE_VERSION: Final = Feature("share.version", 0, 2, 1)
"""1: share groups are served (KIP-932); 2: they may have dead-letter topics (KIP-1191)."""
STREAMS_VERSION: Final = Feature("streams.version", 0, 1, 1)
"""1: the streams protocol is served (KIP-1071)."""
FEATURES: Final = {
    feature.name: feature
    for feature in (
        METADATA_VERSION,
        KRAFT_VERSION,
        TRANSACTION_VERSION,
        GROUP_VERSION,
        STREAMS_VERSION,
        SHARE_VERSION,
    )
}


class UpgradeType(IntEnum):
    """Kafka's FeatureUpdate.UpgradeType."""

    upgrade = 1
    safe_downgrade = 2
    unsafe_downgrade = 3


class FeatureUpdate(NamedTuple):
    """`level` 0 disables the feature, if it supports that level."""

    feature: str
    level: int
    upgrade_type: UpgradeType


def plan_feature_updates(levels: Mapping[str, int], updates: Sequence[FeatureUpdate]) -> list[FeatureLevelRecord]:
    """The records of levels that change. `levels`: those recorded so far. Raises
    INVALID_UPDATE_VERSION for the first update that is not allowed."""
    return [
        FeatureLevelRecord(update.feature, update.level)
        for update in updates
        if _find_level(levels, update.feature) != _checked_level(levels, update)
    ]


def _find_level(levels: Mapping[str, int], name: str) -> int:
    """The present level of a feature; 0 for an unknown one."""
    feature = FEATURES.get(name)
    return levels.get(name, feature.default if feature else 0)


def _checked_level(levels: Mapping[str, int], update: FeatureUpdate) -> int:
    """The level of an update that is allowed. Raises INVALID_UPDATE_VERSION."""
    name, level, upgrade_type = update
    feature, current = FEATURES.get(name), _find_level(levels, name)
    if feature is None:
        raise _invalid(f"feature {name} is unknown; {', '.join(FEATURES)} are known")
    if not feature.lowest <= level <= feature.highest:
        raise _invalid(f"level {level} of feature {name}; {feature.lowest} to {feature.highest} are supported")
    if level < current and upgrade_type is UpgradeType.upgrade:
        raise _invalid(f"level {level} of feature {name} is lower than {current}; ask for a downgrade")
    if level < current and not feature.may_be_lowered:
        raise _invalid(f"level {level} of feature {name} is lower than {current}, and this feature is never lowered")
    if level > current and upgrade_type is not UpgradeType.upgrade:
        raise _invalid(f"level {level} of feature {name} is higher than {current}; ask for an upgrade")
    return level


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_update_version, reason)
