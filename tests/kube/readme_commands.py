"""README's commands for Kubernetes, in their order."""

from pathlib import Path

ROOT = Path(__file__).parents[2]


def readme_commands() -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = text.partition("## On Kubernetes")[2].partition("```sh\n")[2].partition("```")[0]
    return [line.partition("  #")[0].strip() for line in block.splitlines()]
