"""Addresses of the pages about audits."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
