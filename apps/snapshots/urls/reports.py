"""Addresses of the skew report."""

from django.urls import path

from apps.snapshots.views import reports as views

# The preview first: "new" would pass for a dataset's id.
urlpatterns = [
    path("<slug:slug>/datasets/new/report/", views.report_preview, name="report_preview"),
    path("<slug:slug>/datasets/<str:snapshot>/report/", views.report, name="report"),
    path("<slug:slug>/datasets/<str:snapshot>/report.csv", views.report_csv, name="report_csv"),
]
