"""The project's import graph: cycles, import closures, modules with one reader.

`python -m tests.import_graph` prints the figures and exits 1 when folders or single modules import
each other in a cycle, or an import closure is larger than `[tool.concord.import-closure]` of
pyproject.toml allows. Imports are static ones, those inside functions included. The import closure
of a file is the number of project files that it imports, directly or through others, itself left
out. Imports for type checkers count for cycles of modules alone: a type that two modules share
belongs in the lower one.
"""

import ast
import sys
import tomllib
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("config", "apps", "measures", "workers")

Graph = dict[str, set[str]]


def module_name(path: Path) -> str:
    """`workers/ppo/__init__.py` is `workers.ppo`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def source_files() -> dict[str, Path]:
    """Module name -> file, migrations left out."""
    files = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return {module_name(path): path for path in files if "migrations" not in path.parts}


def _is_for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _imports(node: ast.AST, *, types: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif types or not _is_for_type_checkers(child):
            yield from _imports(child, types=types)


def import_graph(files: dict[str, Path], *, types: bool = False) -> Graph:
    """Module -> the project's modules that it imports; with `types`, for type checkers too."""
    graph: Graph = {}
    for name, path in files.items():
        found: set[str] = set()
        for node in _imports(ast.parse(path.read_text(encoding="utf-8")), types=types):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            else:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    found.add(inner if inner in files else node.module or "")
        graph[name] = {module for module in found if module in files and module != name}
    return graph


def import_closure(graph: Graph, start: str) -> set[str]:
    """Every module that `start` needs, itself left out."""
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        for module in graph[waiting.pop()] - reached:
            reached.add(module)
            waiting.append(module)
    return reached - {start}


def sibling_graph(graph: Graph, package: str) -> Graph:
    """The imports between folders and modules directly below `package`, its `__init__` left out."""
    depth = package.count(".") + 1
    head = package + "."

    def child(module: str) -> str | None:
        return ".".join(module.split(".")[: depth + 1]) if module.startswith(head) else None

    siblings: Graph = {}
    for module, imported in graph.items():
        one = child(module)
        if one is not None:
            others = {child(other) for other in imported} - {one, None}
            siblings.setdefault(one, set()).update(other for other in others if other is not None)
    return siblings


def folder_cycles(graph: Graph) -> list[list[str]]:
    """Per package, one cycle of its folders and modules, if there is any."""
    packages = {name.rpartition(".")[0] for name in graph} - {""}
    cycles = []
    for package in sorted(packages):
        try:
            TopologicalSorter(sibling_graph(graph, package)).prepare()
        except CycleError as error:
            cycles.append(error.args[1])
    return cycles


def module_cycle(graph: Graph) -> list[str]:
    """One cycle of single modules, if there is any."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def read_once(graph: Graph) -> list[tuple[str, str]]:
    """(module, its only importer) for modules that one other module of the project imports."""
    readers: dict[str, list[str]] = {}
    for module, imported in graph.items():
        for other in imported:
            readers.setdefault(other, []).append(module)
    return sorted((module, found[0]) for module, found in readers.items() if len(found) == 1)


def allowed_closures() -> dict[str, int]:
    """`[tool.concord.import-closure]` of pyproject.toml: file -> the number it may need."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return dict(tomllib.load(file)["tool"]["concord"]["import-closure"])


def problems(graph: Graph, with_types: Graph) -> Iterator[str]:
    """One sentence for each cycle and for each closure that grew."""
    for cycle in (*folder_cycles(graph), module_cycle(with_types)):
        if cycle:
            yield "import cycle: " + " -> ".join(cycle)
    for path, most in allowed_closures().items():
        needed = len(import_closure(graph, module_name(ROOT / path)))
        print(f"{needed:5d} of {most:3d}  {path}")
        if needed > most:
            yield f"{path} needs {needed} files of the project, more than the {most} reached before"


def main(arguments: Iterable[str]) -> int:
    files = source_files()
    graph = import_graph(files)
    if "--read-once" in arguments:
        for module, reader in read_once(graph):
            print(f"{module}  {reader}")
        return 0
    found = list(problems(graph, import_graph(files, types=True)))
    print("\n".join(found) or f"{len(graph)} files, no cycle between folders or modules")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
