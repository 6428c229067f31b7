"""Addresses of the pages that follow votes."""

from django.urls import path

from apps.snapshots.views import lineage as views

urlpatterns = [
    path(
        "<slug:slug>/datasets/lineage/<int:comparison>/",
        views.comparison_lineage,
        name="comparison_lineage",
    ),
    path("<slug:slug>/datasets/<str:snapshot>/rows/", views.snapshot_rows, name="rows"),
    path("<slug:slug>/datasets/<str:snapshot>/lineage/", views.snapshot_lineage, name="lineage"),
]
