"""The project's images and their cache. `python -m tests.kube.images.build [NAME…]` builds images
and prints their sizes.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.kube.images import archive, debian, dockerfile
from tests.kube.images.layers import BuiltImage, ImageBuilder, size_of
from tests.locks import file_lock

ROOT = Path(__file__).parents[3]
REGISTRY = "ottla.test"  # only part of the images' names; nothing is pulled from it


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
    # Pods of the tests run the broker from source: compiling it takes minutes after each change.
    "broker": Image("broker-image/Dockerfile", "broker-source", "python"),
    "broker-compiled": Image("broker-image/Dockerfile", "broker", "python"),
    "operator": Image("broker-image/Dockerfile", "operator", "python"),
    "client": Image("broker-image/Dockerfile", "client", "operator"),
    "spark": Image("spark-app/Dockerfile", "spark", "java"),
}


def image_reference(name: str) -> str:
    """The image reference for a pod's `image` field."""
    return f"{REGISTRY}/ottla-{name}:test"


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla" / "images"


def missing_requirement() -> str:
    """A sentence about a requirement of image builds that this machine lacks; empty if it has
    all.
    """
    if os.geteuid() != 0:
        return "building images without Docker needs root for overlay mounts and chroot"
    if missing := [program for program in ("debootstrap", "unshare", "chroot") if shutil.which(program) is None]:
        return f"building images without Docker needs {', '.join(missing)} on PATH"
    trial = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, text=True, check=False
    )
    return f"cannot create namespaces on this machine: {trial.stderr.strip()}" if trial.returncode else ""


def build_image(name: str) -> BuiltImage:
    """Builds an image of `IMAGES`; unchanged layers come from the cache. Raises BuildFailed."""
    return _build_stage(IMAGES[name].file, IMAGES[name].stage)


def _build_stage(file: str, stage: str) -> BuiltImage:
    cache_folder().mkdir(parents=True, exist_ok=True)
    with file_lock(cache_folder() / "lock"):
        return ImageBuilder(ROOT, cache_folder() / "layers", BASE_IMAGES).build(
            dockerfile.parse_dockerfile(ROOT / file), stage
        )


def own_size(name: str) -> int:
    """Unpacked size in bytes of the layers above `base_stage`."""
    base = _build_stage(IMAGES[name].file, IMAGES[name].base_stage)
    return sum(size_of(layer) for layer in build_image(name).layers if layer not in base.layers)


def build_archive(name: str) -> Path:
    """Builds the image and returns its OCI archive, which is written only if none has the same
    layers and configuration.
    """
    built = build_image(name)
    folder = cache_folder() / "archives"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{built.digest()}.tar"
    if not path.exists():
        archive.write_archive(path, image_reference(name), built.stage, built.layers)
    return path


def main(names: list[str]) -> int:
    if missing := missing_requirement():
        print(missing, file=sys.stderr)
        return 1
    for name in names or IMAGES:
        built = build_image(name)
        total = sum(size_of(layer) for layer in built.layers)
        print(f"{name}: {total / 1e6:.0f} MB unpacked, {own_size(name) / 1e6:.0f} MB above its base stage")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
