"""Writes the files that are generated from the resources' types, in the checkout that is the working directory.

`python -m ottla_operator.resources.generate` writes the CRDs to `crds/` and to the chart, and their reference to
`docs/crds.md`. A unit test fails if the files differ from what this writes.
"""

from pathlib import Path
from typing import Final

from ottla_operator.resources.crd_reference import render_reference
from ottla_operator.resources.crds import render_crds

CRD_FOLDERS: Final = (Path("crds"), Path("charts/ottla/files/crds"))
REFERENCE: Final = Path("docs/crds.md")


def generated_files() -> dict[Path, str]:
    """Path in the checkout and content of every generated file."""
    crds = render_crds()
    return {folder / name: text for folder in CRD_FOLDERS for name, text in crds.items()} | {
        REFERENCE: render_reference()
    }


def main() -> None:
    for path, text in generated_files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
