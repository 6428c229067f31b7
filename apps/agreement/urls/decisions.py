"""Addresses of the pages about decisions."""

from django.urls import path

from apps.agreement.views import decisions

urlpatterns = [
    path("<slug:slug>/agreement/decisions/", decisions.decisions, name="decisions"),
    path("<slug:slug>/agreement/decisions/preview/", decisions.preview, name="decisions_preview"),
    path("<slug:slug>/agreement/decisions/apply/", decisions.apply, name="decisions_apply"),
    path("<slug:slug>/agreement/decisions/compare/", decisions.compare, name="decisions_compare"),
    path("<slug:slug>/agreement/decisions.csv", decisions.ways_csv, name="decisions_csv"),
]
