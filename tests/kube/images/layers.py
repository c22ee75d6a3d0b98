"""Builds the layers of an image from a Dockerfile without Docker: each RUN and COPY runs on an
overlay of the layers before it.

Layers are cached by a digest of their inputs. Tests thus run images of the same Dockerfiles that
users build, also on machines without Docker or a registry. Needs root for mounts and chroot. Every
step runs in its own mount and process namespaces, which end with it.
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

from tests.kube.images.dockerfile import DEFAULT_PATH, Stage, Step, UnsupportedDockerfile

# The machine's CA certificates, which a proxy may require. Every RUN step can read them, and no
# layer has them.
CA_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
JAVA_CA_CERTIFICATES = Path("/etc/ssl/certs/java/cacerts")
PROXY_VARIABLES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
DEVICES = ("null", "zero", "full", "random", "urandom")

LayerWriter = Callable[[Path], None]


class BuildFailed(Exception):
    """A step failed; the message has the end of its output."""


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """`layers` are folders, lowest first."""

    stage: Stage
    layers: tuple[Path, ...]

    def digest(self) -> str:
        """Identifies the contents and the configuration of the image."""
        return hashlib.sha256(repr((self.layers[-1].name, self.stage)).encode()).hexdigest()[:16]


class ImageBuilder:
    """`context` is the folder that COPY copies from, `cache` the folder of the layers.
    `base_images` maps names in FROM to functions that write their file system into a folder.
    """

    def __init__(self, context: Path, cache: Path, base_images: Mapping[str, LayerWriter]) -> None:
        self._context = context
        self._cache = cache
        self._base_images = base_images
        self._ignore_rules = _read_dockerignore(context / ".dockerignore")

    def build(self, stages: Mapping[str, Stage], name: str) -> BuiltImage:
        """Builds a stage and the stages that it depends on. Raises BuildFailed and
        UnsupportedDockerfile.
        """
        stage = stages[name]
        if stage.base in stages:
            layers = self.build(stages, stage.base).layers
        elif (write_base := self._base_images.get(stage.base)) is not None:
            layers = (self._cached_layer(stage.base + _source_of(write_base), write_base),)
        else:
            raise UnsupportedDockerfile(
                f"FROM {stage.base}: known base images and stages are {', '.join([*self._base_images, *stages])}"
            )
        for step in stage.steps:
            layers = (*layers, self._build_step(step, layers, stages))
        return BuiltImage(stage, layers)

    def _build_step(self, step: Step, below: tuple[Path, ...], stages: Mapping[str, Stage]) -> Path:
        """The layer that a step creates on top of the layers `below`."""
        inputs = [*(layer.name for layer in below), step.instruction, step.text, step.workdir]
        if step.instruction == "RUN":
            inputs += [f"{key}={value}" for key, value in step.environment.items()]
            return self._cached_layer("\0".join(inputs), lambda diff: self._run_command(step, below, diff))
        *sources, target = shlex.split(step.text)
        target = f"{PurePosixPath(step.workdir) / target}{'/' if target.endswith('/') else ''}"
        if sources[0].startswith("--from="):
            from_layers = self.build(stages, sources.pop(0).removeprefix("--from=")).layers
            inputs += [layer.name for layer in from_layers]
            return self._cached_layer(
                "\0".join(inputs), lambda diff: _copy_from_stage(from_layers, sources, target, below, diff)
            )
        files = dict(self._list_files(sources, target))
        inputs += [f"{path}={_file_digest(source)}" for path, source in files.items()]
        return self._cached_layer("\0".join(inputs), lambda diff: _copy_files(files, below, diff))

    def _cached_layer(self, inputs: str, write_layer: LayerWriter) -> Path:
        """The layer for these inputs, written by `write_layer` if it is not in the cache."""
        layer = self._cache / hashlib.sha256(inputs.encode()).hexdigest()[:32]
        if not layer.exists():
            self._cache.mkdir(parents=True, exist_ok=True)
            scratch = Path(tempfile.mkdtemp(dir=self._cache, prefix="making-"))
            try:
                (scratch / "diff").mkdir(mode=0o755)
                write_layer(scratch / "diff")
                (scratch / "diff").rename(layer)
            finally:
                shutil.rmtree(scratch)
        return layer

    def _run_command(self, step: Step, below: tuple[Path, ...], diff: Path) -> None:
        environment = {"HOME": "/root"} | step.environment
        environment |= {name: os.environ[name] for name in PROXY_VARIABLES if name in os.environ}
        if CA_CERTIFICATES.exists():
            environment |= dict.fromkeys(("PIP_CERT", "SSL_CERT_FILE"), "/run/authorities.crt")
        script = [*_overlay_commands(below, diff, "root"), *_container_mount_commands("root")]
        script.append(
            f"exec chroot root /bin/sh -ec {shlex.quote(f'mkdir -p {step.workdir}; cd {step.workdir}; {step.text}')}"
        )
        _run_in_namespaces(script, diff.parent, environment, f"RUN {step.text}")

    def _list_files(self, sources: list[str], target: str) -> Iterator[tuple[str, Path]]:
        """(path in the image, file of the context) of all files that a COPY copies."""
        for source in sources:
            copied = self._context / source
            if copied.is_dir():
                for path in sorted(copied.rglob("*")):
                    if path.is_file() and not self._is_ignored(path.relative_to(self._context)):
                        yield str(PurePosixPath(target) / path.relative_to(copied)), path
            elif copied.is_file():
                yield target + source.rpartition("/")[2] if target.endswith("/") else target, copied
            else:
                raise BuildFailed(f"COPY {source}: no such file or folder in the context")

    def _is_ignored(self, path: Path) -> bool:
        return any(path.parts[0] == name for name in self._ignore_rules[0]) or any(
            PurePosixPath(part).match(pattern) for part in path.parts for pattern in self._ignore_rules[1]
        )


def _source_of(write_layer: LayerWriter) -> str:
    """Source of the module of a function: when it changes, its layer is built again."""
    module = inspect.getmodule(write_layer)
    assert module is not None
    return inspect.getsource(module)


def _read_dockerignore(path: Path) -> tuple[list[str], list[str]]:
    """Rules of a `.dockerignore`: names at the top of the context, and patterns of names at any
    depth (`**/pattern`).
    """
    lines = (
        [line for line in path.read_text().splitlines() if line and not line.startswith("#")] if path.exists() else []
    )
    patterns = [line.removeprefix("**/") for line in lines if line.startswith("**/")]
    top_names = [line.rstrip("/") for line in lines if not line.startswith("**/")]
    if unsupported := [line for line in (*patterns, *top_names) if "/" in line or line.startswith("!")]:
        raise UnsupportedDockerfile(f"{path}: rules {unsupported} are not supported")
    return top_names, patterns


def _copy_files(files: Mapping[str, Path], below: tuple[Path, ...], diff: Path) -> None:
    """Copies files (path in the image → file) into the layer `diff`, owned by root."""
    archive = diff.parent / "files.tar"
    with tarfile.open(archive, "w") as tar:
        for target, source in files.items():
            tar.add(source, target.lstrip("/"), filter=_owned_by_root)
    script = [*_overlay_commands(below, diff, "root"), "tar -x --no-overwrite-dir -C root -f files.tar"]
    _run_in_namespaces(script, diff.parent, {"PATH": DEFAULT_PATH}, "COPY")


def _owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = "root"
    return entry


def _copy_from_stage(
    from_layers: tuple[Path, ...], sources: list[str], target: str, below: tuple[Path, ...], diff: Path
) -> None:
    """Copies a file or folder of another stage's layers into the layer `diff`."""
    if len(sources) != 1:
        raise UnsupportedDockerfile(f"COPY --from with several sources {sources} is not supported")
    source = f"from{sources[0]}"
    script = [*_overlay_commands(below, diff, "root"), *_overlay_commands(from_layers, diff.parent / "unused", "from")]
    script += [
        f"mkdir -p root{PurePosixPath(target).parent}",
        f"if [ -d {source} ]; then s=/.; mkdir -p root{target}; fi",
    ]
    script += [f'cp -a {source}"${{s:-}}" root{target}']
    (diff.parent / "unused").mkdir()
    _run_in_namespaces(script, diff.parent, {"PATH": DEFAULT_PATH}, f"COPY --from {sources[0]}")


