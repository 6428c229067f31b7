"""Only some of what a policy wrote goes to people: which, with which probability, and who reads
their votes."""

import io
import json
from typing import Any

import numpy as np
import pytest
from django.db import IntegrityError, transaction
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from scipy.stats import chi2

from apps.accounts.models import AuditEvent, Project, User
from apps.accounts.services import token_create
from apps.agreement.services.reports import report_refresh
from apps.common.errors import Conflict, DomainError
from apps.evaluation.selectors.ceiling import _votes_behind
from apps.labeling.exports import results_export
from apps.labeling.models import Comparison, Decision, LabelingSettings, PairSelection, Slot
from apps.labeling.selectors.finding import Wanted
from apps.labeling.services import labeling_settings_update, slot_lease_next, vote_cast
from apps.loop import services, tasks
from apps.loop.plan import SelectionPlan, slices_draw
from apps.loop.services.selecting import RIDGE, PairsSelected, pairs_select
from apps.snapshots.assembling.assembly import ONLY_TRAINED_ON
from apps.snapshots.models import SelectionReplay, Snapshot, SnapshotRow
from apps.snapshots.recipe import TRAIN, SnapshotRecipe
from apps.snapshots.services.freezing import snapshot_freeze
from apps.snapshots.services.selection import pool_of_project, voted_pairs
from apps.snapshots.storage import artifact_store
from apps.training.models import Run
from tests.labeling.pairs import annotators_make
from tests.loop.conftest import generation_make, pair

pytestmark = pytest.mark.django_db

PLAN = SelectionPlan(pairs=20, measuring=0.3, measuring_votes=4, selected=0.25, seed=3)


def generated(project: Project, n: int = 40, *, prompts: int = 10, **more: Any) -> Run:
    """A finished generation of n pairs, about several prompts."""
    rows = [
        pair(
            f"Argue about the side of debate {k % prompts}.",
            f"debate {k} one says that this matters more than it seems {'because ' * (k % 7)}",
            f"debate {k} argument two follows from it later on {'and on ' * (k % 5)}",
        )
        for k in range(n)
    ]
    run = generation_make(project, rows, **more)
    run.state, run.ended_at = Run.State.FINISHED, timezone.now()
    run.save()
    return run


def queued(run: Run, name: str = "") -> list[Comparison]:
    found = Comparison.objects.filter(project=run.project, batch=f"run {run.pk}").order_by("pk")
    return list(found.filter(slice=name) if name else found)


def vote_all(project: Project, user: User, choice: str = "a") -> int:
    """Everything that the person is handed; how many."""
    n = 0
    while hasattr(lease := slot_lease_next(project=project, annotator=user), "slot"):
        vote_cast(slot=lease.slot, annotator=user, choice=choice, idempotency_key=f"{lease.slot}")
        n += 1
    return n


def test_every_candidate_is_drawn_to_measure_and_to_train_as_often_as_it_should_be() -> None:
    """2,000 seeds, 30 candidates: counts against n ÷ N, by χ², of which 1 in 10,000 is beyond."""
    counts = np.zeros((2, 30))
    for seed in range(2_000):
        drawn = slices_draw(30, measuring=6, training=12, seed=[seed, 7])
        assert [len(one) for one in drawn] == [6, 12]
        assert not set(drawn[0].tolist()) & set(drawn[1].tolist())
        for row, places in enumerate(drawn):
            counts[row, places] += 1
    for row, share in zip(counts, (6 / 30, 12 / 30), strict=True):
        expected = 2_000 * share
        # counts of a draw without replacement vary less than the multinomial's: by 1 − share
        statistic = ((row - expected) ** 2 / (expected * (1 - share))).sum() * 29 / 30
        assert statistic < chi2.ppf(0.9999, 29)


