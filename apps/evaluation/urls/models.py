"""Addresses of reward models. What is no model's id comes first."""

from django.urls import path

from apps.evaluation.views import assessing, models, status

_ALL = "<slug:slug>/reward-models/"
_ONE = f"{_ALL}<str:checkpoint_id>/"

urlpatterns = [
    path(_ALL, models.reward_models, name="reward_models"),
    path(f"{_ALL}compare/", models.compare, name="compare"),
    path(_ONE, models.reward_model, name="reward_model"),
    path(f"{_ONE}assess/", assessing.assess, name="assess"),
    path(f"{_ONE}approve/", status.approve, name="approve"),
    path(f"{_ONE}reject/", status.reject, name="reject"),
    path(f"{_ONE}retire/", status.retire, name="retire"),
    path(f"{_ONE}reviews/<int:review_id>/", status.review, name="review"),
    path(f"{_ONE}lines/<str:line>.csv", models.line_csv, name="line_csv"),
]
