"""What Django on this server gives at most: one view, one statement, no middleware."""

from config.settings import *  # noqa: F403

ROOT_URLCONF = "benchmarks.load.bare_urls"
MIDDLEWARE: list[str] = []
