"""What supervises trainers loads no model library and no Django, so it starts at once, anywhere."""

import subprocess
import sys

import pytest

# Where Django is installed, kombu's JSON looks at one harmless module of it; its settings and
# database must stay out.
HEAVY = ("torch", "transformers", "trl", "django.conf", "django.db", "psycopg", "apps", "config")
MODULES = (
    "workers.celery",
    "workers.tasks",
    "workers.supervisor",
    "workers.launchers",
    "workers.contract",
    "workers.contract.broker",
    "workers.contract.lease",
    "workers.train",
    "workers.recipes.drill",
)


@pytest.mark.parametrize("module", MODULES)
def test_it_imports_no_model_library_and_no_django(module: str) -> None:
    program = f"""
import importlib, sys
importlib.import_module({module!r})
print(*sorted(name for name in {HEAVY!r} if name in sys.modules))
"""
    environment = {
        "REDIS_URL": "unix:///nonexistent?db=0",
        # Set around real workers too; it must not make Celery load Django.
        "DJANGO_SETTINGS_MODULE": "config.settings",
    }
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.split() == []
