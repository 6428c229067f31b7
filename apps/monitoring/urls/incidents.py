from django.urls import path

from apps.monitoring.views import channels, incidents, mutes

_INCIDENTS = "<slug:slug>/monitoring/incidents/"
_ONE = f"{_INCIDENTS}<str:incident_id>/"
_CHANNELS = "<slug:slug>/monitoring/channels/"
_CHANNEL = f"{_CHANNELS}<int:channel_id>/"

urlpatterns = [
    path(_INCIDENTS, incidents.incident_list, name="incidents"),
    path(f"{_INCIDENTS}bulk/", incidents.incidents_bulk, name="incidents_bulk"),
    path(_ONE, incidents.incident_detail, name="incident"),
    path(f"{_ONE}acknowledge/", incidents.incident_acknowledge, name="incident_acknowledge"),
    path(f"{_ONE}note/", incidents.incident_note, name="incident_note"),
    path(f"{_ONE}resolve/", incidents.incident_resolve, name="incident_resolve"),
    path(f"{_ONE}mute/", incidents.incident_silence, name="incident_mute"),
    path("<slug:slug>/monitoring/mutes/", mutes.mute_list, name="mutes"),
    path("<slug:slug>/monitoring/mutes/<int:mute_id>/lift/", mutes.mute_lift, name="mute_lift"),
    path(_CHANNELS, channels.channel_list, name="channels"),
    path(f"{_CHANNEL}change/", channels.channel_change, name="channel_change"),
    path(f"{_CHANNEL}rotate/", channels.channel_rotate, name="channel_rotate"),
    path(f"{_CHANNEL}test/", channels.channel_test, name="channel_test"),
    path(f"{_CHANNEL}delete/", channels.channel_delete, name="channel_delete"),
    path(
        f"{_CHANNEL}messages/<int:delivery_id>/again/", channels.channel_again, name="channel_again"
    ),
]
