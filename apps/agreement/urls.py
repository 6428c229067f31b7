from django.urls import path

from apps.agreement import views

app_name = "agreement"
urlpatterns = [
    path("<slug:slug>/agreement/", views.overview, name="overview"),
    path("<slug:slug>/agreement/refresh/", views.refresh, name="refresh"),
    path("<slug:slug>/agreement/splits.csv", views.splits_csv, name="splits_csv"),
]
