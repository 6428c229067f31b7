"""Audits: what is due, who audits, and what is made of where they differ."""

import random
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from apps.accounts.models import Project, User
from apps.agreement.screens.audits import figures
from apps.agreement.selectors import audits
from apps.agreement.selectors.audits import audit_sample, kappa_of, reviewer_error
from apps.common import kept
from apps.common.errors import Refused
from apps.labeling import selectors as labeling_selectors
from apps.labeling import services as labeling
from apps.labeling.models import Comparison, Decision, LabelingSettings, Slot, Vote
from apps.labeling.services import Lease
from apps.labeling.services.review import comparison_drop
from tests.agreement.crowd import cast, crowd_write, disputed_make, newer_guideline
from tests.labeling.pairs import leased, rows_make

SignedIn = Callable[[User], Client]
PAGE = "/p/arguments/audits/"
ALL = {"audit_rate": 1.0, "random_share": 1.0}


def decided_make(project: Project, n: int = 3, **settings: object) -> list[Comparison]:
    """n comparisons that two people agreed on."""
    pairs, _ = disputed_make(project, n=n, votes="aa", **ALL | settings)
    return pairs


def audit(project: Project, reviewer: User, choice: str) -> Slot:
    lease = labeling.slot_lease_audit(project=project, annotator=reviewer)
    assert isinstance(lease, Lease), lease
    labeling.vote_cast(
        slot=lease.slot,
        annotator=reviewer,
        idempotency_key=lease.key,
        choice=choice,
        lease_next=False,
    )
    return Slot.objects.get(pk=lease.slot)


def test_votes_on_decided_comparisons_are_due_and_others_are_not(project: Project) -> None:
    pairs = decided_make(project, n=3)
    sample = audit_sample(project=project)
    assert (sample.due, sample.overdue, len(sample.done)) == (6, 0, 0)
    assert sum(sample.population.values()) == 6
    for pair, state, outcome in zip(
        pairs,
        ("contested", "decided", "decided"),
        ("contested", "adjudicated", "accepted"),
        strict=True,
    ):
        Comparison.objects.filter(pk=pair.pk).update(state=state)
        Decision.objects.filter(comparison=pair).update(outcome=outcome)
    assert audit_sample(project=project).due == 2
    Comparison.objects.filter(pk=pairs[2].pk).update(stratum="gold")
    assert audit_sample(project=project).due == 0


def test_counts_that_take_long_are_kept_for_a_while(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "SLOW_S", -1.0)
    monkeypatch.setattr(kept, "TIMES", 1_000_000)
    decided_make(project, n=3)
    found = audit_sample(project=project)
    Comparison.objects.filter(project=project).update(state="contested")
    Decision.objects.filter(project=project).update(outcome="contested")
    assert audit_sample(project=project).due == found.due == 6
    cache.clear()
    assert audit_sample(project=project).due == 0


def test_the_sample_is_the_one_that_is_handed_out(project: Project, rita: User) -> None:
    decided_make(project, n=20, audit_rate=0.3)
    due = audit_sample(project=project).due
    assert 3 <= due <= 24  # 12 of 40 expected
    n = len({audit(project, rita, "a").measures_id for _ in range(20) if _left(project, rita)})
    sample = audit_sample(project=project)
    assert (len(sample.done), sample.due) == (n, due - n)
    # who has met a pair is not asked about the other vote on it
    assert n == Slot.objects.filter(kind="audit").values("task").distinct().count()


