"""Addresses of agreement."""

from django.urls import path

from apps.agreement.views import annotators, audits, decisions, disputes, reports, results

app_name = "agreement"
urlpatterns = [
    # statistics
    path("<slug:slug>/agreement/", reports.overview, name="overview"),
    path("<slug:slug>/agreement/refresh/", reports.refresh, name="refresh"),
    path("<slug:slug>/agreement/agreement.csv", reports.statistics_csv, name="statistics_csv"),
    path("<slug:slug>/agreement/splits.csv", reports.splits_csv, name="splits_csv"),
    path("<slug:slug>/agreement/runs/", reports.runs, name="runs"),
    path("<slug:slug>/agreement/slices/", reports.slices, name="slices"),
    path("<slug:slug>/agreement/slices.csv", reports.slices_csv, name="slices_csv"),
    path("<slug:slug>/agreement/matrix/", reports.matrix, name="matrix"),
    path("<slug:slug>/agreement/matrix.csv", reports.matrix_csv, name="matrix_csv"),
    path(
        "<slug:slug>/agreement/matrix/<int:first>/<int:second>/",
        reports.disagreements,
        name="disagreements",
    ),
    # results
    path("<slug:slug>/results/", results.results, name="results"),
    path("<slug:slug>/results/pairs.csv", results.pairs_csv, name="pairs_csv"),
    path("<slug:slug>/results/ranking.csv", results.ranking_csv, name="ranking_csv"),
    # decisions
    path("<slug:slug>/agreement/decisions/", decisions.decisions, name="decisions"),
    path("<slug:slug>/agreement/decisions/preview/", decisions.preview, name="decisions_preview"),
    path("<slug:slug>/agreement/decisions/apply/", decisions.apply, name="decisions_apply"),
    path("<slug:slug>/agreement/decisions/compare/", decisions.compare, name="decisions_compare"),
    path("<slug:slug>/agreement/decisions.csv", decisions.ways_csv, name="decisions_csv"),
    # annotators
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
    # disputes
    path("<slug:slug>/disputes/", disputes.disputes, name="disputes"),
    path("<slug:slug>/disputes/again/", disputes.send_again, name="disputes_again"),
    path("<slug:slug>/disputes/causes/", disputes.causes, name="dispute_causes"),
    path("<slug:slug>/disputes/causes.csv", disputes.causes_csv, name="dispute_causes_csv"),
    path("<slug:slug>/disputes/rulings.csv", disputes.rulings_csv, name="rulings_csv"),
    path("<slug:slug>/disputes/re-annotation/", disputes.reannotation, name="reannotation"),
    path(
        "<slug:slug>/disputes/re-annotation.csv", disputes.reannotation_csv, name="reannotation_csv"
    ),
    path("<slug:slug>/disputes/<int:comparison_id>/", disputes.dispute, name="dispute"),
    path("<slug:slug>/disputes/<int:comparison_id>/rule/", disputes.rule, name="dispute_rule"),
    path(
        "<slug:slug>/disputes/<int:comparison_id>/votes/",
        disputes.votes_show,
        name="dispute_votes",
    ),
    # audits
    path("<slug:slug>/audits/", audits.audits, name="audits"),
    path("<slug:slug>/audits/audits.csv", audits.audits_csv, name="audits_csv"),
]
