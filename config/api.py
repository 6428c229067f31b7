"""The API: one router per app, mounted in pipeline order."""

from importlib import import_module
from importlib.util import find_spec

from apps.common.api import api_make, api_urls
from apps.common.api_docs import Reference

ROUTERS = ("accounts", "labeling", "agreement", "snapshots", "training")

api = api_make(
    title="Concord",
    version="1",
    description=(
        "People compare model answers; the comparisons become reward models and better policies. "
        "Send a token as `Authorization: Bearer …`; errors are JSON with a stable `code`, a "
        "`message`, and the `field` or `row` at fault."
    ),
    docs=Reference(),
)
for _app in ROUTERS:
    if find_spec(f"apps.{_app}.api") is not None:
        api.add_router("", import_module(f"apps.{_app}.api").router)

urls = api_urls(api)
