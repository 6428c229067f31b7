"""The named alternative's settings: Concord's, with sessions in the database and plain pages."""

from config.settings import *  # noqa: F403
from config.settings import TEMPLATES

ROOT_URLCONF = "benchmarks.load.plain_urls"
SESSION_ENGINE = "django.contrib.sessions.backends.db"
TEMPLATES[0]["DIRS"].append(BASE_DIR / "benchmarks" / "load" / "templates")  # noqa: F405
