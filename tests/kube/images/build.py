"""The project's images and their cache. `python -m tests.kube.images.build [NAME…]` builds images
and prints their sizes.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.kube.images import archive, debian, dockerfile
from tests.kube.images.layers import BuiltImage, ImageBuilder, size_of

ROOT = Path(__file__).parents[3]
REGISTRY = "ottla.test"  # of names only: nothing is ever fetched from it


@dataclass(frozen=True, slots=True)
class Image:
    """`file` is the Dockerfile in the checkout, `stage` the stage to build; the layers of
    `base_stage` (language runtime) do not count as the image's own.
    """

    file: str
    stage: str
    base_stage: str


BASE_IMAGES = {"debian:bookworm-slim": debian.install_debian_slim}
IMAGES = {
    "broker": Image("broker-image/Dockerfile", "broker", "python"),
    "operator": Image("broker-image/Dockerfile", "operator", "python"),
    "spark": Image("spark-app/Dockerfile", "spark", "java"),
}


def image_reference(name: str) -> str:
    """The image reference for a pod's `image` field."""
    return f"{REGISTRY}/ottla-{name}:test"


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla" / "images"


def missing_requirement() -> str:
    """What this machine lacks to build images, as a sentence; empty if nothing."""
    if os.geteuid() != 0:
        return "only root may build images without Docker: it mounts overlays and changes root"
    if lacking := [program for program in ("debootstrap", "unshare", "chroot") if shutil.which(program) is None]:
        return f"to build images without Docker, {', '.join(lacking)} must be there"
    tried = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, text=True, check=False
    )
    return f"namespaces may not be made here: {tried.stderr.strip()}" if tried.returncode else ""


def build_image(name: str) -> BuiltImage:
    return _build_stage(IMAGES[name].file, IMAGES[name].stage)


def _build_stage(file: str, stage: str) -> BuiltImage:
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return ImageBuilder(ROOT, cache_folder() / "layers", BASE_IMAGES).build(
            dockerfile.parse_dockerfile(ROOT / file), stage
        )


def own_size(name: str) -> int:
    """Unpacked size in bytes of the layers above `base_stage`."""
    below = _build_stage(IMAGES[name].file, IMAGES[name].base_stage)
    return sum(size_of(layer) for layer in build_image(name).layers if layer not in below.layers)


def build_archive(name: str) -> Path:
    """Build the image and return its OCI archive, which is rewritten only when a layer changed."""
    built = build_image(name)
    folder = cache_folder() / "archives"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{built.digest()}.tar"
    if not path.exists():
        archive.write_archive(path, image_reference(name), built.stage, built.layers)
    return path


def main(names: list[str]) -> int:
    if lacking := missing_requirement():
        print(lacking, file=sys.stderr)
        return 1
    for name in names or IMAGES:
        built = build_image(name)
        whole = sum(size_of(layer) for layer in built.layers)
        print(f"{name}: {whole / 1e6:.0f} MB unpacked, {own_size(name) / 1e6:.0f} MB of them beyond Debian and Python")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
