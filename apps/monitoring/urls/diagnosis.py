from django.urls import path

from apps.monitoring.views import diagnosis

urlpatterns = [
    path("<slug:slug>/runs/<str:run_id>/diagnosis/", diagnosis.diagnosis, name="diagnosis"),
    path(
        "<slug:slug>/runs/<str:run_id>/diagnosis/checks/",
        diagnosis.check_launch,
        name="check_launch",
    ),
]
