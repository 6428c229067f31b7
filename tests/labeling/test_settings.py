"""The labeling settings: what may be set, what must fit together, and the page's long form."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import Project, User
from apps.common.errors import DomainError
from apps.labeling import services
from apps.labeling.forms.settings import LabelingSettingsForm
from apps.labeling.models import LabelingSettings

Refuse = Callable[..., DomainError]
CORRECT = {"key": "correct", "label": "Correct"}


@pytest.fixture
def refused(project: Project, ada: User) -> Refuse:
    def change(**changes: Any) -> DomainError:
        with pytest.raises(DomainError) as caught:
            services.labeling_settings_update(project=project, by=ada, **changes)
        assert not LabelingSettings.objects.filter(project=project).exists()
        return caught.value

    return change


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"gold_share": 0.6}, "gold_share"),
        ({"gold_share": 0.2, "repeat_share": 0.3, "audit_share": 0.1}, "repeat_share"),
        ({"gold_share": float("nan")}, "gold_share"),
        ({"daily_cap": -1}, "daily_cap"),
        ({"daily_cap": float("inf")}, "daily_cap"),
        ({"skips_to_review": 1.5}, "skips_to_review"),
        ({"require_criteria": True}, "criteria"),
        ({"require_rationale": True}, "require_rationale"),
        ({"show_improve": "yes"}, "show_improve"),
        ({"criteria": [CORRECT, CORRECT]}, "criteria"),
        ({"criteria": [CORRECT, {"key": "other", "label": "Correct"}]}, "criteria"),
        ({"criteria": [{"key": "Not a key", "label": "x"}]}, "criteria"),
        ({"criteria": [{"key": "x", "label": ""}]}, "criteria"),
        ({"criteria": [{"key": "x"}]}, "criteria"),
        ({"criteria": "correct"}, "criteria"),
        ({"criteria": [{"key": f"k{n}", "label": f"l{n}"} for n in range(9)]}, "criteria"),
        ({"reasons": ["Clear", "Clear"]}, "reasons"),
        ({"reasons": ["x" * 41]}, "reasons"),
        ({"reasons": [""]}, "reasons"),
        ({"constraint_phrases": ["x" * 201]}, "constraint_phrases"),
        ({"qualification_pass": 0}, "qualification_pass"),
        ({"no_such": 1}, "no_such"),
    ],
)
def test_what_cannot_work_is_refused_at_its_field_and_changes_nothing(
    refused: Refuse, changes: dict[str, Any], field: str
) -> None:
    assert refused(**changes).field == field


def test_shares_that_the_database_takes_are_taken(project: Project, ada: User) -> None:
    current = services.labeling_settings_update(
        project=project, by=ada, gold_share=0.25, repeat_share=0.125, audit_share=0.125
    )
    assert (current.gold_share, current.audit_share) == (0.25, 0.125)


def test_the_form_shows_lists_as_lines_and_reads_them_back_unchanged(project: Project) -> None:
    current = LabelingSettings(
        project=project,
        criteria=[CORRECT, {"key": "safe", "label": "Safe: no harm"}],
        reasons=["Clear", "Safer"],
    )
    shown = LabelingSettingsForm(current=current)
    data = {bound.name: bound.value() for bound in shown}
    assert data["criteria"] == "correct: Correct\nsafe: Safe: no harm"
    assert data["reasons"] == "Clear\nSafer"
    again = LabelingSettingsForm(
        {name: value for name, value in data.items() if value is not False}, current=current
    )
    assert again.is_valid(), again.errors
    assert again.changes() == {}


def test_ada_writes_criteria_a_line_each_and_a_label_alone_gets_a_key(
    project: Project, ada: User, signed_in: Callable[[User], Client]
) -> None:
    browser = signed_in(ada)
    form = LabelingSettingsForm(current=LabelingSettings(project=project))
    sent = {bound.name: bound.value() for bound in form if bound.value() is not False}
    sent |= {"criteria": "ok: Correct\r\n\r\nÜber alles kläger", "require_criteria": "on"}
    answer = browser.post("/p/arguments/settings/", sent)
    assert answer.status_code == 302, answer.context["form"].errors
    stored = LabelingSettings.objects.get()
    assert stored.criteria == [
        {"key": "ok", "label": "Correct"},
        {"key": "uber_alles_klager", "label": "Über alles kläger"},
    ]
    assert stored.require_criteria
    refused = browser.post("/p/arguments/settings/", sent | {"criteria": "ok: A\nok: B"})
    html = refused.content.decode()
    assert refused.status_code == 422
    assert "is there twice" in html
    assert 'href="#id_criteria"' in html
    assert "ok: A\nok: B" in html


def test_the_api_changes_and_shows_every_setting(
    project: Project, ada: User, signed_in: Callable[[User], Client]
) -> None:
    browser = signed_in(ada)
    url = "/api/v1/projects/arguments/labeling"
    shown = browser.get(url).json()
    columns = {f.name for f in LabelingSettings._meta.get_fields()}
    assert set(shown) == columns - {"project", "created_at", "updated_at"}
    changed = browser.patch(
        url,
        {"criteria": [CORRECT], "reasons": ["Clear"], "daily_cap": 200, "audit_share": 0.1},
        content_type="application/json",
    ).json()
    assert (changed["criteria"], changed["reasons"]) == ([CORRECT], ["Clear"])
    assert (changed["daily_cap"], changed["audit_share"]) == (200, 0.1)
    refused = browser.patch(url, {"gold_share": 0.5}, content_type="application/json")
    assert (refused.status_code, refused.json()["field"]) == (400, "gold_share")
