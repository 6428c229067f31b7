"""Pages below `p/`."""

from django.urls import path

from apps.labeling.views import (
    annotators,
    comments,
    comparisons,
    guidelines,
    hours,
    images,
    imports,
    label,
    person_votes,
    qualification,
    ratings,
    settings,
)

app_name = "labeling"
urlpatterns = [
    path("<slug:slug>/label/", label.label, name="label"),
    path("<slug:slug>/label/vote/", label.vote, name="vote"),
    path("<slug:slug>/label/skip/", label.skip, name="skip"),
    path("<slug:slug>/label/hold/", label.hold, name="hold"),
    path(
        "<slug:slug>/label/part/<int:slot>/<str:side>/<int:number>/",
        label.part,
        name="part",
    ),
    path("<slug:slug>/label/who/", label.who, name="who"),
    path("<slug:slug>/opt-outs/", label.opt_outs, name="opt_outs"),
    path("<slug:slug>/answers/", label.answers, name="answers"),
    path("<slug:slug>/answers/<int:vote_id>/revise/", label.revise, name="revise"),
    path("<slug:slug>/answers/<int:vote_id>/withdraw/", label.withdraw, name="withdraw"),
    path("<slug:slug>/guidelines/", guidelines.guidelines, name="guidelines"),
    path("<slug:slug>/guidelines/edit/", guidelines.guideline_edit, name="guideline_edit"),
    path("<slug:slug>/consent/", guidelines.consent, name="consent"),
    path("<slug:slug>/guidelines/acknowledge/", guidelines.acknowledge, name="acknowledge"),
    path("<slug:slug>/qualification/", qualification.qualification, name="qualification"),
    path(
        "<slug:slug>/qualification/start/",
        qualification.qualification_start,
        name="qualification_start",
    ),
    path(
        "<slug:slug>/qualification/answer/",
        qualification.qualification_answer,
        name="qualification_answer",
    ),
    path("<slug:slug>/annotators/", annotators.annotators, name="annotators"),
    path(
        "<slug:slug>/annotators/qualify/",
        annotators.annotators_qualify,
        name="annotators_qualify",
    ),
    path("<slug:slug>/annotators/<int:user_id>/", annotators.annotator, name="annotator"),
    path("<slug:slug>/images/", images.images, name="images"),
    path("<slug:slug>/hours/", hours.hours, name="hours"),
    path("<slug:slug>/hours.csv", hours.hours_csv, name="hours_csv"),
    path("<slug:slug>/annotators/<int:user_id>/votes/", person_votes.votes, name="person_votes"),
    path(
        "<slug:slug>/annotators/<int:user_id>/votes/discard/",
        person_votes.votes_discard,
        name="person_votes_discard",
    ),
    path(
        "<slug:slug>/annotators/<int:user_id>/votes/discards/<int:discard_id>/undo/",
        person_votes.discard_undo,
        name="discard_undo",
    ),
    path(
        "<slug:slug>/annotators/<int:user_id>/limits/",
        annotators.annotator_limits,
        name="annotator_limits",
    ),
    path(
        "<slug:slug>/annotators/<int:user_id>/pause/",
        annotators.annotator_pause,
        name="annotator_pause",
    ),
    path(
        "<slug:slug>/annotators/<int:user_id>/qualification/",
        annotators.annotator_qualification,
        name="annotator_qualification",
    ),
    path("<slug:slug>/comparisons/", comparisons.comparisons, name="comparisons"),
    path("<slug:slug>/comparisons/results/", comparisons.results_file, name="results_file"),
    path("<slug:slug>/comparisons/votes/", comparisons.votes_file, name="votes_file"),
    path(
        "<slug:slug>/comparisons/trajectories/",
        comparisons.trajectories_file,
        name="trajectories_file",
    ),
    path("<slug:slug>/comparisons/bulk/", comparisons.bulk, name="bulk"),
    path("<slug:slug>/comparisons/views/", comparisons.views, name="views"),
    path("<slug:slug>/comparisons/ambiguous/", comparisons.ambiguous, name="ambiguous"),
    path("<slug:slug>/comparisons/<int:comparison_id>/", comparisons.comparison, name="comparison"),
    path(
        "<slug:slug>/comparisons/<int:comparison_id>/state/",
        comparisons.comparison_state,
        name="comparison_state",
    ),
    path(
        "<slug:slug>/comparisons/<int:comparison_id>/comments/", comments.comments, name="comments"
    ),
    path("<slug:slug>/comments/<int:comment_id>/", comments.comment, name="comment"),
    path("<slug:slug>/questions/", comments.questions, name="questions"),
    path("<slug:slug>/label/ask/", comments.ask, name="ask"),
    path("<slug:slug>/imports/", imports.imports, name="imports"),
    path("<slug:slug>/imports/<slug:job_id>/", imports.import_job, name="import"),
    path(
        "<slug:slug>/imports/<slug:job_id>/settings/",
        imports.import_settings,
        name="import_settings",
    ),
    path("<slug:slug>/imports/<slug:job_id>/do/", imports.import_action, name="import_action"),
    path("<slug:slug>/imports/<slug:job_id>/people/", imports.import_people, name="import_people"),
    path(
        "<slug:slug>/imports/<slug:job_id>/findings.csv",
        imports.import_findings,
        name="import_findings",
    ),
    path("<slug:slug>/rate/", label.label, name="rate"),  # its address in 0.2
    path("<slug:slug>/rate/submit/", ratings.submit, name="rate_submit"),
    path("<slug:slug>/rate/skip/", ratings.skip, name="rate_skip"),
    path("<slug:slug>/rate/mine/", ratings.mine, name="ratings_mine"),
    path("<slug:slug>/rate/mine/<int:rating_id>/", ratings.change, name="rating_change"),
    path("<slug:slug>/ratings/", ratings.tasks, name="rating_tasks"),
    path("<slug:slug>/ratings/pairs/", ratings.pairs, name="rating_pairs"),
    path("<slug:slug>/ratings/<int:task_id>/", ratings.task, name="rating_task"),
    path(
        "<slug:slug>/ratings/<int:task_id>/state/",
        ratings.task_state,
        name="rating_task_state",
    ),
    path("<slug:slug>/settings/", settings.settings, name="settings"),
]