def test_the_slices_are_disjoint_and_say_with_which_probability_they_were_drawn(
    project: Project, crowd: list[Comparison], emil: User
) -> None:
    run = generated(project)
    found = pairs_select(run=run, plan=PLAN, by=emil)
    assert found == PairsSelected(
        queued=20,
        known=0,
        refused=0,
        candidates=40,
        measuring=6,
        training=9,
        selected=5,
        left=20,
        ridge=RIDGE,
        n_past=72,
    )
    kept = ("slice", "inclusion_probability", "stratum", "overlap")
    rows = [tuple(getattr(one, name) for name in kept) for one in queued(run)]
    assert sorted(set(rows), key=str) == [
        ("measuring", 6 / 40, "random", 4),
        ("selected", None, "priority", 1),
        ("training", 9 / 40, "priority", 1),
    ]
    assert len({one.external_id for one in queued(run)}) == len(rows) == 20
    places = Slot.objects.filter(task__batch=f"run {run.pk}").count()
    assert places == 6 * 4 + 9 + 5
    event = AuditEvent.objects.get(action="pairs.selected")
    assert (event.actor, event.details["plan"]) == (emil, PLAN.to_json())


def test_pairs_that_cannot_be_compared_are_no_candidates(project: Project) -> None:
    rows = [pair(f"Ask {k}.", f"One {k}.", f"Two {k}.") for k in range(8)]
    rows += [pair("Ask.", "Yes.", "  "), pair("Ask.", "Same.", "Same.")]
    run = generation_make(project, rows)
    Run.objects.filter(pk=run.pk).update(state="finished", ended_at=timezone.now())
    run.refresh_from_db()
    found = pairs_select(run=run, plan=SelectionPlan(pairs=4, measuring=1.0))
    assert (found.candidates, found.refused, found.measuring, found.left) == (8, 2, 4, 4)
    assert {one.inclusion_probability for one in queued(run)} == {0.5}


def test_the_measuring_pairs_do_not_depend_on_what_a_model_chooses(
    project: Project, crowd: list[Comparison]
) -> None:
    drawn = []
    run = generated(project)
    for selected in (0.0, 0.5):
        with transaction.atomic():
            pairs_select(run=run, plan=SelectionPlan(pairs=20, selected=selected))
            drawn.append([one.external_id for one in queued(run, "measuring")])
            transaction.set_rollback(True)
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("strategy", ["d_optimal", "entropy", "disagreement"])
def test_at_most_two_selected_pairs_are_of_one_prompt(
    project: Project, crowd: list[Comparison], strategy: str
) -> None:
    run = generated(project, 60, prompts=4)
    plan = SelectionPlan(pairs=30, measuring=0.2, selected=0.5, strategy=strategy)
    found = pairs_select(run=run, plan=plan)
    assert (found.measuring, found.training, found.selected) == (6, 9, 8), "four prompts, two each"
    of_prompt = [one.prompt_id for one in queued(run, "selected")]
    assert max(of_prompt.count(prompt) for prompt in of_prompt) == 2
    assert found.left == 60 - 23


def test_the_same_plan_again_changes_nothing_and_another_is_refused(
    project: Project, emil: User
) -> None:
    run = generated(project)
    plan = SelectionPlan(pairs=10)
    first = pairs_select(run=run, plan=plan)
    before = [(one.pk, one.updated_at) for one in queued(run)]
    again = pairs_select(
        run=run, plan=SelectionPlan.from_json(json.loads(json.dumps(plan.to_json())))
    )
    assert (first.queued, first.known, again.queued, again.known) == (10, 0, 0, 10)
    assert [(one.pk, one.updated_at) for one in queued(run)] == before
    assert AuditEvent.objects.filter(action="pairs.selected").count() == 1
    with pytest.raises(Conflict) as refused:
        pairs_select(run=run, plan=SelectionPlan(pairs=11))
    assert refused.value.code == "pairs_queued"
    with pytest.raises(Conflict) as refused:
        services.fresh_pairs_queue(run=run, by=emil)
    assert refused.value.code == "pairs_selected"
    assert len(queued(run)) == 10
    assert services.fresh_pairs_take_back(run=run, by=emil) == 10
    assert not PairSelection.objects.exists()
    assert pairs_select(run=run, plan=SelectionPlan(pairs=11)).queued == 11


