"""`docs/jobs.md` is complete: every way a run can fail is explained to who has to act on it."""

import ast
import re
from pathlib import Path

from apps.training.guidance import NEXT_STEPS
from apps.training.models import Run
from workers.contract import Fault

ROOT = Path(__file__).resolve().parents[2]
CODE = re.compile(r"[a-z]+(_[a-z]+)*")


def kinds_in_code() -> dict[str, str]:
    """kind -> a file that emits it: the first argument of Failed(…) and RecipeError(…), `kind=` of
    whatever ends a run, the pairs of `died_of`, and the constants that name a kind."""
    found: dict[str, str] = {}
    for path in [*ROOT.glob("workers/**/*.py"), *ROOT.glob("apps/training/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            for text in _kinds(node):
                found[text] = str(path.relative_to(ROOT))
    return found


def _kinds(node: ast.AST) -> list[str]:
    match node:
        case ast.Call(func=ast.Name(id="Failed" | "RecipeError"), args=[first, *_]):
            return _texts(first)
        case ast.Call(func=ast.Name(id="run_end" | "run_fail_or_retry" | "Failed"), keywords=given):
            return [text for word in given if word.arg == "kind" for text in _texts(word.value)]
        case ast.FunctionDef(name="died_of"):
            returns = [n.value for n in ast.walk(node) if isinstance(n, ast.Return)]
            return [text for pair in returns for text in _texts(pair.elts[0])]
        case ast.Assign(targets=[ast.Name(id="VIOLATION" | "OUTSIDE")], value=value):
            return _texts(value)
    return []


def _texts(node: ast.AST) -> list[str]:
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return [node.value] if is_text and CODE.fullmatch(node.value) else []


def documented() -> dict[str, str]:
    """kind -> fault, of the table in docs/jobs.md."""
    table = (ROOT / "docs/jobs.md").read_text().partition("## Failure kinds")[2]
    return dict(re.findall(r"^\| `([a-z_]+)` \| (\w+) \|", table, re.M))


def test_every_failure_kind_in_the_code_is_documented() -> None:
    in_code = kinds_in_code()
    assert {"killed", "bug", "lost", "bad_config", "contract_violation", "exited"} <= set(in_code)
    missing = {kind: file for kind, file in in_code.items() if kind not in documented()}
    assert missing == {}


def test_no_failure_kind_is_documented_that_the_code_does_not_know() -> None:
    assert set(documented()) - set(kinds_in_code()) == set()


def test_every_documented_failure_has_its_next_step_on_the_page_of_the_run() -> None:
    assert set(NEXT_STEPS) == set(documented())


def test_every_documented_fault_is_one_of_the_contract() -> None:
    assert set(documented().values()) <= set(Fault)


def test_every_state_of_a_run_is_documented() -> None:
    states = (ROOT / "docs/jobs.md").read_text().partition("## The lease")[0]
    assert set(re.findall(r"^\| `([a-z]+)` \|", states, re.M)) == set(Run.State)


def test_the_documented_fault_of_a_kind_is_the_one_the_code_gives() -> None:
    """As far as both stand in one call: `Failed("kind", Fault.X, …)`."""
    table = documented()
    for path in [*ROOT.glob("workers/**/*.py"), *ROOT.glob("apps/training/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    func=ast.Name(id="Failed" | "RecipeError"),
                    args=[ast.Constant(value=str(kind)), ast.Attribute(attr=fault), *_],
                ):
                    assert table.get(kind) == Fault[fault], f"{kind} in {path.name}"
