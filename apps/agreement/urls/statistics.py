"""Addresses of the pages of statistics."""

from django.urls import path

from apps.agreement.views import matrix, overview, slices

urlpatterns = [
    path("<slug:slug>/agreement/", overview.overview, name="overview"),
    path("<slug:slug>/agreement/refresh/", overview.refresh, name="refresh"),
    path("<slug:slug>/agreement/agreement.csv", overview.statistics_csv, name="statistics_csv"),
    path("<slug:slug>/agreement/splits.csv", overview.splits_csv, name="splits_csv"),
    path("<slug:slug>/agreement/slices/", slices.slices, name="slices"),
    path("<slug:slug>/agreement/slices.csv", slices.slices_csv, name="slices_csv"),
    path("<slug:slug>/agreement/matrix/", matrix.matrix, name="matrix"),
    path("<slug:slug>/agreement/matrix.csv", matrix.matrix_csv, name="matrix_csv"),
    path(
        "<slug:slug>/agreement/matrix/<int:first>/<int:second>/",
        matrix.disagreements,
        name="disagreements",
    ),
]
