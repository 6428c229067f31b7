"""Addresses of outputs that people rank."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
