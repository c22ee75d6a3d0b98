"""Which changed settings running brokers take as they are, and which brokers have to be started again.

A setting that brokers can change while they run is set for the whole cluster through the protocol; it is also on their command lines from their next
start on. What was set so, and is no longer needed because every broker was started with it, or no longer wished, is taken off again: whatever
people have set by other means is left alone.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

Settings = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ConfigChanges:
    """`put`, `drop`: what to set for the whole cluster, and what of ours to take off. `restart`: broker → the settings because of which it has to be
    started again."""

    to_set: Settings
    to_unset: tuple[str, ...]
    restarts: Mapping[int, tuple[str, ...]]


def plan_config_changes(
    started: Mapping[int, Settings | None],
    wanted: Mapping[int, Settings],
    changeable: Collection[str],
    ours: Settings,
) -> ConfigChanges:
    """`started`: what each broker's process was started with, None where that is not known. `changeable`: settings that running brokers take.
    `ours`: what was put before. Only brokers of `wanted` are looked at."""
    put: dict[str, str] = {}
    common = {key for key in changeable if len({settings.get(key) for settings in wanted.values()}) == 1}
    restart: dict[int, tuple[str, ...]] = {}
    for id_, settings in sorted(wanted.items()):
        before = started.get(id_)
        if before is None:
            restart[id_] = ("it is not known with what it was started",)
            continue
        changed = sorted(it for it in before.keys() | settings.keys() if before.get(it) != settings.get(it))
        put |= {it: settings[it] for it in changed if it in common and it in settings}
        if rest := tuple(it for it in changed if it not in put):
            restart[id_] = rest
    return ConfigChanges(
        {key: value for key, value in put.items() if ours.get(key) != value},
        tuple(sorted(it for it in ours if it not in put)),
        restart,
    )
