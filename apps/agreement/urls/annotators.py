"""Addresses of the pages about annotators."""

from django.urls import path

from apps.agreement.views import annotators

urlpatterns = [
    path("<slug:slug>/agreement/annotators/", annotators.annotators, name="annotators"),
    path("<slug:slug>/agreement/annotators.csv", annotators.annotators_csv, name="annotators_csv"),
    path(
        "<slug:slug>/agreement/annotators/refresh/",
        annotators.annotators_refresh,
        name="annotators_refresh",
    ),
    path("<slug:slug>/agreement/annotators/<int:user_id>/", annotators.annotator, name="annotator"),
    path(
        "<slug:slug>/agreement/annotators/<int:user_id>/figures.csv",
        annotators.annotator_csv,
        name="annotator_csv",
    ),
    path(
        "<slug:slug>/agreement/annotators/<int:user_id>/datasets/",
        annotators.annotator_datasets,
        name="annotator_datasets",
    ),
]
