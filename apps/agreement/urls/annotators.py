"""Addresses of the pages about annotators."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
