"""Addresses of reward models."""

from django.urls import path

from apps.evaluation.views import models

urlpatterns = [
    path("<slug:slug>/reward-models/", models.reward_models, name="reward_models"),
]
