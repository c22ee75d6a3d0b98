"""The features whose level the whole cluster agrees on (KIP-584), which ApiVersions tells clients.

A cluster that has recorded no level has the default one.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Feature:
    """`lowest` to `highest`: the levels that brokers support."""

    name: str
    lowest: int
    highest: int
    default: int


METADATA_VERSION: Final = Feature("metadata.version", 27, 27, 27)
"""Kafka's MetadataVersion 4.1-IV1. Ottla has the metadata and the requests between brokers of one
level only.
"""
TRANSACTION_VERSION: Final = Feature("transaction.version", 0, 2, 2)
"""0, 1: producers keep their epoch (0 without flexible records); 2: each end of a transaction
raises it (KIP-890).
"""
FEATURES: Final = {feature.name: feature for feature in (METADATA_VERSION, TRANSACTION_VERSION)}
