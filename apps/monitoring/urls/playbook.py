from django.urls import path

from apps.monitoring.views import playbook

urlpatterns = [
    path("<slug:slug>/monitoring/playbook/", playbook.playbook_list, name="playbook"),
    path(
        "<slug:slug>/monitoring/playbook/<slug:entry>/",
        playbook.playbook_entry,
        name="playbook_entry",
    ),
]
