"""Addresses of datasets. Single datasets come last: their ids match any word."""

from django.urls import path

from apps.snapshots.views import (
    budget,
    datasets,
    imports,
    lineage,
    looks,
    mixing,
    reports,
    selection,
)

app_name = "snapshots"
urlpatterns = [
    # reports
    path("<slug:slug>/datasets/new/report/", reports.report_preview, name="report_preview"),
    path("<slug:slug>/datasets/<str:snapshot>/report/", reports.report, name="report"),
    path("<slug:slug>/datasets/<str:snapshot>/report.csv", reports.report_csv, name="report_csv"),
    # comparing
    path("<slug:slug>/datasets/compare/", lineage.compare, name="compare"),
    path("<slug:slug>/datasets/compare/changes.csv", lineage.compare_csv, name="compare_csv"),
    # exports
    path("<slug:slug>/datasets/<str:snapshot>/export/", datasets.snapshot_exports, name="exports"),
    path(
        "<slug:slug>/datasets/<str:snapshot>/export/file/", datasets.export_file, name="export_file"
    ),
    # lineage
    path(
        "<slug:slug>/datasets/lineage/<int:comparison>/",
        lineage.comparison_lineage,
        name="comparison_lineage",
    ),
    path("<slug:slug>/datasets/<str:snapshot>/rows/", lineage.snapshot_rows, name="rows"),
    path("<slug:slug>/datasets/<str:snapshot>/lineage/", lineage.snapshot_lineage, name="lineage"),
    # looks
    path("<slug:slug>/datasets/<str:snapshot>/looks/", looks.looks, name="looks"),
    path("<slug:slug>/datasets/<str:snapshot>/looks/sign/", looks.look_sign, name="look_sign"),
    path("<slug:slug>/datasets/<str:snapshot>/looks/limit/", looks.look_budget, name="look_budget"),
    # readiness
    path("<slug:slug>/ready/", reports.ready, name="ready"),
    # selection
    path("<slug:slug>/ready/selection/", selection.selection, name="selection"),
    path("<slug:slug>/ready/selection/start/", selection.selection_start, name="selection_start"),
    # label budget
    path("<slug:slug>/ready/budget/", budget.budget, name="budget"),
    path("<slug:slug>/ready/budget/replay/", budget.depth_start, name="depth_start"),
    # datasets
    path("<slug:slug>/datasets/", datasets.snapshot_list, name="list"),
    path("<slug:slug>/datasets/import/", imports.snapshot_import, name="import"),
    path("<slug:slug>/datasets/import/suite/", imports.suite, name="suite"),
    path("<slug:slug>/datasets/mix/", mixing.snapshot_mix, name="mix"),
    path("<slug:slug>/datasets/new/", datasets.snapshot_create, name="create"),
    path("<slug:slug>/datasets/<str:snapshot>/", datasets.snapshot_detail, name="detail"),
    path("<slug:slug>/datasets/<str:snapshot>/verify/", datasets.snapshot_verify, name="verify"),
    path("<slug:slug>/datasets/<str:snapshot>/action/", datasets.snapshot_action, name="action"),
    path("<slug:slug>/datasets/<str:snapshot>/private/", datasets.snapshot_private, name="private"),
    path("<slug:slug>/datasets/<str:snapshot>/file/", datasets.snapshot_download, name="download"),
]
