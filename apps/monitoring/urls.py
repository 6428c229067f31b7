"""Addresses of monitoring."""

from django.urls import path

from apps.monitoring.views import channels, diagnosis, incidents, people, watches

app_name = "monitoring"
_INCIDENTS = "<slug:slug>/monitoring/incidents/"
_INCIDENTS_ONE = f"{_INCIDENTS}<str:incident_id>/"
_CHANNELS = "<slug:slug>/monitoring/channels/"
_CHANNEL = f"{_CHANNELS}<int:channel_id>/"
_WATCHES_ALL = "<slug:slug>/monitoring/"
_WATCHES_ONE = f"{_WATCHES_ALL}watches/<str:watch_id>/"
urlpatterns = [
    # playbook
    path("<slug:slug>/monitoring/playbook/", diagnosis.playbook_list, name="playbook"),
    path(
        "<slug:slug>/monitoring/playbook/<slug:entry>/",
        diagnosis.playbook_entry,
        name="playbook_entry",
    ),
    # diagnosis
    path("<slug:slug>/runs/<str:run_id>/diagnosis/", diagnosis.diagnosis, name="diagnosis"),
    path(
        "<slug:slug>/runs/<str:run_id>/diagnosis/checks/",
        diagnosis.check_launch,
        name="check_launch",
    ),
    # imports
    path("<slug:slug>/runs/import/", diagnosis.run_import, name="run_import"),
    # incidents
    path(_INCIDENTS, incidents.incident_list, name="incidents"),
    path(f"{_INCIDENTS}bulk/", incidents.incidents_bulk, name="incidents_bulk"),
    path(_INCIDENTS_ONE, incidents.incident_detail, name="incident"),
    path(
        f"{_INCIDENTS_ONE}acknowledge/", incidents.incident_acknowledge, name="incident_acknowledge"
    ),
    path(f"{_INCIDENTS_ONE}note/", incidents.incident_note, name="incident_note"),
    path(f"{_INCIDENTS_ONE}resolve/", incidents.incident_resolve, name="incident_resolve"),
    path(f"{_INCIDENTS_ONE}mute/", incidents.incident_silence, name="incident_mute"),
    path("<slug:slug>/monitoring/mutes/", channels.mute_list, name="mutes"),
    path("<slug:slug>/monitoring/mutes/<int:mute_id>/lift/", channels.mute_lift, name="mute_lift"),
    path(_CHANNELS, channels.channel_list, name="channels"),
    path(f"{_CHANNEL}change/", channels.channel_change, name="channel_change"),
    path(f"{_CHANNEL}rotate/", channels.channel_rotate, name="channel_rotate"),
    path(f"{_CHANNEL}test/", channels.channel_test, name="channel_test"),
    path(f"{_CHANNEL}delete/", channels.channel_delete, name="channel_delete"),
    path(
        f"{_CHANNEL}messages/<int:delivery_id>/again/", channels.channel_again, name="channel_again"
    ),
    # people and data
    path("<slug:slug>/monitoring/people/", people.people, name="people"),
    # watches
    path(_WATCHES_ALL, watches.overview, name="overview"),
    path(f"{_WATCHES_ALL}watches/new/", watches.watch_new, name="watch_new"),
    path(_WATCHES_ONE, watches.watch_detail, name="watch"),
    path(f"{_WATCHES_ONE}figures.csv", watches.watch_csv, name="watch_csv"),
    path(f"{_WATCHES_ONE}traffic/", watches.watch_traffic, name="watch_traffic"),
    path(f"{_WATCHES_ONE}probe/", watches.watch_probe, name="watch_probe"),
    path(f"{_WATCHES_ONE}pause/", watches.watch_pause, name="watch_pause"),
    path(f"{_WATCHES_ONE}change/", watches.watch_change, name="watch_change"),
    path(f"{_WATCHES_ONE}rebase/", watches.watch_rebase, name="watch_rebase"),
    path(f"{_WATCHES_ONE}retarget/", watches.watch_retarget, name="watch_retarget"),
]
