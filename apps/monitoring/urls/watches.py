from django.urls import path

from apps.monitoring.views import watches

_ALL = "<slug:slug>/monitoring/"
_ONE = f"{_ALL}watches/<str:watch_id>/"

urlpatterns = [
    path(_ALL, watches.overview, name="overview"),
    path(f"{_ALL}watches/new/", watches.watch_new, name="watch_new"),
    path(_ONE, watches.watch_detail, name="watch"),
    path(f"{_ONE}figures.csv", watches.watch_csv, name="watch_csv"),
    path(f"{_ONE}probe/", watches.watch_probe, name="watch_probe"),
    path(f"{_ONE}pause/", watches.watch_pause, name="watch_pause"),
    path(f"{_ONE}change/", watches.watch_change, name="watch_change"),
    path(f"{_ONE}rebase/", watches.watch_rebase, name="watch_rebase"),
    path(f"{_ONE}retarget/", watches.watch_retarget, name="watch_retarget"),
]
