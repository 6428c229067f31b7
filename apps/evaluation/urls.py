"""Addresses of reward models, protocols, the playground, live dialogues,
head-to-heads, verdicts and audit sheets,
and models in service. A single model comes last: its id matches any word."""

from django.urls import path

from apps.evaluation.views import (
    dialogues,
    head_to_head,
    inbox,
    judges,
    models,
    outside,
    playground,
    promotion,
    protocols,
    ranking,
    sheets,
    status,
    suites,
)

app_name = "evaluation"
_RANKING_ONE = "<slug:slug>/reward-models/<str:checkpoint_id>/ranking/"
_ADVERSARIAL_ALL = "<slug:slug>/reward-models/<str:checkpoint_id>/adversarial/"
_ADVERSARIAL_ONE = f"{_ADVERSARIAL_ALL}<str:round_id>/"
_HEAD_TO_HEADS = "<slug:slug>/head-to-heads/"
_DIALOGUES = "<slug:slug>/dialogues/"
_DIALOGUE = f"{_DIALOGUES}<str:dialogue_id>/"
_CONVERSATIONS = "<slug:slug>/conversations/"
_JUDGES_ALL = "<slug:slug>/judges/"
_JUDGES_ONE = f"{_JUDGES_ALL}<int:judge_id>/"
_CERTIFICATES_ONE = "<slug:slug>/label-certificates/<str:certificate_id>/"
_SAMPLES = "<slug:slug>/samples/<str:run_id>/"
_SHEETS_ALL = "<slug:slug>/audit-sheets/"
_SHEETS_ONE = f"{_SHEETS_ALL}<str:sheet_id>/"
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
    # live dialogues
    path(_DIALOGUES, dialogues.dialogue_list, name="dialogues"),
    path(f"{_DIALOGUES}new/", dialogues.dialogue_new, name="dialogue_new"),
    path(_DIALOGUE, dialogues.dialogue, name="dialogue"),
    path(f"{_DIALOGUE}act/", dialogues.dialogue_act, name="dialogue_act"),
    path(f"{_DIALOGUE}conversations.jsonl", dialogues.dialogue_file, name="dialogue_file"),
    path(
        f"{_DIALOGUE}conversations/<str:key>/",
        dialogues.dialogue_conversation,
        name="dialogue_conversation",
    ),
    path(_CONVERSATIONS, dialogues.conversations, name="conversations"),
    path(
        f"{_CONVERSATIONS}begin/<str:dialogue_id>/",
        dialogues.conversation_begin,
        name="conversation_begin",
    ),
    path(f"{_CONVERSATIONS}<str:key>/", dialogues.conversation, name="conversation"),
    path(f"{_CONVERSATIONS}<str:key>/act/", dialogues.conversation_act, name="conversation_act"),
    # head-to-heads
    path(_HEAD_TO_HEADS, head_to_head.head_to_head_list, name="head_to_heads"),
    path(f"{_HEAD_TO_HEADS}new/", head_to_head.head_to_head_new, name="head_to_head_new"),
    path(f"{_HEAD_TO_HEADS}<str:head_to_head_id>/", head_to_head.head_to_head, name="head_to_head"),
    path(
        f"{_HEAD_TO_HEADS}<str:head_to_head_id>/act/",
        head_to_head.head_to_head_act,
        name="head_to_head_act",
    ),
    path(
        f"{_HEAD_TO_HEADS}<str:head_to_head_id>/votes.csv",
        head_to_head.head_to_head_csv,
        name="head_to_head_csv",
    ),
    path("<slug:slug>/runs/<str:run_id>/checks/", suites.run_checks, name="run_checks"),
    path("<slug:slug>/automatic-suite/", suites.automatic, name="automatic_suite"),
    path("<slug:slug>/runs/<str:run_id>/people/", head_to_head.run_people, name="run_people"),
    path("shared/head-to-head/<str:key>/", head_to_head.shared, name="shared"),
    path(
        f"{_HEAD_TO_HEADS}<str:head_to_head_id>/judge/",
        judges.head_to_head_judge,
        name="head_to_head_judge",
    ),
    # judges
    path(_JUDGES_ALL, judges.judge_list, name="judges"),
    path(f"{_JUDGES_ALL}new/", judges.judge_new, name="judge_new"),
    path(_JUDGES_ONE, judges.judge, name="judge"),
    path(f"{_JUDGES_ONE}version/", judges.version_new, name="judge_version_new"),
    path(f"{_JUDGES_ONE}differences/", judges.differences, name="judge_differences"),
    path(f"{_JUDGES_ONE}act/", judges.judge_act, name="judge_act"),
    path(_CERTIFICATES_ONE, judges.certificate, name="certificate"),
    path(f"{_CERTIFICATES_ONE}act/", judges.certificate_act, name="certificate_act"),
    # verdicts
    path("<slug:slug>/inbox/", inbox.inbox, name="inbox"),
    path("<slug:slug>/inbox/undo/", inbox.inbox_undo, name="inbox_undo"),
    path("<slug:slug>/inbox/close/", inbox.inbox_close, name="inbox_close"),
    path("<slug:slug>/inbox/<int:flagged_id>/", inbox.inbox_judge, name="inbox_judge"),
    path(_SAMPLES, inbox.run_samples, name="run_samples"),
    path(f"{_SAMPLES}<int:sample_id>/", inbox.sample_judge_view, name="sample_judge"),
    # audit sheets
    path(_SHEETS_ALL, sheets.sheets, name="sheets"),
    path(f"{_SHEETS_ALL}new/", sheets.sheet_new, name="sheet_new"),
    path(_SHEETS_ONE, sheets.sheet, name="sheet"),
    path(f"{_SHEETS_ONE}end/", sheets.sheet_end, name="sheet_end"),
    path(f"{_SHEETS_ONE}judge/", sheets.sheet_judge, name="sheet_judge"),
    path(f"{_SHEETS_ONE}judge/undo/", sheets.item_undo_view, name="item_undo"),
    path(f"{_SHEETS_ONE}judge/<str:item_id>/", sheets.item_judge_view, name="item_judge"),
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
    # promotion
    path("<slug:slug>/service/", promotion.service, name="service"),
    path("<slug:slug>/service/<slug:stage>/change/", promotion.stage_change, name="stage_change"),
    path(
        "<slug:slug>/models/<str:checkpoint_id>/promote/",
        promotion.promotion_new,
        name="promotion_new",
    ),
    path("<slug:slug>/promotions/<str:request_id>/", promotion.promotion, name="promotion"),
    path(
        "<slug:slug>/promotions/<str:request_id>/decide/",
        promotion.promotion_decide,
        name="promotion_decide",
    ),
    path("<slug:slug>/runs/<str:run_id>/checklists/", promotion.checklists, name="checklists"),
    # results of other programs
    path("<slug:slug>/outside-results/", outside.outside_all, name="outside_all"),
    path(
        "<slug:slug>/outside-results/<str:result_id>/delete/",
        outside.outside_delete,
        name="outside_delete",
    ),
    path(
        "<slug:slug>/models/<str:checkpoint_id>/outside-results/",
        outside.outside_results,
        name="outside_results",
    ),
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
