"""No private name of the training libraries is read, overridden or imported under `workers/`.

The names come from the installed packages, so the list cannot go stale. A name that `workers/`
defines itself is its own; a class that derives from one of a library's may not define it, for it
would override what it does not know.
"""

import ast
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("trl", "transformers", "accelerate", "peft")
# Places where names of a library are meant though they have no underscore.
INNER_MODULES = ("trl.trainer.", "transformers.trainer.")
DEFINED = re.compile(
    r"\bdef (_[a-z]\w*)|\bself\.(_[a-z]\w*)\b|^\s*(_[a-z]\w*)\s*[:=]", re.MULTILINE
)
BY_NAME = ("getattr", "setattr", "hasattr", "delattr")
# What has no public name: how a model computes attention, and which of its layers stay whole.
WITHOUT_PUBLIC_NAME = (
    "workers/ppo/distributed.py: _no_split_modules",
    "workers/ppo/async_rollout.py: _attn_implementation",
    "workers/models/forward.py: _attn_implementation",
)


@cache
def library_names() -> frozenset[str]:
    """Underscore names that the packages define; of transformers' single models none."""
    found: set[str] = set()
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        folder = Path(spec.origin).parent
        for path in folder.rglob("*.py"):
            if "models" not in path.relative_to(folder).parts:
                text = path.read_text(encoding="utf-8", errors="replace")
                found.update(name for groups in DEFINED.findall(text) for name in groups if name)
    return frozenset(found)


@cache
def trainer_names() -> frozenset[str]:
    """Those of the classes that ours derive from."""
    found: set[str] = set()
    for package in ("trl", "transformers"):
        spec = importlib.util.find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        for path in Path(spec.origin).parent.rglob("*trainer*.py"):
            text = path.read_text(encoding="utf-8")
            found.update(name for groups in DEFINED.findall(text) for name in groups if name)
    return frozenset(found)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def own_names(trees: list[ast.Module]) -> set[str]:
    """Underscore names that some file of ours defines."""
    found: set[str] = set()
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                if isinstance(node.value, ast.Name) and node.value.id == "self":
                    found.add(node.attr)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.add(node.target.id)
    return {name for name in found if is_private(name)}


def violations(path: str, tree: ast.Module, own: set[str]) -> Iterator[str]:
    foreign = library_names() - own
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in foreign:
            yield f"{path}: {node.attr}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in BY_NAME:
            named = {arg.value for arg in node.args if isinstance(arg, ast.Constant)}
            yield from (f"{path}: {name}" for name in named & foreign)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module.split(".")[0] in PACKAGES:
                names = [*node.module.split("."), *(alias.name for alias in node.names)]
                inner = f"{node.module}.".startswith(INNER_MODULES)
                if inner or any(map(is_private, names)):
                    yield f"{path}: {node.module}"
        elif isinstance(node, ast.ClassDef) and is_trainer(node):
            for name in own_names([ast.Module([node], [])]) & trainer_names():
                yield f"{path}: {node.name} overrides {name}"


def is_trainer(node: ast.ClassDef) -> bool:
    """Whether a library's trainer may be among its bases: told by a name that ends like one."""
    bases = [ast.unparse(base) for base in node.bases]
    return node.name.endswith("Trainer") or any(base.endswith(("Trainer", "TRL")) for base in bases)


def test_workers_read_override_and_import_no_private_name_of_a_training_library() -> None:
    files = sorted((ROOT / "workers").rglob("*.py"))
    trees = {str(path.relative_to(ROOT)): ast.parse(path.read_text("utf-8")) for path in files}
    own = own_names(list(trees.values()))
    found = [v for path, tree in trees.items() for v in violations(path, tree, own)]
    assert sorted(found) == sorted(WITHOUT_PUBLIC_NAME)


@pytest.mark.parametrize(
    "planted",
    [
        "trainer._tr_loss.clone()",
        "accelerator.gradient_state._set_sync_gradients(True)",
        "getattr(model, '_hf_peft_config_loaded')",
        "from trl.trainer.utils import add_fused_lm_head",
        "from transformers.modeling_utils import _get_tied_weight_keys",
        "class Ours(SFTTrainer):\n    def _save_checkpoint(self): ...",
        "class Ours(PartedTRL):\n    def begin(self):\n        self._metrics = {}",
    ],
)
def test_a_private_name_that_is_planted_is_found(planted: str) -> None:
    tree = ast.parse(planted)
    assert list(violations("planted.py", tree, own_names([tree])))


@pytest.mark.parametrize("fine", ["self.model.save_pretrained(folder)", "x._our_own_thing()"])
def test_what_is_public_or_our_own_is_not(fine: str) -> None:
    assert list(violations("fine.py", ast.parse(fine), set())) == []
