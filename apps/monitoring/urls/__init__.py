"""Addresses of monitoring, a file per area."""

from apps.monitoring.urls import diagnosis, imports, incidents, playbook, watches

app_name = "monitoring"
urlpatterns = [
    *playbook.urlpatterns,
    *diagnosis.urlpatterns,
    *imports.urlpatterns,
    *incidents.urlpatterns,
    *watches.urlpatterns,
]