def test_a_run_all_of_whose_pairs_are_queued_is_not_chosen_from(project: Project) -> None:
    run = generated(project, 4)
    services.fresh_pairs_queue(run=run)
    with pytest.raises(Conflict, match="all of them"):
        pairs_select(run=run, plan=SelectionPlan(pairs=2))
    assert {one.slice for one in queued(run)} == {""}


def test_a_run_whose_pairs_were_chosen_does_not_send_the_rest_by_itself(project: Project) -> None:
    run = generated(project, to_people=True)
    pairs_select(run=run, plan=SelectionPlan(pairs=10))
    assert tasks.queue_fresh_pairs() == 0
    assert len(queued(run)) == 10


def test_what_is_cut_off_half_way_leaves_nothing(
    project: Project, crowd: list[Comparison], monkeypatch
) -> None:
    def killed(**_values: Any) -> None:
        assert Comparison.objects.filter(slice="selected").exists(), "all slices are written"
        raise KeyboardInterrupt

    run = generated(project)
    with monkeypatch.context() as patched:
        patched.setattr(PairSelection.objects, "create", killed)
        with pytest.raises(KeyboardInterrupt), transaction.atomic():
            pairs_select(run=run, plan=PLAN)
    assert not queued(run)
    assert not AuditEvent.objects.filter(action="pairs.selected").exists()
    assert pairs_select(run=run, plan=PLAN).queued == 20


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pairs", 0),
        ("pairs", True),
        ("measuring", 1.1),
        ("measuring", "half"),
        ("measuring_votes", 2),
        ("measuring_votes", 6),
        ("selected", 0.51),
        ("selected", float("nan")),
        ("strategy", "uncertainty"),
        ("most_per_prompt", 0),
        ("seed", -1),
        ("pears", 3),
    ],
)
def test_a_plan_that_cannot_be_followed_names_the_field(field: str, value: Any) -> None:
    with pytest.raises(DomainError) as refused:
        SelectionPlan.from_json({"pairs": 10, field: value})
    assert (refused.value.code, refused.value.field) == ("bad_plan", field)


def test_a_plan_needs_its_number_and_shares_that_fit_together() -> None:
    with pytest.raises(DomainError) as refused:
        SelectionPlan.from_json({"measuring": 0.5})
    assert refused.value.field == "pairs"
    with pytest.raises(DomainError) as refused:
        SelectionPlan(pairs=10, measuring=0.8, selected=0.3)
    assert refused.value.field == "selected"
    assert SelectionPlan(pairs=9, selected=0.5).sizes(100) == (2, 3, 4), "at most half"
    assert SelectionPlan(pairs=900).sizes(100) == (20, 80, 0), "no more than there are"


def test_a_model_is_not_asked_where_it_has_too_little_to_learn_from(project: Project) -> None:
    run = generated(project)
    with pytest.raises(DomainError, match=r"0 pairs .* it needs 50") as refused:
        pairs_select(run=run, plan=PLAN)
    assert (refused.value.code, refused.value.field) == ("few_past_votes", "selected")
    assert not queued(run)
    assert pairs_select(run=run, plan=SelectionPlan(pairs=20)).selected == 0, "none is needed"


def test_what_has_not_finished_or_asks_for_too_many_votes_is_refused(project: Project) -> None:
    run = generated(project)
    LabelingSettings.objects.update_or_create(
        project=project, defaults={"overlap": 2, "max_overlap": 3}
    )
    with pytest.raises(DomainError) as refused:
        pairs_select(run=run, plan=SelectionPlan(pairs=10, measuring_votes=5))
    assert (refused.value.code, refused.value.field) == ("bad_votes", "measuring_votes")
    Run.objects.filter(pk=run.pk).update(state="running", ended_at=None)
    run.refresh_from_db()
    with pytest.raises(Conflict, match="not finished"):
        pairs_select(run=run, plan=SelectionPlan(pairs=10))
    assert not queued(run)


