"""Addresses of outputs that people rank."""

from django.urls import path

from apps.evaluation.views import ranking

_ONE = "<slug:slug>/reward-models/<str:checkpoint_id>/ranking/"

urlpatterns = [
    path(_ONE, ranking.ranking, name="ranking"),
    path(f"{_ONE}send/", ranking.ranking_send, name="ranking_send"),
    path(f"{_ONE}outputs.csv", ranking.ranking_csv, name="ranking_csv"),
]
