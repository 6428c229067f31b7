"""Addresses of the pages about disputes."""

from django.urls import path

from apps.agreement.views import disputes, rounds

urlpatterns = [
    path("<slug:slug>/disputes/", disputes.disputes, name="disputes"),
    path("<slug:slug>/disputes/again/", disputes.send_again, name="disputes_again"),
    path("<slug:slug>/disputes/causes/", rounds.causes, name="dispute_causes"),
    path("<slug:slug>/disputes/causes.csv", rounds.causes_csv, name="dispute_causes_csv"),
    path("<slug:slug>/disputes/rulings.csv", rounds.rulings_csv, name="rulings_csv"),
    path("<slug:slug>/disputes/re-annotation/", rounds.reannotation, name="reannotation"),
    path(
        "<slug:slug>/disputes/re-annotation.csv", rounds.reannotation_csv, name="reannotation_csv"
    ),
    path("<slug:slug>/disputes/<int:comparison_id>/", disputes.dispute, name="dispute"),
    path("<slug:slug>/disputes/<int:comparison_id>/rule/", disputes.rule, name="dispute_rule"),
]
