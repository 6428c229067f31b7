"""Addresses of the pages about readiness."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
