"""Settings: what a broker, a topic or a mirror can be configured with, and the values in effect.

    config = Config.load(["server.properties"], ["log.dirs=/data"])
    config(NUM_PARTITIONS)        # int: the value in effect
    config.log_config(overrides)  # LogConfig of a topic with these overrides

Every setting is one row of a table. Those of brokers are in `broker_settings`, `cluster_settings`,
`security_settings`, `console_settings`, `registry_settings`, `tracing_settings` and partly
`topic_settings`. Others are in `topic_settings` (names that start with TOPIC_), `group_settings`,
`client_metrics_settings` and `mirror_settings` (MIRROR_). Validation, DescribeConfigs and
docs/settings.md are made of the rows.
"""

from ottla_broker.config.addresses import HttpAddress as HttpAddress
from ottla_broker.config.addresses import Listener as Listener
from ottla_broker.config.broker_settings import *  # noqa: F403 (the rows' constants are this package's interface)
from ottla_broker.config.client_metrics_settings import *  # noqa: F403
from ottla_broker.config.cluster_settings import *  # noqa: F403
from ottla_broker.config.config import Config as Config
from ottla_broker.config.console_settings import *  # noqa: F403
from ottla_broker.config.description import ConfigEntry as ConfigEntry
from ottla_broker.config.description import ConfigSource as ConfigSource
from ottla_broker.config.description import ConfigSynonym as ConfigSynonym
from ottla_broker.config.group_settings import *  # noqa: F403
from ottla_broker.config.mirror_settings import *  # noqa: F403
from ottla_broker.config.registry_settings import *  # noqa: F403
from ottla_broker.config.security_settings import *  # noqa: F403
from ottla_broker.config.server_properties import find_setting_problems as find_setting_problems
from ottla_broker.config.server_properties import has_reference as has_reference
from ottla_broker.config.setting import BROKER_SETTINGS as BROKER_SETTINGS
from ottla_broker.config.setting import CLIENT_METRICS_SETTINGS as CLIENT_METRICS_SETTINGS
from ottla_broker.config.setting import GROUP_SETTINGS as GROUP_SETTINGS
from ottla_broker.config.setting import MIRROR_SETTINGS as MIRROR_SETTINGS
from ottla_broker.config.setting import TOPIC_SETTINGS as TOPIC_SETTINGS
from ottla_broker.config.setting import Setting as Setting
from ottla_broker.config.setting import SettingError as SettingError
from ottla_broker.config.setting import UpdateMode as UpdateMode
from ottla_broker.config.topic_settings import *  # noqa: F403
from ottla_broker.config.tracing_settings import *  # noqa: F403
