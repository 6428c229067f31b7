"""Addresses of the pages about exports."""

from django.urls import path

from apps.snapshots.views import exports as views

urlpatterns = [
    path("<slug:slug>/datasets/<str:snapshot>/export/", views.snapshot_exports, name="exports"),
    path("<slug:slug>/datasets/<str:snapshot>/export/file/", views.export_file, name="export_file"),
]
