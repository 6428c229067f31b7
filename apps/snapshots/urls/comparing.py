"""Addresses of the pages about comparing."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
