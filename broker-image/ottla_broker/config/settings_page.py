"""docs/settings.md, made from the tables: `python -m ottla_broker.config.settings_page >
docs/settings.md`.

A test fails when they differ.
"""

from itertools import chain, groupby

from ottla_broker.config import (
    BROKER_SETTINGS,
    CLIENT_METRICS_SETTINGS,
    GROUP_SETTINGS,
    MIRROR_SETTINGS,
    TOPIC_SETTINGS,
    Setting,
)
from ottla_broker.config.ignored_settings import IGNORED_DYNAMIC, IGNORED_STATIC, REFUSED

_START = """\
# Broker settings

<!-- Made from the tables in broker-image/ottla_broker/config by `python -m
ottla_broker.config.settings_page`. Edit those instead. -->

Names and meanings are Apache Kafka's, defaults Kafka 4.1's unless the text says otherwise. A
broker reads settings from `--config FILE` (in the format of Kafka's server.properties; may be
repeated) and `--set key=value`; later ones override earlier ones. In a file, `${env:NAME}` is the
value of an environment variable, and a setting that is only an empty variable counts as not set.
`${directory:PATH:FILE}` is the content of a file. An unknown name or invalid value stops the
start with a line that names file, line, setting, value and the allowed values.

*Update mode* is Kafka's "dynamic update mode": a setting that is not `read-only` can change while
brokers run, by `kafka-configs.sh` or any admin client. Precedence, highest first: the topic's own
value, this broker's dynamic value, the cluster-wide dynamic default, the file, the default.
"""

_TABLE = "| setting | default | allowed | update mode | meaning |\n|---|---|---|---|---|\n"

_IGNORED = """
## Settings of Kafka without effect

Accepted with a note at start, so that a server.properties written for Kafka works. A name that
ends in a dot stands for all names that begin with it. Those that Kafka can change while brokers
run can be set dynamically, too; so can names that are unknown to Kafka itself, which plugins of
Kafka's may read. A broker logs a warning for each, with the nearest name that it knows.

| setting | why |
|---|---|
"""

_REFUSED = """
## Settings of Kafka that are refused

Any value but Kafka's default stops the start: it would suggest a protection or a feature that is
missing.

| setting | why |
|---|---|
"""


def settings_page() -> str:
    parts = [_START]
    settings = chain(
        BROKER_SETTINGS.values(),
        TOPIC_SETTINGS.values(),
        GROUP_SETTINGS.values(),
        CLIENT_METRICS_SETTINGS.values(),
        MIRROR_SETTINGS.values(),
    )
    for section, rows in groupby(settings, key=lambda setting: setting.section):
        parts.append(f"\n## {section}\n\n{_TABLE}")
        parts += [_row(setting) for setting in rows]
    parts.append(_IGNORED)
    parts += [f"| `{name}` | {reason} |\n" for name, reason in sorted({**IGNORED_STATIC, **IGNORED_DYNAMIC}.items())]
    parts.append(_REFUSED)
    parts += [f"| `{name}` | {reason} |\n" for name, (_, reason) in sorted(REFUSED.items())]
    return "".join(parts)


def _row(setting: Setting[object]) -> str:
    text = setting.doc
    if setting.is_ottla_only:
        text += " (Ottla only.)"
    if setting.no_effect:
        text += f" No effect: {setting.no_effect}."
    if setting.differs:
        text += f" Differs from Kafka: {setting.differs}."
    if setting.broker_defaults:
        names = ", ".join(f"`{default.setting.name}`" for default in setting.broker_defaults)
        text += f" Default from the broker's {names}."
    default = setting.default_text
    shown = "not set" if default is None else f"`{default}`" if default else "empty"
    return f"| `{setting.name}` | {shown} | {setting.type.allowed} | {setting.update_mode.value} | {text} |\n"


if __name__ == "__main__":
    print(settings_page(), end="")
