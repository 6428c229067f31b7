"""Addresses of adversarial rounds."""

from django.urls import path

from apps.evaluation.views import adversarial

_ALL = "<slug:slug>/reward-models/<str:checkpoint_id>/adversarial/"
_ONE = f"{_ALL}<str:round_id>/"

urlpatterns = [
    path(_ALL, adversarial.adversarial, name="adversarial"),
    path(f"{_ALL}open/", adversarial.adversarial_open, name="adversarial_open"),
    path(_ONE, adversarial.adversarial_round, name="adversarial_round"),
    path(f"{_ONE}freeze/", adversarial.adversarial_freeze, name="adversarial_freeze"),
    path(f"{_ONE}pairs.csv", adversarial.adversarial_csv, name="adversarial_csv"),
]
