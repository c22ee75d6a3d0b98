"""Who is on the other end of a connection."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Principal:
    """Kafka's form of an identity: `User:alice`. Made once, when a connection has authenticated."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")  # Kafka's name for who comes in over PLAINTEXT
