"""docs/protocol.md and `served_versions.py`, made from the declarations in `ottla_broker.api`.

`python -m ottla_broker.requests.protocol_page` writes both; a test fails when they differ from the
declarations.
"""

from importlib import import_module
from pathlib import Path
from typing import Final

from ottla_broker.requests.api import Api, Right
from ottla_broker.security.authorizer import ResourceType
from ottla_broker.wire.api_keys import FIRST_OWN_KEY, ApiKey

PACKAGE: Final = Path(__file__).parents[1]
_RESOURCES: Final = {kind: kind.name.title().replace("_", "") for kind in ResourceType}
SERVED_VERSIONS: Final = PACKAGE / "requests" / "served_versions.py"
PAGE: Final = PACKAGE.parents[1] / "docs" / "protocol.md"

_SERVED_VERSIONS_START = '''\
"""First and last served version of each API, for ApiVersions, without importing their messages.

Made from the declarations in `ottla_broker.api` by `python -m ottla_broker.requests.protocol_page`.
"""

from typing import Final

from ottla_broker.wire.api_keys import ApiKey

SERVED_VERSIONS: Final[dict[int, tuple[int, int]]] = {
'''

_PAGE_START = """\
# Protocol

<!-- Made from the declarations in broker-image/ottla_broker/api by `python -m
ottla_broker.requests.protocol_page`. Edit those instead. -->

The APIs of [Kafka's protocol](https://kafka.apache.org/protocol) that a broker serves, as
ApiVersions lists them. Each is one file of `broker-image/ottla_broker/api`, whose docstring says
what the API does, what each version added, and what is left out.

- The oldest versions are those of Apache Kafka 4, except for Produce: librdkafka disables
  compression when a broker does not list Produce 0. Versions 0 to 2 of Produce are
  answered with UNSUPPORTED_VERSION, as by Kafka 4.
- *Flexible since* is the first version with tagged fields and compact arrays (KIP-482).
- *Forwarded* APIs may be sent to any broker, which forwards them to the active controller
  (KIP-590).
- *Ottla's own* APIs are sent by the operator and the command line. ApiVersions does not list them.

| API | key | versions | flexible since | |
|---|---|---|---|---|
"""


_RIGHTS_START = """
## Authorization

The operations that each API checks with the authorizer, in this order, and its response to a client
that may not do them. Both are Apache Kafka's ([access rules](access.md#access-rules)). Without
`authorizer.class.name` everything is allowed. *The next one is checked*: the client needs the right
of this row or of the next. Where a request names several topics or groups, each has an error of its
own.

| API | operation | resource | if refused |
|---|---|---|---|
"""


def declared_apis() -> list[Api]:
    """The declarations of all files in `ottla_broker.api`, by key."""
    files = {path.stem for path in (PACKAGE / "api").glob("*.py")}
    return [import_module(f"ottla_broker.api.{name}").API for key in ApiKey if (name := key.name.lower()) in files]


def protocol_page() -> str:
    apis = declared_apis()
    rights = "".join(_right_rows(api) for api in apis)
    return _PAGE_START + "".join(_row(api) for api in apis) + _RIGHTS_START + rights


def served_versions_source() -> str:
    rows = (f"    ApiKey.{api.key.name}: ({api.versions[0]}, {api.versions[1]}),\n" for api in declared_apis())
    return _SERVED_VERSIONS_START + "".join(rows) + "}\n"


def _row(api: Api) -> str:
    first, last = api.versions
    versions = f"{first}" if first == last else f"{first}–{last}"
    flexible = "–" if api.flexible is None else str(api.flexible)
    note = "Ottla's own" if api.key >= FIRST_OWN_KEY else "forwarded" if api.is_forwarded else ""
    return f"| {api.key.title} | {int(api.key)} | {versions} | {flexible} | {note} |\n"


def _right_rows(api: Api) -> str:
    return "".join(_right_row(api, right) for right in api.rights) or f"| {api.key.title} | – | | |\n"


def _right_row(api: Api, right: Right) -> str:
    resource = _RESOURCES[right.kind] + (f", {right.when}" if right.when else "")
    return f"| {api.key.title} | {right.operation.name.upper()} | {resource} | {right.refusal} |\n"


if __name__ == "__main__":
    PAGE.write_text(protocol_page(), encoding="utf-8")
    SERVED_VERSIONS.write_text(served_versions_source(), encoding="utf-8")
