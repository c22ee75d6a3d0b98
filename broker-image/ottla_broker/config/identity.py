"""Who the broker is, where its data lie and how its cluster is found."""

from ottla_broker.config.addresses import HttpAddress, http_address, register_address
from ottla_broker.config.setting import Setting, Theme
from ottla_broker.config.value_types import integer, list_of, string

_theme = Theme("The broker and its data")

NODE_ID = _theme.broker(
    "node.id",
    integer(at_least=0),
    1,
    "The broker's number, unique in its cluster and never reused. `broker.id` is understood as another name for it.",
    importance="high",
    differs="Kafka has no default; a first single broker should need no setting but its data folder",
)
BROKER_RACK: Setting[str | None] = _theme.broker(
    "broker.rack",
    string("a name", empty=False),
    None,
    "The failure domain (rack, zone) the broker stands in. Replicas of a partition are spread over racks, and consumers that name "
    "their own rack can read from a replica in it.",
)
LOG_DIRS: Setting[tuple[str, ...]] = _theme.broker(
    "log.dirs",
    list_of(allowed="folders separated by commas", check=bool),
    (),
    "The folders that hold partitions; a new partition goes to the one that has the fewest. Falls back to `log.dir`; one of the "
    "two must be given.",
    importance="high",
)
LOG_DIR: Setting[str | None] = _theme.broker(
    "log.dir",
    string("a folder", empty=False),
    None,
    "One folder for partitions; read only when `log.dirs` is not given.",
    importance="high",
    differs="Kafka's default lies below /tmp, where data do not survive; here a folder must be named",
)
REGISTER: Setting[str | None] = _theme.broker(
    "register",
    register_address(),
    None,
    "Where the cluster's register lies, the one small value that says who leads the metadata log: a file shared by the brokers of "
    "one machine, a key in etcd, or a Lease of Kubernetes (the broker needs the rights to get, watch and patch it). Not given: `register.json` in the first of `log.dirs`, a cluster of one broker.",
    importance="high",
    ours=True,
)
REGISTER_LEASE_MS = _theme.broker(
    "register.lease.ms",
    integer(at_least=100),
    2500,
    "How long the metadata log's leader may be silent, in milliseconds, before another member takes over; a leader that has gone (its port "
    "refuses) or has resigned is followed at once. The register is renewed three times in that time.",
    ours=True,
)
HTTP_LISTENER: Setting[HttpAddress | None] = _theme.broker(
    "http.listener",
    http_address(),
    None,
    "Where `/livez`, `/readyz` and `/metrics` are served. Not given: nowhere.",
    ours=True,
)
