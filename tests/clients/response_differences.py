"""Differences between two normalized responses."""

from collections.abc import Iterator

from tests.clients.api_session import NAME_FIELDS, Json

MISSING = "nothing"


def find_differences(wanted: Json, got: Json, path: str = "") -> Iterator[tuple[str, Json, Json]]:
    """The path and both values of each difference; `MISSING` for a value that one side lacks. List
    entries are matched by name.
    """
    if isinstance(wanted, list) and isinstance(got, list):
        wanted, got = index_by_name(wanted), index_by_name(got)
    if isinstance(wanted, dict) and isinstance(got, dict):
        for name in wanted | got:
            yield from find_differences(
                wanted.get(name, MISSING), got.get(name, MISSING), path + (name if name.startswith("[") else f".{name}")
            )
    elif wanted != got or type(wanted) is not type(got):
        yield path, wanted, got


def index_by_name(entries: list[Json]) -> dict[str, Json]:
    """Entries by their name, so that a missing one does not shift the rest. Those without a name
    are by index.
    """
    found: dict[str, Json] = {}
    for at, entry in enumerate(entries):
        name = next((entry[field] for field in NAME_FIELDS if entry.get(field)), at) if isinstance(entry, dict) else at
        found[f"[{name}]" if f"[{name}]" not in found else f"[{name} {at}]"] = entry
    return found