def test_the_database_holds_slices_and_probabilities_together(
    project: Project, crowd: list[Comparison]
) -> None:
    row = Comparison.objects.filter(pk=crowd[0].pk)
    for bad in (
        {"slice": "measuring"},
        {"slice": "training", "inclusion_probability": 0.0},
        {"slice": "training", "inclusion_probability": 1.1},
        {"slice": "selected", "inclusion_probability": 0.5},
        {"slice": "", "inclusion_probability": 0.5},
        {"slice": "other", "inclusion_probability": 0.5},
    ):
        with pytest.raises(IntegrityError), transaction.atomic():
            row.update(**bad)


def test_training_pairs_get_one_vote_and_measuring_pairs_all_that_were_planned(
    project: Project,
) -> None:
    """The rule wants three votes and would accept after three; early stopping would ask no more."""
    people = annotators_make(project, 6)
    run = generated(project, 10)
    LabelingSettings.objects.update_or_create(
        project=project, defaults={"overlap": 3, "max_overlap": 5, "gold_share": 0}
    )
    pairs_select(run=run, plan=SelectionPlan(pairs=6, measuring=0.5, measuring_votes=5))
    for user in people:
        vote_all(project, user)
    assert [one.n_votes for one in queued(run, "training")] == [1, 1, 1]
    assert [one.n_votes for one in queued(run, "measuring")] == [5, 5, 5]
    assert {one.state for one in queued(run, "measuring")} == {"decided"}
    assert {one.state for one in queued(run, "training")} == {"open"}
    assert not Slot.objects.filter(project=project, state="free").exists()


def test_another_number_of_votes_for_open_pairs_leaves_planned_ones_alone(
    project: Project, ada: User
) -> None:
    run = generated(project, 10)
    pairs_select(run=run, plan=SelectionPlan(pairs=6, measuring=0.5, measuring_votes=5))
    labeling_settings_update(project=project, by=ada, overlap=4, apply_overlap=True)
    assert [one.overlap for one in queued(run, "measuring")] == [5, 5, 5]
    assert [one.overlap for one in queued(run, "training")] == [1, 1, 1]


_AGREEMENT = ("two_way", "choices", "splits", "decisions", "slices", "matrix", "models", "chance")


def figures_of(project: Project) -> dict[str, Any]:
    figures = report_refresh(project=project).figures
    return {name: figures[name] for name in _AGREEMENT}


def test_agreement_sees_votes_on_measuring_pairs_and_on_no_other_slice(
    project: Project, crowd: list[Comparison]
) -> None:
    run = generated(project)
    pairs_select(run=run, plan=PLAN)
    before = figures_of(project)
    people = annotators_make(project, 4)
    Slot.objects.filter(task__slice="measuring").update(state="withdrawn")
    assert sum(vote_all(project, user, "b") for user in people) == 14
    assert figures_of(project) == before
    Slot.objects.filter(task__slice="measuring").update(state="free")
    for number, user in enumerate(people):
        vote_all(project, user, "ab"[number % 2])
    after = figures_of(project)
    assert after["two_way"]["percent"]["n_items"] == before["two_way"]["percent"]["n_items"] + 6
    assert after["two_way"]["percent"]["value"] < before["two_way"]["percent"]["value"]


@pytest.fixture
def planted(project: Project, crowd: list[Comparison]) -> list[Comparison]:
    """Every third pair of the crowd, which is decided, as if a model had chosen it; every third
    after it as if drawn to train."""
    selected = Comparison.objects.filter(pk__in=[one.pk for one in crowd[::3]])
    selected.update(slice="selected", stratum="priority")
    Comparison.objects.filter(pk__in=[one.pk for one in crowd[1::3]]).update(
        slice="training", inclusion_probability=0.25, stratum="priority"
    )
    return list(selected)


