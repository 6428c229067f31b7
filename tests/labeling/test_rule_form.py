"""A rule by name, and in units that people use, on Settings, Decisions and Freeze alike."""

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.labeling.forms.rule import UnitField, presets
from apps.labeling.models import Consensus, LabelingSettings
from measures.consensus.choosing import LEAST_PROPOSED
from measures.voting import Rule, decide

pytestmark = pytest.mark.django_db
RULE = ("overlap", "max_overlap", "least_votes", "least_agreeing", "least_share", "decide_by")


@pytest.fixture
def adas(ada: User, signed_in) -> Client:
    return signed_in(ada)


def fitted(project: Project, n_votes: int = LEAST_PROPOSED) -> None:
    Consensus.objects.create(
        project=project,
        method="mace",
        priors=[0.5, 0.5, 0, 0],
        confusion=[0.25] * 16,
        n_votes=n_votes,
        fitted_at=timezone.now(),
    )


def sent(form, **changes: object) -> dict[str, object]:
    """As a browser sends it."""
    shown = {field.html_name: field.value() for field in form}
    return {k: v for k, v in shown.items() if v is not False and v is not None} | changes


def stored() -> tuple:
    return LabelingSettings.objects.values_list(*RULE).get()


PAGES = ("labeling:settings", "agreement:decisions", "snapshots:create")


@pytest.mark.parametrize("page", PAGES)
def test_every_page_offers_the_same_rules_and_weighing_where_it_can_be_used(
    project: Project, adas: Client, page: str
) -> None:
    address = reverse(page, args=[project.slug])
    field = adas.get(address).context["form"]["preset"]
    alone = ["single_votes"] if page == "snapshots:create" else []
    offered = [key for key, _ in field.field.choices]
    assert offered == ["majority_3", "majority_5", *alone, "custom"]
    assert field.value() == "majority_5"  # the default rule
    assert "<details><summary>Custom" in adas.get(address).content.decode()
    fitted(project, LEAST_PROPOSED - 1)
    assert "reliability" not in presets(project.pk)
    Consensus.objects.update(n_votes=LEAST_PROPOSED)
    field = adas.get(address).context["form"]["preset"]
    assert "reliability" in [key for key, _ in field.field.choices]


def test_settings_take_a_rule_by_name_or_by_its_numbers(project: Project, adas: Client) -> None:
    address = reverse("labeling:settings", args=[project.slug])

    def save(**changes: object) -> None:
        answer = adas.post(address, sent(adas.get(address).context["form"], **changes))
        assert answer.status_code == 302, answer.context["form"].errors

    save(preset="majority_3", least_share="nonsense")
    assert stored() == (3, 3, 3, 2, 0.6, "votes")
    save(least_share="75")  # the rule by name stays chosen, a number of it changes
    assert stored() == (3, 3, 3, 2, 0.75, "votes")
    form = adas.get(address).context["form"]
    assert (form["preset"].value(), form["least_share"].value()) == ("custom", "75")
    assert "<details open><summary>Custom" in adas.get(address).content.decode()
    fitted(project)
    save(preset="reliability")
    assert stored()[-1] == "mace"
    save(preset="majority_5")
    assert stored() == (3, 5, 3, 3, 0.6, "votes")


def test_decisions_preview_and_apply_a_rule_by_name(project: Project, adas: Client) -> None:
    address = reverse("agreement:decisions", args=[project.slug])
    shown = adas.get(address, {"preset": "majority_3"}).context["form"].policy()
    assert (shown.max_overlap, shown.least_agreeing) == (3, 2)
    answer = adas.post(
        reverse("agreement:decisions_apply", args=[project.slug]),
        sent(adas.get(address).context["form"], preset="majority_3", action="apply"),
    )
    assert answer.status_code == 302
    assert stored() == (3, 3, 3, 2, 0.6, "votes")


def test_a_freeze_decides_by_a_rule_by_name(project: Project, adas: Client) -> None:
    address = reverse("snapshots:create", args=[project.slug])
    form = adas.get(address).context["form"]
    page = adas.post(address, sent(form, preset="majority_3", action="preview", name="x"))
    recipe = page.context["form"].cleaned_data["recipe"]
    assert (recipe.least_votes, recipe.least_agreeing, recipe.decide_by) == (3, 2, "votes")


def test_the_names_say_what_the_rules_do() -> None:
    from apps.labeling.forms.rule import MAJORITY_OF_3, MAJORITY_OF_5

    def outcome(preset, votes: str) -> str:
        v = preset.values
        rule = Rule(v["least_votes"], v["least_agreeing"], v["least_share"], v["max_overlap"])
        return decide(list(votes), rule).outcome.value

    assert [outcome(MAJORITY_OF_3, v) for v in ("aa", "aab", "aaa")] == [
        "needs_votes",
        "accepted",
        "accepted",
    ]
    assert [outcome(MAJORITY_OF_5, v) for v in ("aaa", "aab", "aabb", "aabba")] == [
        "accepted",
        "needs_votes",
        "needs_votes",
        "accepted",
    ]


def test_pages_speak_percent_minutes_and_seconds_and_store_what_they_did(
    project: Project, adas: Client
) -> None:
    address = reverse("labeling:settings", args=[project.slug])
    form = adas.get(address).context["form"]
    shown = {name: form[name].value() for name in ("least_share", "lease_seconds", "fast_ms")}
    assert shown == {"least_share": "60", "lease_seconds": "15", "fast_ms": "2"}
    adas.post(address, sent(form, lease_seconds="2.5", fast_ms="1.5", gold_share="12.5"))
    current = LabelingSettings.objects.get()
    assert (current.lease_seconds, current.fast_ms, current.gold_share) == (150, 1500, 0.125)
    wrong = adas.post(address, sent(form, least_share="101", lease_seconds="0.1"))
    assert wrong.status_code == 422
    errors = wrong.context["form"].errors
    assert errors["least_share"] == ["This must lie between 1 and 100."]
    assert errors["lease_seconds"] == ["This must lie between 0.5 and 1440."]


@pytest.mark.parametrize("share", [0.07, 0.1, 0.29, 0.57, 0.6, 0.999, 1 / 3])
def test_what_is_shown_comes_back_unchanged(share: float) -> None:
    field = UnitField(per=100, low=0, high=1)
    back = field.to_python(field.prepare_value(share))
    assert back == pytest.approx(share, abs=1e-11)
    assert back == share or share == 1 / 3
