"""Addresses of monitoring, a file per area."""

app_name = "monitoring"
urlpatterns = []
