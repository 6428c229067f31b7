"""Judging models and their answers: what their numbers mean, who may be optimised against, and
what people say of single answers."""

from typing import Any

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from apps.common.registry import (
    ModelPanel,
    NavItem,
    RunTab,
    SamplePanel,
    audit_subjects_add,
    card_lines_add,
    dataset_panel_add,
    end_listener_add,
    flagged_listener_add,
    heavy_add,
    judge_standing_set,
    model_panel_add,
    named_models_add,
    nav_add,
    people_rates_set,
    person_erasure_add,
    project_figures_add,
    protocol_pages_set,
    run_tab_add,
    run_uses_add,
    sample_panel_set,
    self_limited_add,
    translated,
    upload_add,
    withdrawal_listener_add,
    work_offers_add,
)


class EvaluationConfig(AppConfig):
    name = "apps.evaluation"
    label = "evaluation"

    def ready(self) -> None:
        from apps.accounts.selectors import named_by
        from apps.evaluation.models import HeadToHead
        from apps.evaluation.selectors.head_to_head import people_rates
        from apps.evaluation.selectors.judges import run_uses as judge_uses
        from apps.evaluation.selectors.models import judge_standing
        from apps.evaluation.selectors.suites import run_uses as suite_uses
        from apps.evaluation.services.protocols import evaluation_ended
        from apps.evaluation.services.ranking import run_uses
        from apps.evaluation.services.suites import policy_ended
        from apps.evaluation.views.protocols import protocol_address
        from apps.training.models import Checkpoint, Run

        audit_subjects_add(
            ("model", "outputs", "adversarial"),
            named_by(Checkpoint, "pk", "evaluation:reward_model"),
        )
        heavy_add("api:certificate_freeze")
        audit_subjects_add(("suite",), named_by(Run, "name", "training:run"))
        audit_subjects_add(("head_to_head",), named_by(HeadToHead, "pk", "evaluation:head_to_head"))
        run_uses_add(run_uses)
        run_uses_add(suite_uses)
        run_uses_add(judge_uses)
        end_listener_add(policy_ended)
        people_rates_set(people_rates)
        judge_standing_set(judge_standing)
        run_tab_add(
            RunTab("suite", "Checks", "evaluation:run_checks", when=_is_finished_evaluation)
        )
        run_tab_add(
            RunTab("people", "People", "evaluation:run_people", when=_is_finished_evaluation)
        )
        end_listener_add(evaluation_ended)
        protocol_pages_set(protocol_address)
        run_tab_add(
            RunTab(
                "protocol",
                "Protocol",
                "evaluation:run_protocol",
                when=lambda run: run.kind in ("evaluate", "assess"),
            )
        )
        self_limited_add("api:score")  # two requests wait for scores in a process, no more
        staff = frozenset({"engineer", "admin"})
        nav_add(
            NavItem(
                48,
                _("Head-to-heads"),
                "evaluation:head_to_heads",
                "arrow-left-right",
                "head_to_heads",
                staff | {"reviewer"},
            )
        )
        nav_add(
            NavItem(
                62,
                _("Reward models"),
                "evaluation:reward_models",
                "percent",
                "reward_models",
                staff,
            )
        )
        self._dialogues()
        self._judges()
        self._promotion()
        self._verdicts()
        self._outside()

    def _dialogues(self) -> None:
        from apps.accounts.selectors import named_by
        from apps.evaluation.models import DialogueCampaign
        from apps.evaluation.screens.dialogues import work_offers
        from apps.evaluation.selectors.dialogues import has_dialogues, run_uses
        from apps.evaluation.services.dialogues import dialogues_erase

        audit_subjects_add(("dialogue",), named_by(DialogueCampaign, "name", "evaluation:dialogue"))
        person_erasure_add(dialogues_erase)
        run_uses_add(run_uses)
        work_offers_add(work_offers)
        staff, labelers = (
            frozenset({"engineer", "admin"}),
            frozenset({"annotator", "reviewer", "admin"}),
        )
        nav_add(
            NavItem(
                48,
                _("Dialogues"),
                "evaluation:dialogues",
                "message-square",
                "dialogues",
                staff,
            )
        )
        nav_add(
            NavItem(
                11,
                _("Conversations"),
                "evaluation:conversations",
                "message-square",
                "conversations",
                labelers,
                has_dialogues,
            )
        )
        heavy_add("evaluation:dialogue_file", "api:dialogue_conversations")
        pages = ("conversations", "conversation_begin", "conversation", "conversation_act")
        translated(*(f"evaluation:{name}" for name in pages))

    def _judges(self) -> None:
        from apps.accounts.selectors import named_by
        from apps.evaluation.models import Judge
        from apps.evaluation.selectors.judges import certificates_behind, certificates_within

        panel = "evaluation/_certificates_panel.html"
        model_panel_add(ModelPanel(panel, certificates_behind))
        dataset_panel_add(ModelPanel(panel, certificates_within))
        audit_subjects_add(("judge",), named_by(Judge, "name", "evaluation:judge"))
        readers = frozenset({"reviewer", "engineer", "admin"})
        nav_add(NavItem(49, _("Judges"), "evaluation:judges", "scale", "judges", readers))

    def _outside(self) -> None:
        from apps.accounts.selectors import named_by
        from apps.evaluation.selectors.outside import run_uses
        from apps.evaluation.views.outside import panel_of
        from apps.training.models import Checkpoint

        upload_add("evaluation:outside_results", "api:outside_results_import")
        run_uses_add(run_uses)
        model_panel_add(ModelPanel("evaluation/_outside_panel.html", panel_of))
        audit_subjects_add(
            ("outside_result",), named_by(Checkpoint, "run__name", "evaluation:outside_results")
        )

    def _promotion(self) -> None:
        from apps.accounts.selectors import named_by
        from apps.evaluation.models import PromotionRequest
        from apps.evaluation.selectors import evidence_measured  # noqa: F401 # its lines
        from apps.evaluation.selectors.cards import card_lines
        from apps.evaluation.selectors.checklists import has_checklists
        from apps.evaluation.selectors.overdue import overdue_figures
        from apps.evaluation.selectors.promotion import named_models, run_uses

        audit_subjects_add(
            ("promotion",),
            named_by(PromotionRequest, "checkpoint__run__name", "evaluation:promotion"),
        )
        card_lines_add(card_lines)
        project_figures_add(overdue_figures)
        named_models_add(named_models)
        run_uses_add(run_uses)
        run_tab_add(
            RunTab("checklists", "Checklists", "evaluation:checklists", when=has_checklists)
        )
        readers = frozenset({"reviewer", "engineer", "admin"})
        nav_add(
            NavItem(62, _("Models in service"), "evaluation:service", "flag", "service", readers)
        )

    def _verdicts(self) -> None:
        from apps.accounts.selectors import named_by
        from apps.evaluation.models import AuditSheet
        from apps.evaluation.screens.verdicts import sample_panels
        from apps.evaluation.services.flagging import answer_flag, answer_forget
        from apps.evaluation.services.sheets import run_uses
        from apps.training.models import Run

        flagged_listener_add(answer_flag)
        withdrawal_listener_add(answer_forget)
        sample_panel_set(
            SamplePanel(
                "evaluation/_sample_verdicts.html",
                "evaluation/_verdict_keys.html",
                "js/verdicts.js",
                sample_panels,
            )
        )
        run_uses_add(run_uses)
        audit_subjects_add(("verdict", "inbox"), named_by(Run, "name", "training:run"))
        audit_subjects_add(("sheet",), named_by(AuditSheet, "pk", "evaluation:sheet"))
        readers = frozenset({"reviewer", "engineer", "admin"})
        for rank, label, page, icon in (
            (47, _("Inbox"), "inbox", "inbox"),
            (48, _("Audit sheets"), "sheets", "eye-off"),
        ):
            nav_add(NavItem(rank, label, f"evaluation:{page}", icon, page, readers))


def _is_finished_evaluation(run: Any) -> bool:
    return run.kind == "evaluate" and run.state == "finished"