def freeze(project: Project, emil: User) -> Snapshot:
    recipe = SnapshotRecipe(
        splits={"train": 0.5, "dev": 0.2, "public_test": 0.3},
        least_votes=2,
        least_agreeing=2,
        heldout_annotators=0.2,
        seed="s",
    )
    return snapshot_freeze(project=project, name="Chosen", recipe=recipe, user=emil)


def test_selected_pairs_are_trained_on_and_never_measured_on(
    project: Project, planted: list[Comparison], emil: User
) -> None:
    snapshot = freeze(project, emil)
    rows = SnapshotRow.objects.filter(snapshot=snapshot, comparison__in=planted)
    assert set(rows.values_list("split", "dropped_because")) == {
        (TRAIN, ""),
        ("", ONLY_TRAINED_ON),
    }
    others = SnapshotRow.objects.filter(snapshot=snapshot).exclude(comparison__in=planted)
    assert set(others.exclude(split="").values_list("split", flat=True)) >= {"dev", "public_test"}
    n = snapshot.counts["dropped"][ONLY_TRAINED_ON]
    assert n == rows.filter(split="").count() > 0
    ceiling = len(_votes_behind(snapshot)[0])
    unseen = others.filter(split="public_test", comparison__slice="")
    assert ceiling == unseen.count() > 0, "no pair with one vote, nor one that was chosen"


def test_datasets_carry_slices_and_probabilities_where_there_are_any(
    project: Project, planted: list[Comparison], emil: User
) -> None:
    snapshot = freeze(project, emil)
    store = artifact_store()
    rows = list(store.lines(f"{snapshot.uri}/train.jsonl"))
    assert {(row["slice"], row["inclusion_probability"]) for row in rows} == {
        ("selected", None),
        ("training", 0.25),
        ("", None),
    }
    assert set(snapshot.counts["slices"]) == {"selected", "training"}
    card = store.read_bytes(f"{snapshot.uri}/README.md").decode()
    assert "inclusion_probability" in card
    Comparison.objects.update(slice="", inclusion_probability=None)
    plain = freeze(project, emil)
    assert "slice" not in next(iter(store.lines(f"{plain.uri}/train.jsonl")))
    assert "slices" not in plain.counts


def test_a_replay_leaves_out_what_a_model_chose(
    project: Project, planted: list[Comparison], crowd: list[Comparison]
) -> None:
    assert len(pool_of_project(project).x) == len(crowd) - len(planted)
    assert voted_pairs(project).n == len(crowd) - len(planted)


def test_results_and_decisions_say_slice_and_probability(
    project: Project, planted: list[Comparison], emil: User, client: Client
) -> None:
    content = results_export(project=project, form="jsonl", wanted=Wanted()).content
    text = content.read() if isinstance(content, io.IOBase) else b"".join(content)
    rows = [json.loads(line) for line in text.splitlines()]
    assert {(row["slice"], row["inclusion_probability"]) for row in rows} == {
        ("selected", None),
        ("training", 0.25),
        ("", None),
    }
    Decision.objects.create(comparison=planted[0], project=project, outcome="accepted", winner="b")
    token = token_create(user=emil, name="t", scopes=["read"], days=1)[1]
    found = client.get(
        f"/api/v1/projects/{project.slug}/decisions", headers={"authorization": f"Bearer {token}"}
    ).json()["items"][0]
    assert (found["slice"], found["inclusion_probability"]) == ("selected", None)


