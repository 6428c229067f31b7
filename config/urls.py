"""Every address of the site: pages by project under `p/`, the API under `api/v1/`."""

from importlib.util import find_spec

from django.contrib import admin
from django.urls import include, path

from apps.accounts.views.session import home
from apps.common.views import healthz
from config.api import urls as api_urls

# Apps in pipeline order; each names its own pages below `p/<slug>/`.
PAGE_APPS = ("labeling", "agreement", "snapshots", "training")

urlpatterns = [
    path("", home, name="home"),
    path("healthz", healthz, name="healthz"),
    path("", include("apps.accounts.urls")),
    path("api/v1/", api_urls),
    path("admin/", admin.site.urls),
]
urlpatterns += [
    path("p/", include(f"apps.{app}.urls"))
    for app in PAGE_APPS
    if find_spec(f"apps.{app}.urls") is not None
]
