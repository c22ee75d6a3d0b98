"""Colors of the benchmark's plots, and the parts of SVG that they share."""

from collections.abc import Iterable
from dataclasses import dataclass
from xml.sax.saxutils import escape


@dataclass(frozen=True)
class Theme:
    """Colors in the syntax of SVG."""

    text: str
    muted: str
    ottla: str
    kafka: str


THEMES = {
    "light": Theme(text="#1f2328", muted="#59636e", ottla="#0b6bcb", kafka="#a8b1ba"),
    "dark": Theme(text="#e6edf3", muted="#9198a1", ottla="#58a6ff", kafka="#5d6671"),
}


def svg_document(width: int, height: int, title: str, body: Iterable[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'role="img" font-family="system-ui, sans-serif" font-size="13">'
    )
    return "\n".join([head, f"<title>{escape(title)}</title>", *body, "</svg>", ""])


def text(x: float, y: float, words: str, color: str, *, size: int = 13, weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{color}" font-size="{size}" font-weight="{weight}">{escape(words)}</text>'
    )