def _overlay_commands(layers: tuple[Path, ...], upper: Path, mount_point: str) -> list[str]:
    """Shell commands that mount an overlay of the layers; changes go to the folder `upper`."""
    lower = ":".join(str(layer) for layer in reversed(layers))
    work = f"{mount_point}.work"
    return [
        f"mkdir {mount_point} {work}",
        f"mount -t overlay overlay -o lowerdir={lower},upperdir={upper},workdir={work} {mount_point}",
    ]


def _container_mount_commands(root: str) -> list[str]:
    """Shell commands that mount what a container has besides its files. None of it stays in a
    layer.
    """
    script = [f"mount -t proc proc {root}/proc"]
    script += [f"mount -t tmpfs tmpfs {root}/{name}" for name in ("dev", "run", "tmp")]
    script += [f"chmod 1777 {root}/tmp", f"mkdir {root}/dev/shm"]
    for name in DEVICES:
        script += [f"touch {root}/dev/{name}", f"mount --bind /dev/{name} {root}/dev/{name}"]
    script.append(f"mount --bind /etc/resolv.conf {root}/etc/resolv.conf")
    if CA_CERTIFICATES.exists():
        script.append(f"cp {CA_CERTIFICATES} {root}/run/authorities.crt")
    if JAVA_CA_CERTIFICATES.exists():
        inside = f"{root}{JAVA_CA_CERTIFICATES}"
        script.append(f"if [ -e {inside} ]; then mount --bind {JAVA_CA_CERTIFICATES} {inside}; fi")
    return script


def _run_in_namespaces(script: list[str], folder: Path, environment: Mapping[str, str], step_name: str) -> None:
    """Runs shell commands in new mount and process namespaces. Raises BuildFailed."""
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
        raise BuildFailed(f"{step_name}: exit code {done.returncode}\n{done.stdout[-4000:]}")


def _file_digest(path: Path) -> str:
    return f"{path.stat().st_mode & 0o777:o}-{hashlib.sha256(path.read_bytes()).hexdigest()}"


def size_of(folder: Path) -> int:
    """Size of a folder's files in bytes; hard links are counted once."""
    sizes: dict[tuple[int, int], int] = {}  # by device and inode
    for path in folder.rglob("*"):
        status = path.lstat()
        if path.is_file() and not path.is_symlink():
            sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())