def test_audits_due_are_counted_up_to_a_number(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided_make(project, n=3)
    cache.clear()
    assert audits.audits_due(project=project) == audit_sample(project=project).due == 6
    monkeypatch.setattr(audits, "MOST_DUE", 4)
    cache.clear()
    assert audits.audits_due(project=project) == 5


def _left(project: Project, reviewer: User) -> bool:
    got = labeling.slot_lease_audit(project=project, annotator=reviewer)
    return isinstance(got, Lease)


def test_audits_are_overdue_after_the_days_the_project_sets(
    project: Project, rita: User, signed_in: SignedIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided_make(project, n=1)
    client = signed_in(rita)
    assert "overdue: waiting" not in client.get(PAGE).content.decode()
    eight_days_on = timezone.now() + timedelta(days=8)
    monkeypatch.setattr(audits, "timezone", SimpleNamespace(now=lambda: eight_days_on))
    assert audit_sample(project=project).overdue == 2
    page = client.get(PAGE).content.decode()
    assert "2 audits are overdue" in page
    audit(project, rita, "a")
    assert audit_sample(project=project).overdue == 1
    LabelingSettings.objects.update(audit_days=30)
    assert audit_sample(project=project).overdue == 0


def test_a_ruling_on_what_an_audit_found_does_not_hide_the_error(
    project: Project, rita: User, ada: User
) -> None:
    decided_make(project, n=2)
    wrong = audit(project, rita, "b")
    right = audit(project, rita, "a")
    comparison_drop(comparison=wrong.task, by=ada)
    labeling.comparison_adjudicate(comparison=right.task, choice="a", reason="looked at", by=ada)
    sample = audit_sample(project=project)
    assert sorted(row.differs for row in sample.done) == [False, True]
    found = figures(
        sample, reviewer_error(project=project, sample=sample, least=20, kappa=1.0), 1.0
    )
    assert found.votes.value == 0.5
    assert found.decisions.value == 0.5


def test_a_new_round_does_not_hide_that_the_old_one_decided_wrongly(
    project: Project, rita: User, ada: User
) -> None:
    (pair,) = decided_make(project, n=1)
    audit(project, rita, "b")
    newest = newer_guideline(project, ada)
    labeling.comparisons_send_again(
        project=project, comparisons=[pair.pk], guideline=newest, by=ada
    )
    sample = audit_sample(project=project)
    (row,) = sample.done
    assert (row.choice, row.judged, row.decided, row.n_votes) == ("a", "b", "a", 2)
    assert row.decision_differs
    assert sample.due == 0  # votes of an earlier round wait for nobody


def test_reviewers_who_answered_gold_pairs_are_corrected_for(
    project: Project, rita: User, ada: User
) -> None:
    decided_make(project, n=15)
    for number in range(15):
        audit(project, rita, "b" if number < 3 else "a")
    sample = audit_sample(project=project)
    unknown = reviewer_error(project=project, sample=sample, least=20, kappa=1.0)
    assert unknown.source == ""
    assert "0 answers" in unknown.rate.undefined
    assert figures(sample, unknown, 1.0).votes_corrected.not_corrected
    rows = [
        row | {"stratum": "gold", "gold": "a", "id": f"gold-{row['id']}"}
        for row in rows_make(20, start=900)
    ]
    LabelingSettings.objects.update(overlap=1)
    labeling.comparisons_import(project=project, rows=rows)
    for number in range(20):
        cast(project, rita, "a" if number else "b")
    known = reviewer_error(project=project, sample=sample, least=20, kappa=1.0)
    assert (known.source, known.rate.value, known.rate.n) == ("gold", 0.05, 20)
    found = figures(sample, known, 1.0)
    assert found.votes_corrected.not_corrected is None
    by_hand = (found.votes.value - 0.05) / 0.9
    assert found.votes_corrected.rate.value == pytest.approx(by_hand)


def test_a_fifth_of_corrupted_votes_is_what_the_page_shows(
    project: Project, rita: User, signed_in: SignedIn
) -> None:
    """SPEC B5, through the tables: a perfect reviewer, one vote in five flipped."""
    rng = random.Random(5)
    truth = [rng.choice("ab") for _ in range(120)]
    flip = {"a": "b", "b": "a"}
    votes = [[t if rng.random() > 0.2 else flip[t] for _ in range(3)] for t in truth]
    LabelingSettings.objects.create(project=project, audit_rate=1.0)
    pairs = crowd_write(project, votes)
    for pair, cast_votes in zip(pairs, votes, strict=True):
        winner = max("ab", key=cast_votes.count)
        Decision.objects.create(
            comparison=pair,
            project=project,
            outcome="accepted",
            winner=winner,
            n_a=cast_votes.count("a"),
            n_b=cast_votes.count("b"),
        )
    Comparison.objects.update(state="decided")
    right = dict(zip((pair.pk for pair in pairs), truth, strict=True))
    for pair in pairs:  # one vote of each is judged again
        vote = Vote.objects.filter(comparison=pair).order_by("id")[pair.pk % 3]
        slot = Slot.objects.create(
            project=project,
            task=pair,
            position=9,
            kind="audit",
            state="done",
            annotator=rita,
            measures_id=vote.pk,
        )
        Vote.objects.create(
            project=project,
            comparison=pair,
            slot=slot,
            annotator=rita,
            choice=right[pair.pk],
            chosen=getattr(pair, f"response_{right[pair.pk]}"),
            idempotency_key=f"audit-{pair.pk}",
            cast_at=timezone.now(),
        )
    sample = audit_sample(project=project)
    found = figures(
        sample, reviewer_error(project=project, sample=sample, least=20, kappa=1.0), 1.0
    )
    interval = found.votes.interval
    assert interval.low <= 0.2 <= interval.high
    wrong = [max("ab", key=v.count) != t for v, t in zip(votes, truth, strict=True)]
    assert found.decisions.value == pytest.approx(sum(wrong) / 120)
    assert kappa_of(project=project) == 1.0
    page = signed_in(rita).get(PAGE).content.decode()
    assert f"{100 * found.votes.value:.1f} %" in page
    assert "crowd-0" not in page  # numbered for reviewers


# --- audit now ------------------------------------------------------------------------------------


def test_audit_now_gives_audits_one_after_another_and_label_ends_it(
    project: Project, rita: User, signed_in: SignedIn
) -> None:
    decided_make(project, n=2)
    labeling.comparisons_import(project=project, rows=rows_make(3, start=50))  # ordinary work
    client = signed_in(rita)
    page = client.get(PAGE)
    assert "Audit now" in page.content.decode()
    assert page.context["settings"].audit_share == 0
    kinds = []
    answer = client.get("/p/arguments/label/?lane=audit")
    assert answer.context["notice"].icon == "eye-off"
    for _ in range(2):
        slot = Slot.objects.get(annotator=rita, state="leased")
        kinds.append(slot.kind)
        answer = client.post(
            "/p/arguments/label/vote/",
            {"slot": slot.pk, "key": _key(answer.content.decode()), "answer": "left"},
            headers={"HX-Request": "true"},
        )
        assert answer.status_code == 200
    assert kinds == ["audit", "audit"]
    assert 'data-nothing="audits_done"' in answer.content.decode()
    client.get("/p/arguments/label/")  # back to the common queue
    assert Slot.objects.get(annotator=rita, state="leased").kind == "regular"


def test_audit_now_works_without_javascript(
    project: Project, rita: User, signed_in: SignedIn
) -> None:
    decided_make(project, n=2)
    client = signed_in(rita)
    page = client.get("/p/arguments/label/?lane=audit").content.decode()
    slot = Slot.objects.get(annotator=rita, state="leased")
    answer = client.post(
        "/p/arguments/label/vote/", {"slot": slot.pk, "key": _key(page), "answer": "left"}
    )
    assert answer.url == "/p/arguments/label/?lane=audit"
    client.get(answer.url)
    assert Slot.objects.filter(annotator=rita, kind="audit").count() == 2


@pytest.mark.parametrize("htmx", [True, False])
def test_audits_go_on_after_the_guidelines_that_stood_before_them(
    htmx: bool, project: Project, rita: User, ada: User, signed_in: SignedIn
) -> None:
    decided_make(project, n=2)
    labeling.comparisons_import(project=project, rows=rows_make(3, start=50))  # ordinary work
    labeling.guideline_publish(project=project, by=ada, body="Read this.", is_major=True)
    version = labeling_selectors.guideline_current(project=project).version
    client = signed_in(rita)
    client.get("/p/arguments/label/?lane=audit")
    assert not Slot.objects.filter(annotator=rita).exists()  # the guidelines come first
    back = client.post("/p/arguments/guidelines/acknowledge/", {"version": version})
    page = client.get(back.url).content.decode()
    slot = Slot.objects.get(annotator=rita, state="leased")
    assert slot.kind == "audit"
    headers = {"HX-Request": "true"} if htmx else {}
    sent = {"slot": slot.pk, "key": _key(page), "answer": "left"}
    answer = client.post("/p/arguments/label/vote/", sent, headers=headers)
    if not htmx:
        client.get(answer.url)
    assert set(Slot.objects.filter(annotator=rita).values_list("kind", flat=True)) == {"audit"}


def test_an_ordinary_pair_in_hand_is_not_shown_as_an_audit(
    project: Project, rita: User, signed_in: SignedIn
) -> None:
    decided_make(project, n=1)
    labeling.comparisons_import(project=project, rows=rows_make(1, start=50))
    leased(project, rita)
    page = signed_in(rita).get("/p/arguments/label/?lane=audit")
    assert Slot.objects.get(annotator=rita, state="leased").kind == "regular"
    assert "an audit" not in page.content.decode()
    assert page.context["notice"].icon == "info"


def _key(page: str) -> str:
    return page.split('name="key" value="')[1].split('"')[0]


def test_a_pair_in_hand_comes_before_an_audit(project: Project, rita: User) -> None:
    decided_make(project, n=1)
    labeling.comparisons_import(project=project, rows=rows_make(1, start=50))
    lease = leased(project, rita)
    got = labeling.slot_lease_audit(project=project, annotator=rita)
    assert got.slot == lease.slot
    assert Slot.objects.filter(kind="audit").count() == 0


def test_annotators_judge_no_votes_of_others(
    project: Project, ana: User, signed_in: SignedIn
) -> None:
    decided_make(project, n=1)
    with pytest.raises(Refused):
        labeling.slot_lease_audit(project=project, annotator=ana)
    page = signed_in(ana).get("/p/arguments/label/?lane=audit").content.decode()
    assert "Audits:" not in page
    assert not Slot.objects.filter(kind="audit").exists()


def test_nobody_audits_a_pair_they_judged_in_an_earlier_round(
    project: Project, rita: User, ada: User
) -> None:
    (pair,) = decided_make(project, n=1)
    Slot.objects.create(
        project=project, task=pair, position=1003, kind="former", state="done", annotator=rita
    )
    got = labeling.slot_lease_audit(project=project, annotator=rita)
    assert got.code == "audits_done"
    assert isinstance(labeling.slot_lease_audit(project=project, annotator=ada), Lease)


def test_two_reviewers_at_once_do_not_get_the_same_vote(
    project: Project, rita: User, ada: User
) -> None:
    (pair,) = decided_make(project, n=1)
    first, second = (
        labeling.slot_lease_audit(project=project, annotator=who) for who in (rita, ada)
    )
    measured = Slot.objects.filter(kind="audit").values_list("measures", flat=True)
    assert len(set(measured)) == 2
    assert {first.comparison, second.comparison} == {pair.pk}


# --- who sees what --------------------------------------------------------------------------------


def test_names_are_for_admins(
    project: Project, rita: User, ada: User, emil: User, signed_in: SignedIn
) -> None:
    decided_make(project, n=1)
    assert "annotator-0" in signed_in(ada).get(PAGE).content.decode()
    for reader in (rita, emil):
        page = signed_in(reader).get(PAGE).content.decode()
        assert "annotator-0" not in page
        assert "Annotator 1" in page
    assert "lane=audit" not in signed_in(emil).get(PAGE).content.decode()


def test_differences_are_listed_and_lead_to_the_dispute(
    project: Project, rita: User, ana: User, olga: User, signed_in: SignedIn
) -> None:
    decided_make(project, n=2)
    wrong = audit(project, rita, "b")
    audit(project, rita, "a")
    client = signed_in(rita)
    page = client.get(PAGE).content.decode()
    assert f"/p/arguments/disputes/{wrong.task_id}/" in page
    assert "1 audit<" in page
    assert "2 audits<" in client.get(f"{PAGE}?show=all").content.decode()
    csv = b"".join(client.get(f"{PAGE}audits.csv").streaming_content).decode().splitlines()
    assert len(csv) == 3
    assert sum(',"1","1",' in line or ",1,1," in line for line in csv) == 1
    assert signed_in(ana).get(PAGE).status_code == 403
    assert signed_in(olga).get(PAGE).status_code == 404


def test_without_decided_votes_the_page_says_so(
    project: Project, rita: User, signed_in: SignedIn
) -> None:
    page = signed_in(rita).get(PAGE).content.decode()
    assert 'data-empty="eye"' in page
    assert "Audit now" not in page
