"""Every API the broker serves, with its versions: what ApiVersions answers, and where a request goes.

Each name is a module of this package, imported when its first request comes (a broker starts faster, and keeps no
schema in memory that nobody uses). Floors are Apache Kafka 4's, except Produce: librdkafka switches compression off
when Produce is not offered from version 0 (DESIGN, rule 16). Ceilings are what kio offers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
from typing import Final

from ottla_broker.api.form import Form


@dataclass(frozen=True, slots=True)
class Served:
    """An API by its key; versions `low` to `high`; `name` is kio's name of it and that of the module here."""

    key: int
    name: str
    low: int
    high: int


PRODUCE: Final = 0
FETCH: Final = 1
CONTROLLERS: Final = frozenset(
    {19, 20, 37, 43, 45, 46, 55, 64}
)  # what clients ask and only the active controller can answer

DECLARED: Final = (
    Served(PRODUCE, "produce", 0, 13),
    Served(FETCH, "fetch", 4, 18),
    Served(2, "list_offsets", 1, 11),
    Served(3, "metadata", 0, 13),
    Served(8, "offset_commit", 2, 10),
    Served(9, "offset_fetch", 1, 10),
    Served(10, "find_coordinator", 0, 6),
    Served(11, "join_group", 0, 9),
    Served(12, "heartbeat", 0, 4),
    Served(13, "leave_group", 0, 5),
    Served(14, "sync_group", 0, 5),
    Served(15, "describe_groups", 0, 6),
    Served(16, "list_groups", 0, 5),
    Served(18, "api_versions", 0, 4),
    Served(19, "create_topics", 2, 7),
    Served(20, "delete_topics", 1, 6),
    Served(21, "delete_records", 0, 2),
    Served(22, "init_producer_id", 0, 6),
    Served(23, "offset_for_leader_epoch", 2, 4),
    Served(32, "describe_configs", 1, 4),
    Served(33, "alter_configs", 0, 2),
    Served(35, "describe_log_dirs", 1, 5),
    Served(37, "create_partitions", 0, 3),
    Served(42, "delete_groups", 0, 2),
    Served(43, "elect_leaders", 0, 2),
    Served(44, "incremental_alter_configs", 0, 1),
    Served(45, "alter_partition_reassignments", 0, 1),
    Served(46, "list_partition_reassignments", 0, 0),
    Served(47, "offset_delete", 0, 0),
    Served(53, "begin_quorum_epoch", 0, 1),
    Served(55, "describe_quorum", 0, 2),
    Served(56, "alter_partition", 2, 3),
    Served(59, "fetch_snapshot", 0, 1),
    Served(60, "describe_cluster", 0, 2),
    Served(61, "describe_producers", 0, 0),
    Served(62, "broker_registration", 0, 4),
    Served(63, "broker_heartbeat", 0, 2),
    Served(64, "unregister_broker", 0, 0),
    Served(67, "allocate_producer_ids", 0, 0),
    Served(68, "consumer_group_heartbeat", 0, 1),
    Served(74, "list_config_resources", 0, 1),
    Served(75, "describe_topic_partitions", 0, 0),
)


def is_there(api: Served) -> bool:
    return find_spec(f"{__package__}.{api.name}") is not None


@cache
def served() -> Mapping[int, Served]:
    """By key, the APIs whose module is there."""
    return MappingProxyType({api.key: api for api in DECLARED if is_there(api)})


@cache
def form_of(key: int, version: int) -> Form | None:
    """Where a request goes; None when we do not serve it. Imports the API's module."""
    api = served().get(key)
    if api is None or not api.low <= version <= api.high:
        return None
    forms: tuple[Form, ...] = import_module(f"{__package__}.{api.name}").FORMS
    return next((form for form in forms if form.low <= version <= form.high), None)
