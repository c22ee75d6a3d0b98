"""The log of a round: a line for each event, with the seconds since the round began."""

import time
from pathlib import Path


class RoundLog:
    def __init__(self, path: Path, heading: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._started_s = time.monotonic()
        path.write_text(heading + "\n")

    def elapsed_s(self) -> float:
        return time.monotonic() - self._started_s

    def write(self, event: str) -> None:
        with self.path.open("a") as file:
            file.write(f"{self.elapsed_s():7.3f}  {event}\n")

    def append_section(self, heading: str, text: str) -> None:
        with self.path.open("a") as file:
            file.write(f"\n--- {heading}\n{text}\n")
