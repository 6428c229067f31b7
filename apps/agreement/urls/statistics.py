from django.urls import path

from apps.agreement.views import overview

urlpatterns = [
    path("<slug:slug>/agreement/", overview.overview, name="overview"),
    path("<slug:slug>/agreement/refresh/", overview.refresh, name="refresh"),
    path("<slug:slug>/agreement/splits.csv", overview.splits_csv, name="splits_csv"),
]
