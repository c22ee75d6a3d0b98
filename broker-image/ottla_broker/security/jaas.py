"""The login module of a `sasl.jaas.config`, as Kafka writes it: `MODULE required name="value" …;`.

Only the modules of Kafka that brokers configure with it are known: PlainLoginModule, whose
`user_NAME` options are the users that may log in, ScramLoginModule, and OAuthBearerLoginModule,
whose `ssl.truststore.location` is for the endpoint of its keys. `username` and `password` are the
broker's own login at other brokers.
"""

import re
from dataclasses import dataclass, field
from typing import Final

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
USER_PREFIX: Final = "user_"
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_OPTION: Final = re.compile(r"""\s*([A-Za-z_][^\s=]*)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s;"']+))""")


@dataclass(frozen=True, slots=True)
class LoginModule:
    """`username`, `password`: the broker's own login. `users`: passwords of the users that may log
    in, by name. `truststore`: a path. Each is empty if it is not set.
    """

    name: str
    username: str = ""
    password: str = field(default="", repr=False)
    users: dict[str, str] = field(default_factory=dict, repr=False)
    truststore: str = ""


def parse_jaas_config(text: str) -> LoginModule:
    """Raises ValueError, whose message has no value of an option: some are secrets."""
    head, body = text.strip(), ""
    parts = head.split(None, 2)
    if len(parts) < 2 or parts[1].rstrip(";").lower() not in _FLAGS:
        raise ValueError("a login module's name and `required` come first")
    module, body = parts[0], parts[2] if len(parts) > 2 else ""
    if module not in (PLAIN_MODULE, SCRAM_MODULE, OAUTHBEARER_MODULE):
        raise ValueError(f"{module} is not a login module of a broker")
    if not text.strip().endswith(";"):
        raise ValueError("it does not end with a semicolon")
    options, at = dict[str, str](), 0
    body = body.strip().removesuffix(";")
    while body[at:].strip():
        found = _OPTION.match(body, at)
        if found is None:
            raise ValueError(f'option {len(options) + 1} is not of the form name="value"')
        quoted, single, bare = found.group(2), found.group(3), found.group(4)
        value = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else single if single is not None else bare
        options[found.group(1)] = value
        at = found.end()
    users = {name.removeprefix(USER_PREFIX): value for name, value in options.items() if name.startswith(USER_PREFIX)}
    truststore = options.get("ssl.truststore.location", "")
    return LoginModule(module, options.get("username", ""), options.get("password", ""), users, truststore)
