"""Addresses of adversarial rounds."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
