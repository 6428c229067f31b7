"""A project's overview and what the bell tells; of all apps, this one may know all others."""

from django.urls import path

from apps.loop import views

app_name = "loop"
urlpatterns = [
    path("<slug:slug>/overview/", views.overview, name="overview"),
    path("<slug:slug>/rounds/", views.rounds, name="rounds"),
    path("<slug:slug>/progress/", views.progress, name="progress"),
    path("<slug:slug>/notifications/", views.notifications, name="notifications"),
    path("<slug:slug>/runs/<str:run_id>/pairs/", views.pairs, name="pairs"),
]
