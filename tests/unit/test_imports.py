"""No module imports itself by way of others, and none hides that behind TYPE_CHECKING.

import-linter's contracts in pyproject.toml say which packages may import which; this file is about
modules.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE_FOLDERS = ("broker-image", "operator", "spark-app")
PACKAGES = ("bench", "tests", "examples")


def module_name(path: Path) -> str:
    """The module's name as it is imported; the source folders themselves are not packages."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[1:] if parts[0] in SOURCE_FOLDERS else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for folder in (*SOURCE_FOLDERS, *PACKAGES) for path in (ROOT / folder).rglob("*.py")}


def imported_modules(name: str, tree: ast.Module) -> Iterator[str]:
    """Modules of this project that a module imports, anywhere in it."""
    package = name if MODULES[name].name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            parent = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            source = ".".join(filter(None, (parent, node.module)))
            for alias in node.names:
                full_name = f"{source}.{alias.name}"
                yield from (found for found in (full_name if full_name in MODULES else source,) if found in MODULES)


def find_cycles(imports: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    cycles: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(imports[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            component = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(component) > 1:
                cycles.append(sorted(component))

    for name in sorted(imports):
        if name not in index:
            visit(name)
    return cycles


@dataclass(frozen=True, slots=True)
class Module:
    """imports: modules of this project. names_type_checking: the name occurs in it."""

    imports: set[str]
    names_type_checking: bool


@cache
def modules() -> dict[str, Module]:
    """All modules by their names. They are read by the first test, not while tests are collected,
    and their syntax trees are not kept: every garbage collection of this process would visit the
    millions of nodes.
    """
    found = {}
    for name, path in MODULES.items():
        tree = ast.parse(path.read_text())
        names_type_checking = any(isinstance(node, ast.Name) and node.id == "TYPE_CHECKING" for node in ast.walk(tree))
        found[name] = Module(set(imported_modules(name, tree)) - {name}, names_type_checking)
    return found


def test_imports_have_no_cycle() -> None:
    assert find_cycles({name: module.imports for name, module in modules().items()}) == []


def test_cycles_are_found() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set[str](), "e": {"a"}}
    assert find_cycles(imports) == [["a", "b", "c"]]


def test_no_import_is_for_type_checking_only() -> None:
    assert [name for name, module in modules().items() if module.names_type_checking] == []
