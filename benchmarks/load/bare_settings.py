"""What Django on this server gives at most: one view, one statement, no middleware."""

from config.settings import *  # noqa: F403
from config.settings import INSTALLED_APPS as ALL_APPS

ROOT_URLCONF = "benchmarks.load.bare_urls"
MIDDLEWARE: list[str] = []
INSTALLED_APPS = [app for app in ALL_APPS if app != "allauth.account"]  # it asks for its middleware
