"""Addresses of the pages about decisions."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
