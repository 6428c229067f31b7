"""Addresses of agreement, a file per area."""

from apps.agreement.urls import annotators, audits, decisions, disputes, statistics

app_name = "agreement"
urlpatterns = [
    *statistics.urlpatterns,
    *decisions.urlpatterns,
    *annotators.urlpatterns,
    *disputes.urlpatterns,
    *audits.urlpatterns,
]
