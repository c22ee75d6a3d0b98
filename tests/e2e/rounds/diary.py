"""What happens in a round, line by line, with the seconds since its beginning."""

import time
from pathlib import Path


class Diary:
    def __init__(self, path: Path, heading: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._began = time.monotonic()
        path.write_text(heading + "\n")

    def seconds(self) -> float:
        return time.monotonic() - self._began

    def say(self, what: str) -> None:
        with self.path.open("a") as file:
            file.write(f"{self.seconds():7.3f}  {what}\n")

    def append(self, heading: str, text: str) -> None:
        with self.path.open("a") as file:
            file.write(f"\n--- {heading}\n{text}\n")
