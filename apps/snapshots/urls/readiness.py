"""Addresses of the pages about readiness."""

from django.urls import path

from apps.snapshots.views import readiness as views

urlpatterns = [
    path("<slug:slug>/ready/", views.ready, name="ready"),
]
