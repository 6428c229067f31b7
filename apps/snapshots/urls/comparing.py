"""Addresses of the pages about comparing."""

from django.urls import path

from apps.snapshots.views import comparing as views

urlpatterns = [
    path("<slug:slug>/datasets/compare/", views.compare, name="compare"),
    path("<slug:slug>/datasets/compare/changes.csv", views.compare_csv, name="compare_csv"),
]
