"""Addresses of the pages about audits."""

from django.urls import path

from apps.agreement.views import audits

urlpatterns = [
    path("<slug:slug>/audits/", audits.audits, name="audits"),
    path("<slug:slug>/audits/audits.csv", audits.audits_csv, name="audits_csv"),
]
