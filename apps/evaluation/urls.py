"""Addresses of reward models, protocols and the playground. A single model comes last: its id
matches any word."""

from django.urls import path

from apps.evaluation.views import models, playground, protocols, ranking, status

app_name = "evaluation"
_RANKING_ONE = "<slug:slug>/reward-models/<str:checkpoint_id>/ranking/"
_ADVERSARIAL_ALL = "<slug:slug>/reward-models/<str:checkpoint_id>/adversarial/"
_ADVERSARIAL_ONE = f"{_ADVERSARIAL_ALL}<str:round_id>/"
_MODELS_ALL = "<slug:slug>/reward-models/"
_MODELS_ONE = f"{_MODELS_ALL}<str:checkpoint_id>/"
urlpatterns = [
    # playground
    path("<slug:slug>/playground/", playground.playground, name="playground"),
    path("<slug:slug>/playground/<str:question_id>/", playground.question, name="question"),
    path(
        "<slug:slug>/playground/<str:question_id>/act/",
        playground.question_act,
        name="question_act",
    ),
    # protocols
    path("<slug:slug>/protocols/", protocols.protocol_list, name="protocols"),
    path("<slug:slug>/protocols/<str:sha256>/", protocols.protocol, name="protocol"),
    path(
        "<slug:slug>/protocols/<str:sha256>/against/<str:other>/",
        protocols.protocol_diff,
        name="protocol_diff",
    ),
    path("<slug:slug>/runs/<str:run_id>/protocol/", protocols.run_protocol, name="run_protocol"),
    # ranking
    path(_RANKING_ONE, ranking.ranking, name="ranking"),
    path(f"{_RANKING_ONE}send/", ranking.ranking_send, name="ranking_send"),
    path(f"{_RANKING_ONE}outputs.csv", ranking.ranking_csv, name="ranking_csv"),
    # adversarial
    path(_ADVERSARIAL_ALL, ranking.adversarial, name="adversarial"),
    path(f"{_ADVERSARIAL_ALL}open/", ranking.adversarial_open, name="adversarial_open"),
    path(_ADVERSARIAL_ONE, ranking.adversarial_round, name="adversarial_round"),
    path(f"{_ADVERSARIAL_ONE}freeze/", ranking.adversarial_freeze, name="adversarial_freeze"),
    path(f"{_ADVERSARIAL_ONE}pairs.csv", ranking.adversarial_csv, name="adversarial_csv"),
    # models
    path(_MODELS_ALL, models.reward_models, name="reward_models"),
    path(f"{_MODELS_ALL}compare/", models.compare, name="compare"),
    path(_MODELS_ONE, models.reward_model, name="reward_model"),
    path(f"{_MODELS_ONE}assess/", models.assess, name="assess"),
    path(f"{_MODELS_ONE}approve/", status.approve, name="approve"),
    path(f"{_MODELS_ONE}reject/", status.reject, name="reject"),
    path(f"{_MODELS_ONE}retire/", status.retire, name="retire"),
    path(f"{_MODELS_ONE}reviews/<int:review_id>/", status.review, name="review"),
    path(f"{_MODELS_ONE}lines/<str:line>.csv", models.line_csv, name="line_csv"),
]
