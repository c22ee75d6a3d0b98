"""Keys and values that users give as JSON, encoded by schemas of the registry in its framing."""

from collections.abc import Mapping
from typing import Final

from ottla_broker.console.access import ConsoleUser
from ottla_broker.console.record_form import SCHEMA_FORM, RecordFormError
from ottla_broker.console.registry_access import load_registry, may_describe_subject
from ottla_broker.console.schema_framing import FRAME, MAGIC
from ottla_broker.registry.errors import RegistryError
from ottla_broker.registry.languages.value_mismatch import ValueMismatch
from ottla_broker.registry.lazy_registry import LazyRegistry
from ottla_broker.registry.schema import LATEST
from ottla_broker.registry.state import RegistryState, SchemaVersion

ENCODED_FIELDS: Final = ("key", "value")


async def encode_fields(
    registry: LazyRegistry | None, user: ConsoleUser, topic: str, form: Mapping[str, str]
) -> dict[str, bytes]:
    """The encoded key and value, by field, as far as the form has them as JSON by schema. The key's
    schema is the one that the fields `key-subject` and `key-version` name, by default the latest of
    `TOPIC-key`; likewise for the value. Raises RecordFormError, PageError.
    """
    return {
        field: await _encode_field(registry, user, topic, form, field)
        for field in ENCODED_FIELDS
        if form.get(f"{field}-form") == SCHEMA_FORM
    }


async def _encode_field(
    registry: LazyRegistry | None, user: ConsoleUser, topic: str, form: Mapping[str, str], field: str
) -> bytes:
    loaded = await load_registry(registry)
    subject = form.get(f"{field}-subject", "").strip() or f"{topic}-{field}"
    if not may_describe_subject(user, subject) or not loaded.state.versions(subject):
        raise RecordFormError(f"{field}: there is no subject {subject!r} that {user.principal} may describe")
    version = choose_version(loaded.state, subject, form.get(f"{field}-version", ""), field)
    message = form.get(f"{field}-message", "").strip()
    try:
        data = await loaded.encode_value(version, form.get(field, ""), message)
    except ValueMismatch as reason:
        raise RecordFormError(f"{field}, by version {version.version} of {subject}: {reason}") from None
    except RegistryError as reason:
        raise RecordFormError(f"{field}: version {version.version} of {subject}: {reason.message}") from None
    return FRAME.pack(MAGIC, version.id) + data


def choose_version(state: RegistryState, subject: str, number: str, field: str) -> SchemaVersion:
    """The version that the user names by its number; the newest for "latest" or an empty text.
    Raises RecordFormError, which names the form's field.
    """
    text = number.strip()
    wanted = LATEST if text in ("", "latest") else int(text) if text.isdecimal() and len(text) < 10 else 0
    found = state.version(subject, wanted)
    if found is None:
        versions = ", ".join(str(one.version) for one in state.versions(subject))
        raise RecordFormError(f"{field}: {subject} has no version {text[:20]!r}; versions: {versions}")
    return found
