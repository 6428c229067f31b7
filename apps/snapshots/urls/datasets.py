from django.urls import path

from apps.snapshots.views import datasets as views

urlpatterns = [
    path("<slug:slug>/datasets/", views.snapshot_list, name="list"),
    path("<slug:slug>/datasets/new/", views.snapshot_create, name="create"),
    path("<slug:slug>/datasets/<str:snapshot>/", views.snapshot_detail, name="detail"),
    path("<slug:slug>/datasets/<str:snapshot>/verify/", views.snapshot_verify, name="verify"),
    path("<slug:slug>/datasets/<str:snapshot>/action/", views.snapshot_action, name="action"),
    path("<slug:slug>/datasets/<str:snapshot>/private/", views.snapshot_private, name="private"),
    path("<slug:slug>/datasets/<str:snapshot>/file/", views.snapshot_download, name="download"),
]
