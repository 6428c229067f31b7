"""Addresses of datasets, a file per area. Single datasets come last: their ids match any word."""

from apps.snapshots.urls import comparing, datasets, exports, lineage, readiness, reports

app_name = "snapshots"
urlpatterns = [
    *reports.urlpatterns,
    *comparing.urlpatterns,
    *exports.urlpatterns,
    *lineage.urlpatterns,
    *readiness.urlpatterns,
    *datasets.urlpatterns,
]
