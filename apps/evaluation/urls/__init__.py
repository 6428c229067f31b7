"""Addresses of reward models, a file per area. A single model comes last: its id matches any
word."""

from apps.evaluation.urls import adversarial, models, ranking

app_name = "evaluation"
urlpatterns = [
    *ranking.urlpatterns,
    *adversarial.urlpatterns,
    *models.urlpatterns,
]
