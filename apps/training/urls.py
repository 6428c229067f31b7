from django.urls import path

from apps.training.views import (
    constitution,
    fleet,
    groups,
    housekeeping,
    launch,
    metrics,
    models,
    runs,
    space,
)

app_name = "training"
urlpatterns = [
    path("<slug:slug>/fleet/", fleet.fleet, name="fleet"),
    path("<slug:slug>/fleet/quota/", fleet.quota, name="quota"),
    path("<slug:slug>/space/", space.space, name="space"),
    path("<slug:slug>/space/limits/", space.limits, name="space_limits"),
    path("<slug:slug>/runs/<str:run_id>/intermediates/", space.intermediates, name="intermediates"),
    path("<slug:slug>/space/space.csv", space.space_csv, name="space_csv"),
    path("<slug:slug>/training/constitution/", constitution.constitution, name="constitution"),
    path("<slug:slug>/runs/<str:run_id>/revisions/", constitution.revisions, name="revisions"),
    path("<slug:slug>/runs/", runs.run_list, name="runs"),
    path("<slug:slug>/runs/new/", launch.run_kinds, name="run_kinds"),
    path("<slug:slug>/runs/new/<slug:kind>/", launch.run_new, name="run_new"),
    path("<slug:slug>/runs/new/<slug:kind>/try/", launch.reward_try, name="reward_try"),
    path("<slug:slug>/runs/new/<slug:kind>/estimate/", launch.run_estimate, name="run_estimate"),
    path("<slug:slug>/runs/compare/", groups.run_compare, name="run_compare"),
    path("<slug:slug>/runs/groups/<str:group>/", groups.group_detail, name="group"),
    path("<slug:slug>/runs/groups/<str:group>/seeds.csv", groups.group_csv, name="group_csv"),
    path("<slug:slug>/runs/groups/<str:group>/add/", groups.group_add, name="group_add"),
    path("<slug:slug>/runs/groups/<str:group>/stop/", groups.group_stop, name="group_stop"),
    path("<slug:slug>/runs/<str:run_id>/", runs.run_detail, name="run"),
    path("<slug:slug>/runs/<str:run_id>/tried/", launch.reward_tried, name="reward_tried"),
    path("<slug:slug>/runs/<str:run_id>/edit/", housekeeping.run_edit, name="run_edit"),
    path("<slug:slug>/runs/<str:run_id>/metrics.json", metrics.run_metrics, name="run_metrics"),
    path(
        "<slug:slug>/runs/<str:run_id>/metrics.csv", metrics.run_metrics_csv, name="run_metrics_csv"
    ),
    path("<slug:slug>/runs/<str:run_id>/band.json", metrics.run_band, name="run_band"),
    path(
        "<slug:slug>/runs/<str:run_id>/histograms.csv",
        metrics.run_histograms_csv,
        name="run_histograms_csv",
    ),
    path(
        "<slug:slug>/runs/<str:run_id>/files/<int:artifact_id>/",
        metrics.run_artifact,
        name="run_artifact",
    ),
    path("<slug:slug>/runs/<str:run_id>/stop/", launch.run_stop, name="run_stop"),
    path("<slug:slug>/runs/<str:run_id>/cancel/", launch.run_cancel, name="run_cancel"),
    path("<slug:slug>/runs/<str:run_id>/resume/", launch.run_resume, name="run_resume"),
    path("<slug:slug>/runs/<str:run_id>/roll-back/", launch.run_roll_back, name="run_roll_back"),
    path("<slug:slug>/runs/<str:run_id>/move/", fleet.run_move, name="run_move"),
    path("<slug:slug>/runs/<str:run_id>/priority/", fleet.run_priority, name="run_priority"),
    path("<slug:slug>/runs/<str:run_id>/minimal/", launch.run_minimal, name="run_minimal"),
    path(
        "<slug:slug>/runs/<str:run_id>/alerts/<int:alert_id>/acknowledge/",
        launch.alert_acknowledge,
        name="alert_acknowledge",
    ),
    path("<slug:slug>/models/", models.model_list, name="models"),
    path("<slug:slug>/models/<str:checkpoint_id>/", models.model_detail, name="model"),
    path(
        "<slug:slug>/models/<str:checkpoint_id>/download/",
        models.model_download,
        name="model_download",
    ),
    path("<slug:slug>/models/<str:checkpoint_id>/push/", models.model_push_page, name="model_push"),
    path("<slug:slug>/models/<str:checkpoint_id>/copy/", models.model_copy_page, name="model_copy"),
    path(
        "<slug:slug>/models/<str:checkpoint_id>/evaluate/",
        launch.model_evaluate,
        name="model_evaluate",
    ),
]
