"""Pages below `p/`."""

from django.urls import path

from apps.labeling.views import answers, comparisons, guidelines, label, settings

app_name = "labeling"
urlpatterns = [
    path("<slug:slug>/label/", label.label, name="label"),
    path("<slug:slug>/label/vote/", label.vote, name="vote"),
    path("<slug:slug>/label/skip/", label.skip, name="skip"),
    path("<slug:slug>/label/hold/", label.hold, name="hold"),
    path("<slug:slug>/label/who/", label.who, name="who"),
    path("<slug:slug>/answers/", answers.answers, name="answers"),
    path("<slug:slug>/answers/<int:vote_id>/revise/", label.revise, name="revise"),
    path("<slug:slug>/answers/<int:vote_id>/withdraw/", label.withdraw, name="withdraw"),
    path("<slug:slug>/guidelines/", guidelines.guidelines, name="guidelines"),
    path("<slug:slug>/guidelines/edit/", guidelines.guideline_edit, name="guideline_edit"),
    path("<slug:slug>/comparisons/", comparisons.comparisons, name="comparisons"),
    path("<slug:slug>/comparisons/<int:comparison_id>/", comparisons.comparison, name="comparison"),
    path(
        "<slug:slug>/comparisons/<int:comparison_id>/state/",
        comparisons.comparison_state,
        name="comparison_state",
    ),
    path("<slug:slug>/settings/", settings.settings, name="settings"),
]
