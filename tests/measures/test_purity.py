"""`measures` must run where neither Django nor torch is installed."""

import json
import pkgutil
import subprocess
import sys

import measures

MODULES = [found.name for found in pkgutil.walk_packages(measures.__path__, "measures.")]
FOREIGN = {"django", "torch", "sklearn", "transformers", "apps", "workers", "config"}


def loaded_after_importing(*modules: str) -> set[str]:
    """The top-level modules of a fresh interpreter after these imports."""
    script = (
        "import importlib, json, sys\n"
        "for name in sys.argv[1:]: importlib.import_module(name)\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *modules],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(ran.stdout))


def test_every_measures_module_imports_without_django_torch_or_sklearn():
    assert "measures.voting.rule" in MODULES
    assert not loaded_after_importing(*MODULES) & FOREIGN


def test_deciding_in_a_votes_transaction_does_not_load_scipy():
    assert "scipy" not in loaded_after_importing("measures.voting")
