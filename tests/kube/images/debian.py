"""The image `debian:bookworm-slim`, built by debootstrap like Docker's, without documentation and
package caches.
"""

import shutil
import subprocess
from pathlib import Path

from tests.kube.images.layers import BuildFailed

RELEASE = "bookworm"
EMPTIED_FOLDERS = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/info",
    "usr/share/locale",
    "var/cache/apt/archives",
    "var/lib/apt/lists",
)
# Configuration of Docker's Debian image: apt and dpkg keep no packages, caches, documentation or
# translations.
CONFIG_FILES = {
    "etc/apt/apt.conf.d/docker-clean": (
        'APT::Keep-Downloaded-Packages "false"; Dir::Cache::pkgcache ""; Dir::Cache::srcpkgcache "";\n'
    ),
    "etc/dpkg/dpkg.cfg.d/docker": "".join(
        f"path-exclude /usr/share/{name}/*\n" for name in ("doc", "man", "info", "locale", "groff", "linda", "lintian")
    )
    + "path-include /usr/share/doc/*/copyright\n",
}
# debootstrap copies these from the machine; a container gets its own.
EMPTIED_FILES = ("etc/resolv.conf", "etc/hostname", "etc/machine-id")


def install_debian_slim(folder: Path) -> None:
    """Writes the file system of the image into an empty folder. Raises BuildFailed when debootstrap
    fails.
    """
    command = ["debootstrap", "--variant=minbase", RELEASE, str(folder)]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BuildFailed(f"debootstrap: exit code {done.returncode}\n{done.stdout[-2000:]}")
    for name in EMPTIED_FOLDERS:
        shutil.rmtree(folder / name)
        (folder / name).mkdir(parents=True)
    (folder / "var/cache/apt/archives/partial").mkdir()
    (folder / "var/lib/apt/lists/partial").mkdir()
    for name in EMPTIED_FILES:
        (folder / name).write_text("")
    for name, text in CONFIG_FILES.items():
        (folder / name).write_text(text)
    for cache_file in (folder / "var/cache/apt").glob("*.bin"):
        cache_file.unlink()
