"""Every setting once: Kafka's name, type, default, scope, meaning. Validation, DescribeConfigs and docs/settings.md come from this table.

    config = Config.load(["server.properties"], ["log.dirs=/data"])
    config(NUM_PARTITIONS)        # int: the value that counts now
    config.log_config(overrides)  # LogConfig of a topic with these overrides

The settings are declared by theme: identity, network, TLS, replication, logs, topics (names start with TOPIC_), mirrors (MIRROR_) and groups.
"""

from ottla_broker.config.addresses import HttpAddress as HttpAddress
from ottla_broker.config.addresses import Listener as Listener
from ottla_broker.config.config import Config as Config
from ottla_broker.config.entries import ConfigEntry as ConfigEntry
from ottla_broker.config.entries import ConfigSource as ConfigSource
from ottla_broker.config.entries import ConfigSynonym as ConfigSynonym
from ottla_broker.config.groups import *  # noqa: F403 (the constants of a theme are this package's face)
from ottla_broker.config.identity import *  # noqa: F403
from ottla_broker.config.logs import *  # noqa: F403
from ottla_broker.config.mirrors import *  # noqa: F403
from ottla_broker.config.network import *  # noqa: F403
from ottla_broker.config.problems import SettingError as SettingError
from ottla_broker.config.replication import *  # noqa: F403
from ottla_broker.config.setting import BROKER_SETTINGS as BROKER_SETTINGS
from ottla_broker.config.setting import MIRROR_SETTINGS as MIRROR_SETTINGS
from ottla_broker.config.setting import TOPIC_SETTINGS as TOPIC_SETTINGS
from ottla_broker.config.setting import Scope as Scope
from ottla_broker.config.setting import Setting as Setting
from ottla_broker.config.tls import *  # noqa: F403
from ottla_broker.config.topics import *  # noqa: F403