def test_the_form_is_off_at_first_and_says_what_a_replay_found(
    project: Project, crowd: list[Comparison], emil: User, client: Client
) -> None:
    run = generated(project)
    client.force_login(emil)
    page = reverse("loop:pairs", args=[project.slug, run.pk])
    shown = client.get(page).content.decode()
    assert "Choose which pairs people label" in shown
    assert "checked" not in shown.split('name="choose"')[1].split(">")[0]
    assert "was not replayed yet" in shown
    assert reverse("snapshots:selection", args=[project.slug]) in shown
    replayed = SelectionReplay.objects.create(
        project=project, state="finished", verdict="no_evidence", ended_at=timezone.now()
    )
    SelectionReplay.objects.filter(pk=replayed.pk).update(
        created_at=timezone.datetime(2026, 11, 3, 12, tzinfo=timezone.get_current_timezone())
    )
    SelectionReplay.objects.create(
        project=project, kind="depth", state="finished", verdict="better", ended_at=timezone.now()
    )
    said = "No evidence that selection helps here (replay of 3 Nov 2026)."
    assert said in client.get(page).content.decode(), "a replay of depth says nothing of it"


def test_pairs_are_chosen_on_the_runs_page(
    project: Project, crowd: list[Comparison], emil: User, client: Client
) -> None:
    run = generated(project)
    client.force_login(emil)
    page = reverse("loop:pairs", args=[project.slug, run.pk])
    sent = {"action": "send", "votes": 3, "priority": 2, "choose": "on", "pairs": 20}
    sent |= {"measuring": 30, "measuring_votes": 4, "selected": 25, "strategy": "entropy"}
    sent |= {"most_per_prompt": 2, "seed": 0}
    bad = client.post(page, sent | {"selected": 60})
    assert (bad.status_code, Comparison.objects.filter(batch=f"run {run.pk}").count()) == (422, 0)
    assert "checked" in bad.content.decode().split('name="choose"')[1].split(">")[0]
    both = client.post(page, sent | {"measuring": 90})
    assert "at most all pairs together" in both.content.decode()
    most = client.post(page, sent | {"measuring_votes": 5} | {"selected": 0}, follow=True)
    assert "20 of 40 pairs are in the label queue" in most.content.decode()
    client.post(page, {"action": "take_back"})
    client.post(page, sent)
    assert {(one.slice, one.priority) for one in queued(run)} == {
        ("measuring", 2.0),
        ("training", 2.0),
        ("selected", 2.0),
    }
    shown = client.get(page).content.decode()
    assert "each with probability 0.15; 4 votes each" in shown
    assert "not in the label queue" in shown
    client.post(page, {"action": "take_back"})
    client.post(page, {"action": "send", "votes": 3, "priority": 0, "pairs": 20, "selected": 25})
    assert {one.slice for one in queued(run)} == {""}, "the switch is off"
    assert len(queued(run)) == 40


def test_programs_choose_pairs(
    project: Project, crowd: list[Comparison], emil: User, ana: User, client: Client
) -> None:
    run = generated(project)
    path = f"/api/v1/projects/{project.slug}/runs/{run.pk}/pairs/selection"

    def post(user: User, body: dict[str, Any]) -> Any:
        scopes = ["read", "train"] if user == emil else ["read"]
        token = token_create(user=user, name="t", scopes=scopes, days=1)[1]
        headers = {"authorization": f"Bearer {token}"}
        return client.post(path, body, "application/json", headers=headers)

    assert post(ana, {"pairs": 10}).status_code == 403
    bad = post(emil, {"pairs": 10, "selected": 0.6})
    assert (bad.status_code, bad.json()["field"]) == (400, "selected")
    assert post(emil, {"pairs": 10, "select": 0.5}).status_code in (400, 422)
    body = {"pairs": 10, "selected": 0.5, "strategy": "disagreement"}
    made = post(emil, body).json()
    assert (made["measuring"], made["training"], made["selected"], made["left"]) == (2, 3, 5, 30)
    assert made["plan"]["seed"] == 0
    assert post(emil, body).json()["known"] == 10
    assert post(emil, {"pairs": 9}).status_code == 409
