"""Addresses of the pages of statistics."""

from django.urls import path

from apps.agreement.views import overview, slices

urlpatterns = [
    path("<slug:slug>/agreement/", overview.overview, name="overview"),
    path("<slug:slug>/agreement/refresh/", overview.refresh, name="refresh"),
    path("<slug:slug>/agreement/agreement.csv", overview.statistics_csv, name="statistics_csv"),
    path("<slug:slug>/agreement/splits.csv", overview.splits_csv, name="splits_csv"),
    path("<slug:slug>/agreement/slices/", slices.slices, name="slices"),
    path("<slug:slug>/agreement/slices.csv", slices.slices_csv, name="slices_csv"),
]
