"""Builds the layers of an image from a Dockerfile without Docker: each RUN and COPY runs on an
overlay of the layers before it.

Layers are cached by a digest of their inputs. This serves machines without Docker or a registry:
tests run the same Dockerfiles that users build. Needs root for mounts and chroot. Every step runs
in its own mount and process namespaces, which end with it.
"""

import hashlib
import inspect
import os
import shlex
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tests.kube.images.dockerfile import PATH, NotUnderstood, Stage, Step

# The machine's CA certificates, which a proxy may require. They are mounted into every step and
# stay in no layer.
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
JAVA_AUTHORITIES = Path("/etc/ssl/certs/java/cacerts")
PASSED_ON = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
DEVICES = ("null", "zero", "full", "random", "urandom")

Base = Callable[[Path], None]


class BuildFailed(Exception):
    """A step failed; the message has the end of its output."""


@dataclass(frozen=True, slots=True)
class Built:
    """`layers` are folders, lowest first."""

    stage: Stage
    layers: tuple[Path, ...]

    def digest(self) -> str:
        """Identifies the contents and the configuration of the image."""
        return hashlib.sha256(repr((self.layers[-1].name, self.stage)).encode()).hexdigest()[:16]


class Builder:
    """`context` is the folder that COPY copies from, `cache` the folder of the layers.
    `base_images` maps names in FROM to functions that write their file system into a folder.
    """

    def __init__(self, context: Path, cache: Path, bases: Mapping[str, Base]) -> None:
        self._context = context
        self._cache = cache
        self._bases = bases
        self._ignored = _ignored(context / ".dockerignore")

    def build(self, stages: Mapping[str, Stage], name: str) -> Built:
        stage = stages[name]
        if stage.base in stages:
            layers = self.build(stages, stage.base).layers
        elif (make := self._bases.get(stage.base)) is not None:
            layers = (self._layer(stage.base + _source(make), make),)
        else:
            raise NotUnderstood(f"FROM {stage.base}: known are {', '.join([*self._bases, *stages])}")
        for step in stage.steps:
            layers = (*layers, self._step(step, layers, stages))
        return Built(stage, layers)

    def _step(self, step: Step, below: tuple[Path, ...], stages: Mapping[str, Stage]) -> Path:
        ingredients = [*(layer.name for layer in below), step.instruction, step.text, step.workdir]
        if step.instruction == "RUN":
            ingredients += [f"{key}={value}" for key, value in step.environment.items()]
            return self._layer("\0".join(ingredients), lambda diff: self._run(step, below, diff))
        *sources, target = shlex.split(step.text)
        target = f"{PurePosixPath(step.workdir) / target}{'/' if target.endswith('/') else ''}"
        if sources[0].startswith("--from="):
            other = self.build(stages, sources.pop(0).removeprefix("--from=")).layers
            ingredients += [layer.name for layer in other]
            return self._layer("\0".join(ingredients), lambda diff: _copy_from(other, sources, target, below, diff))
        files = dict(self._files(sources, target))
        ingredients += [f"{path}={_digest(source)}" for path, source in files.items()]
        return self._layer("\0".join(ingredients), lambda diff: _copy(files, below, diff))

    def _layer(self, ingredients: str, make: Base) -> Path:
        layer = self._cache / hashlib.sha256(ingredients.encode()).hexdigest()[:32]
        if not layer.exists():
            self._cache.mkdir(parents=True, exist_ok=True)
            scratch = Path(tempfile.mkdtemp(dir=self._cache, prefix="making-"))
            try:
                (scratch / "diff").mkdir(mode=0o755)
                make(scratch / "diff")
                (scratch / "diff").rename(layer)
            finally:
                shutil.rmtree(scratch)
        return layer

    def _run(self, step: Step, below: tuple[Path, ...], diff: Path) -> None:
        environment = {"HOME": "/root"} | step.environment
        environment |= {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        if AUTHORITIES.exists():
            environment |= dict.fromkeys(("PIP_CERT", "SSL_CERT_FILE"), "/run/authorities.crt")
        script = [*_mounted(below, diff, "root"), *_furnished("root")]
        script.append(
            f"exec chroot root /bin/sh -ec {shlex.quote(f'mkdir -p {step.workdir}; cd {step.workdir}; {step.text}')}"
        )
        _in_namespaces(script, diff.parent, environment, f"RUN {step.text}")

    def _files(self, sources: list[str], target: str) -> Iterator[tuple[str, Path]]:
        """(path in the image, file of the context) of all files that a COPY copies."""
        for source in sources:
            found = self._context / source
            if found.is_dir():
                for path in sorted(found.rglob("*")):
                    if path.is_file() and not self._is_ignored(path.relative_to(self._context)):
                        yield str(PurePosixPath(target) / path.relative_to(found)), path
            elif found.is_file():
                yield target + source.rpartition("/")[2] if target.endswith("/") else target, found
            else:
                raise BuildFailed(f"COPY {source}: there is no such file in the context")

    def _is_ignored(self, path: Path) -> bool:
        return any(path.parts[0] == name for name in self._ignored[0]) or any(
            PurePosixPath(part).match(pattern) for part in path.parts for pattern in self._ignored[1]
        )


def _source(make: Base) -> str:
    """Source of the module of a function: when it changes, its layer is built again."""
    module = inspect.getmodule(make)
    assert module is not None
    return inspect.getsource(module)


def _ignored(path: Path) -> tuple[list[str], list[str]]:
    """Rules of a `.dockerignore`: names at the top of the context, and patterns of names at any
    depth (`**/pattern`).
    """
    lines = (
        [line for line in path.read_text().splitlines() if line and not line.startswith("#")] if path.exists() else []
    )
    anywhere = [line.removeprefix("**/") for line in lines if line.startswith("**/")]
    top = [line.rstrip("/") for line in lines if not line.startswith("**/")]
    if unknown := [line for line in (*anywhere, *top) if "/" in line or line.startswith("!")]:
        raise NotUnderstood(f"{path}: {unknown}")
    return top, anywhere


def _copy(files: Mapping[str, Path], below: tuple[Path, ...], diff: Path) -> None:
    archive = diff.parent / "files.tar"
    with tarfile.open(archive, "w") as tar:
        for target, source in files.items():
            tar.add(source, target.lstrip("/"), filter=_of_root)
    script = [*_mounted(below, diff, "root"), "tar -x --no-overwrite-dir -C root -f files.tar"]
    _in_namespaces(script, diff.parent, {"PATH": PATH}, "COPY")


def _of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = "root"
    return entry


def _copy_from(other: tuple[Path, ...], sources: list[str], target: str, below: tuple[Path, ...], diff: Path) -> None:
    if len(sources) != 1:
        raise NotUnderstood(f"COPY --from of {sources}: one at a time")
    source = f"from{sources[0]}"
    script = [*_mounted(below, diff, "root"), *_mounted(other, diff.parent / "unused", "from")]
    script += [
        f"mkdir -p root{PurePosixPath(target).parent}",
        f"if [ -d {source} ]; then s=/.; mkdir -p root{target}; fi",
    ]
    script += [f'cp -a {source}"${{s:-}}" root{target}']
    (diff.parent / "unused").mkdir()
    _in_namespaces(script, diff.parent, {"PATH": PATH}, f"COPY --from {sources[0]}")


def _mounted(layers: tuple[Path, ...], upper: Path, at: str) -> list[str]:
    lower = ":".join(str(layer) for layer in reversed(layers))
    work = f"{at}.work"
    return [
        f"mkdir {at} {work}",
        f"mount -t overlay overlay -o lowerdir={lower},upperdir={upper},workdir={work} {at}",
    ]


def _furnished(root: str) -> list[str]:
    """Shell commands that mount what a container has besides its files. None of it stays in a
    layer.
    """
    script = [f"mount -t proc proc {root}/proc"]
    script += [f"mount -t tmpfs tmpfs {root}/{name}" for name in ("dev", "run", "tmp")]
    script += [f"chmod 1777 {root}/tmp", f"mkdir {root}/dev/shm"]
    for name in DEVICES:
        script += [f"touch {root}/dev/{name}", f"mount --bind /dev/{name} {root}/dev/{name}"]
    script.append(f"mount --bind /etc/resolv.conf {root}/etc/resolv.conf")
    if AUTHORITIES.exists():
        script.append(f"cp {AUTHORITIES} {root}/run/authorities.crt")
    if JAVA_AUTHORITIES.exists():
        inside = f"{root}{JAVA_AUTHORITIES}"
        script.append(f"if [ -e {inside} ]; then mount --bind {JAVA_AUTHORITIES} {inside}; fi")
    return script


def _in_namespaces(script: list[str], folder: Path, environment: Mapping[str, str], what: str) -> None:
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-euc", "\n".join(script)]
    done = subprocess.run(
        command,
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BuildFailed(f"{what}: exit code {done.returncode}\n{done.stdout[-4000:]}")


def _digest(path: Path) -> str:
    return f"{path.stat().st_mode & 0o777:o}-{hashlib.sha256(path.read_bytes()).hexdigest()}"


def size_of(folder: Path) -> int:
    """Size of a folder's files in bytes; hard links are counted once."""
    seen: dict[tuple[int, int], int] = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        if path.is_file() and not path.is_symlink():
            seen[status.st_dev, status.st_ino] = status.st_size
    return sum(seen.values())
