"""Names of subjects: `orders-value`, or `:.context:orders-value` in a context other than the
default one.

A context is a registry within the registry: it has ids of its own.
"""

from typing import Final, NamedTuple

DEFAULT_CONTEXT: Final = "."
GLOBAL_CONTEXT: Final = ".__GLOBAL"
WILDCARD: Final = ":*:"
"""The prefix that matches subjects of every context."""
EMPTY_NAME: Final = "__EMPTY"
GLOBAL_NAME: Final = "__GLOBAL"
HIGHEST_ID_NAME: Final = "__HIGHEST_ID"
"""The subject of the record that keeps a context's highest id after its schema is deleted."""
RESERVED_NAMES: Final = frozenset({EMPTY_NAME, GLOBAL_NAME, HIGHEST_ID_NAME})
SUFFIXES: Final = ("-value", "-key")


class SubjectName(NamedTuple):
    """`name`: the subject without its context; empty for the context itself."""

    context: str
    name: str

    @property
    def is_context(self) -> bool:
        """True for `:.context:`, which stands for the whole context."""
        return not self.name and self.context != DEFAULT_CONTEXT

    def __str__(self) -> str:
        return self.name if self.context == DEFAULT_CONTEXT else f":{self.context}:{self.name}"


def parse_subject(text: str) -> SubjectName:
    if text.startswith(":.") or text == "::":
        context, separator, name = text[1:].partition(":")
        if not separator:
            return SubjectName(context, "")
        return SubjectName(context or DEFAULT_CONTEXT, name)
    return SubjectName(DEFAULT_CONTEXT, text)


def context_of(text: str) -> str:
    return parse_subject(text).context


def qualify_subject(subject: str, context: str) -> str:
    """The subject, in `context` unless it names one itself."""
    if subject.startswith(":.") or context == DEFAULT_CONTEXT:
        return subject
    return str(SubjectName(context, subject))


def highest_id_subject(context: str) -> str:
    return str(SubjectName(context, HIGHEST_ID_NAME))


def is_valid_subject(text: str) -> bool:
    """False for an empty name, control characters and the registry's own names, as in Confluent's
    registry.
    """
    name = parse_subject(text).name
    return bool(name) and name not in RESERVED_NAMES and not any(ord(it) < 32 or ord(it) == 127 for it in text)


def topic_of(subject: str) -> str:
    """The topic whose access rules apply to the subject: the one that it is named after
    (TopicNameStrategy), else a topic of the subject's own name.
    """
    name = parse_subject(subject).name
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return name
