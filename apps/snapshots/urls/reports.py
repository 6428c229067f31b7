"""Addresses of the pages about reports."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
