"""Generated passwords, and Kafka's ScramLoginModule as text."""

import secrets
from collections.abc import Mapping
from typing import Final

PASSWORD_BYTES: Final = 24


def generate_password() -> str:
    """32 letters, digits, - and _: 192 random bits."""
    return secrets.token_urlsafe(PASSWORD_BYTES)


def scram_login_module(user: str, password: str, others: Mapping[str, str] | None = None) -> str:
    """The module with its options quoted. `others`: passwords of users that may log in to the
    broker that has this module.
    """
    accepted = {f"user_{name}": it for name, it in (others or {}).items()}
    options = {"username": user, "password": password, **accepted}
    quoted = (f'{key}="{_quote(value)}"' for key, value in options.items())
    return f"org.apache.kafka.common.security.scram.ScramLoginModule required {' '.join(quoted)};"


def _quote(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
