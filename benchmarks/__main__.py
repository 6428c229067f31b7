"""`make bench` lists the benchmarks; `make bench B=name` runs one.

A benchmark is a module of this folder with a docstring (its first line is listed) and a `main()`
that prints a table and, as its last line, one JSON object (see benchmarks/report.py).
"""

import ast
import runpy
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
NOT_BENCHMARKS = {"__main__", "__init__", "plain_orm", "report", "site", "workshop"}


def listed() -> dict[str, str]:
    """{name: first line of its docstring}."""
    found = {}
    for path in sorted(FOLDER.glob("*.py")):
        if path.stem not in NOT_BENCHMARKS:
            text = ast.get_docstring(ast.parse(path.read_text())) or "(no description)"
            found[path.stem] = text.splitlines()[0]
    return found


def main(arguments: list[str]) -> int:
    names = listed()
    if not arguments:
        width = max(map(len, names), default=0)
        for name, line in names.items():
            print(f"  make bench B={name:<{width}}  {line}")
        return 0
    name = arguments[0]
    if name not in names:
        print(f"There is no benchmark '{name}'. There are: {', '.join(names)}", file=sys.stderr)
        return 2
    sys.argv = [str(FOLDER / f"{name}.py"), *arguments[1:]]
    runpy.run_module(f"benchmarks.{name}", run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
