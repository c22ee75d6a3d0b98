"""The console's own style sheet and scripts, and the script libraries that are part of it."""

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import web

FOLDER: Final = Path(__file__).parent / "static"
CONTENT_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".txt": "text/plain"}
FOR_EVER: Final = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class StaticFile:
    content_type: str
    compressed: bytes
    digest: str


class StaticFiles:
    """The static files, read once. A file's URL has a digest of its content, so that browsers may
    keep it forever.
    """

    def __init__(self) -> None:
        paths = [path for path in sorted(FOLDER.rglob("*")) if path.suffix in CONTENT_TYPES]
        self._files = {path.name: read_file(path) for path in paths}

    def url(self, name: str) -> str:
        return f"/static/{self._files[name].digest}/{name}"

    async def serve(self, request: web.Request) -> web.Response:
        file = self._files.get(request.match_info["name"])
        if file is None or file.digest != request.match_info["digest"]:
            raise web.HTTPNotFound
        headers = {"Cache-Control": FOR_EVER, "X-Content-Type-Options": "nosniff", "Vary": "Accept-Encoding"}
        body = file.compressed
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            headers["Content-Encoding"] = "gzip"
        else:
            body = gzip.decompress(body)
        return web.Response(body=body, content_type=file.content_type, charset="utf-8", headers=headers)


def read_file(path: Path) -> StaticFile:
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:16]
    return StaticFile(CONTENT_TYPES[path.suffix], gzip.compress(content, mtime=0), digest)
