"""Why a schema is invalid, or cannot read what another one has written."""

import msgspec


class SchemaError(ValueError):
    """A schema is invalid. The message says why, and where."""


class Incompatibility(msgspec.Struct, frozen=True):
    """`kind`: Confluent's name of the rule. `path`: a JSON pointer into the reader's schema.
    `subject`: the field, symbol or type that the rule is about.
    """

    kind: str
    description: str
    path: str = ""
    subject: str = ""

    def __str__(self) -> str:
        """The form that clients of Confluent's registry print."""
        return f"{{errorType:'{self.kind}', description:'{self.description}', additionalInfo:'{self.subject}'}}"
