"""Addresses of the pages about disputes."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
