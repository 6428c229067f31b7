"""A project's overview, what the bell tells, pipelines and their rounds; of all apps, this one may
know all others."""

from django.urls import path

from apps.loop import views
from apps.loop.views import pipelines

app_name = "loop"
_PIPELINE = "<slug:slug>/pipelines/<str:pipeline_id>/"
_ROUND = f"{_PIPELINE}rounds/<int:number>/"
urlpatterns = [
    path("<slug:slug>/overview/", views.overview, name="overview"),
    path("<slug:slug>/demo/", views.demo_results, name="demo_results"),
    path("<slug:slug>/pipelines/", pipelines.pipelines, name="pipelines"),
    path("<slug:slug>/pipelines/new/", pipelines.pipeline_new, name="pipeline_new"),
    path("<slug:slug>/pipelines/template/", pipelines.pipeline_template, name="pipeline_template"),
    path(_PIPELINE, pipelines.pipeline, name="pipeline"),
    path(f"{_PIPELINE}edit/", pipelines.pipeline_edit, name="pipeline_edit"),
    path(f"{_PIPELINE}start/", pipelines.pipeline_start, name="pipeline_start"),
    path(_ROUND, pipelines.round_page, name="round"),
    path(f"{_ROUND}act/", pipelines.round_change, name="round_act"),
    path("<slug:slug>/progress/", views.progress, name="progress"),
    path("<slug:slug>/notifications/", views.notifications, name="notifications"),
    path("<slug:slug>/runs/<str:run_id>/pairs/", views.pairs, name="pairs"),
]
