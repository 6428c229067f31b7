"""Every address of the site: pages by project under `p/`, the API under `api/v1/`."""

from django.contrib import admin
from django.urls import include, path

from apps.accounts.urls import allauth_urls
from apps.accounts.views.account import admin_sign_in, home
from apps.common.views import healthz, livez, readyz, words
from apps.labeling.views.images import image
from apps.labeling.views.label import result, work
from apps.monitoring.views.backups import site_backups
from apps.monitoring.views.metrics import metrics
from config.api import urls as api_urls

handler400 = "apps.common.views.bad_request"
handler403 = "apps.common.views.permission_denied"
handler404 = "apps.common.views.page_not_found"
handler500 = "apps.common.views.server_error"
admin.site.login = admin_sign_in

urlpatterns = [
    path("", home, name="home"),
    path("my-work/", work, name="work"),
    path("healthz", healthz, name="healthz"),
    path("livez", livez, name="livez"),
    path("readyz", readyz, name="readyz"),
    path("metrics", metrics, name="metrics"),
    path("site/backups/", site_backups, name="site_backups"),
    path("words/<str:language>.js", words, name="words"),
    path("images/<str:sha256>/", image, name="image"),
    path("results/<str:sha256>/", result, name="result"),
    path("", include("apps.accounts.urls")),
    path("", include(allauth_urls)),
    path("api/v1/", api_urls),
    path("api/scim/v2/", include("apps.accounts.scim.urls")),
    path("admin/", admin.site.urls),
    # Apps in pipeline order; each names its own pages below `p/<slug>/`.
    path("p/", include("apps.labeling.urls")),
    path("p/", include("apps.agreement.urls")),
    path("p/", include("apps.snapshots.urls")),
    # Before training, whose `runs/<id>/` would take `runs/import/` for a run.
    path("p/", include("apps.monitoring.urls")),
    path("p/", include("apps.training.urls")),
    path("p/", include("apps.evaluation.urls")),
    path("p/", include("apps.loop.urls")),
]
