"""Addresses of monitoring, a file per area."""

from apps.monitoring.urls import diagnosis, incidents, playbook

app_name = "monitoring"
urlpatterns = [
    *playbook.urlpatterns,
    *diagnosis.urlpatterns,
    *incidents.urlpatterns,
]
