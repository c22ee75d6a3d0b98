"""docs/settings.md, made from the table: `python -m ottla_broker.config.settings_page > docs/settings.md`. A test fails when they differ."""

from itertools import groupby

from ottla_broker.config import Setting, groups, identity, logs, mirrors, network, replication, tls, topics
from ottla_broker.config.ignored_settings import NOTED, REFUSED

_OPENING = """\
# Settings

<!-- Made from the table in broker-image/ottla_broker/config by `python -m ottla_broker.config.settings_page`. Edit that instead. -->

Names and meanings are Apache Kafka's; defaults are Kafka 4.1's where the text does not say otherwise. A broker reads them from
`--config FILE` (the format of Kafka's server.properties; may be given several times) and `--set key=value`, the later over the earlier.
In a file, `${env:NAME}` is the value of an environment variable; a setting that is nothing but an empty variable counts as not given. A setting that is
`${directory:PATH:FILE}` has what is in that file as its value.
A setting that is unknown or not possible stops the start with a line that names file, line, setting, value and what is allowed.

What can be changed while brokers run is changed by Kafka's own tools (`kafka-configs.sh`, or any admin client). The strongest wins: the
topic's own value, this broker's dynamic value, the dynamic default of all brokers, the file, the default.
"""

_NOTED = """
## Settings of Kafka's that have no effect

They are accepted, with a note in the log at start, so that a server.properties written for Kafka works. A name that ends in a dot stands
for all that begin with it.

| setting | why |
|---|---|
"""

_REFUSED = """
## Settings of Kafka's that are refused

What would leave someone believing in a protection or a feature that is not there is an error.

| setting | why |
|---|---|
"""


def page() -> str:
    parts = [_OPENING]
    modules = (identity, network, tls, topics, logs, replication, groups, mirrors)
    settings = [value for module in modules for value in vars(module).values() if isinstance(value, Setting)]
    for theme, members in groupby(settings, key=lambda setting: setting.theme):
        parts.append(
            f"\n## {theme}\n\n| setting | default | allowed | can change | what it does |\n|---|---|---|---|---|\n"
        )
        parts += [_row(setting) for setting in members]
    parts.append(_NOTED)
    parts += [f"| `{name}` | {why} |\n" for name, why in sorted(NOTED.items())]
    parts.append(_REFUSED)
    parts += [f"| `{name}` | {why} |\n" for name, (_, why) in sorted(REFUSED.items())]
    return "".join(parts)


def _row(setting: Setting[object]) -> str:
    text = setting.doc
    if setting.ours:
        text += " (Ottla's own.)"
    if setting.not_yet:
        text += f" No effect yet: {setting.not_yet}."
    if setting.differs:
        text += f" Differs from Kafka: {setting.differs}."
    if setting.from_broker:
        text += f" Default from the broker's {', '.join(f'`{behind.setting.name}`' for behind in setting.from_broker)}."
    default = setting.default_text
    shown = "not given" if default is None else f"`{default}`" if default else "empty"
    return f"| `{setting.name}` | {shown} | {setting.kind.allowed} | {setting.scope.value} | {text} |\n"


if __name__ == "__main__":
    print(page(), end="")
