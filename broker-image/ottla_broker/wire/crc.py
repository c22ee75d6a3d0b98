"""CRC-32C, which the processor computes.

The package crc32c reads its own version at import, with importlib.metadata, which would cost every
broker 12 ms and 2 MiB. Its extension module needs nothing of that, and is loaded alone. Where it is
not found, as perhaps in another version of the package, the package is imported.
"""

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec


def _load_crc32c() -> Callable[..., int]:
    package = find_spec("crc32c")
    spec = package and PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if spec and spec.loader:
        extension = module_from_spec(spec)
        spec.loader.exec_module(extension)
        if hasattr(extension, "crc32c"):
            return extension.crc32c  # type: ignore[no-any-return]
    from crc32c import crc32c

    return crc32c


crc32c = _load_crc32c()
