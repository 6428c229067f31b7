"""The page of a reward model: every line, its evidence, and nothing that breaks it."""

import json
import re
from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from apps.accounts.models import Project, User
from apps.evaluation.lines import LINES
from apps.snapshots.models import Snapshot
from apps.training.models import Artifact, Run, RunInput
from measures.trust.findings import LINES as MEASURED
from tests.evaluation.assessed import (
    HOSTILE,
    all_green,
    assessment_make,
    dataset_make,
    file_of,
    green,
    model_make,
    red,
    with_evidence,
)
from tests.evaluation.test_protocols import FIRST, WARMER
from tests.people import person_make

WEB_LINES = {"people_rank", "freshness"}


@pytest.fixture(autouse=True)
def artifacts(tmp_path: Path, settings: Settings) -> None:
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")


@pytest.fixture
def model(project: Project, emil: User):
    return model_make(project, by=emil)


@pytest.fixture
def page(emil: User, signed_in):
    """`page(path)` below the project, as Emil sees it."""
    client: Client = signed_in(emil)

    def read(path: str, status: int = 200) -> str:
        answer = client.get(f"/p/arguments/{path}")
        assert answer.status_code == status, answer.content[:500]
        return answer.content.decode()

    return read


def verdict_of(text: str, line: str) -> str:
    part = text.split(f'id="{line}">')[1].split("</summary>")[0]
    return re.search(r"(Bad|OK|Unknown)</span>", part).group(1)


def test_every_line_that_is_measured_has_its_words_in_the_same_order():
    assert tuple(LINES) == MEASURED


def test_a_model_nobody_assessed_shows_every_line_as_not_measured_and_what_to_do(model, page):
    text = page(f"reward-models/{model.pk}/")
    for line in set(LINES) - WEB_LINES:
        assert verdict_of(text, line) == "Unknown"
    assert "Nobody has" in text
    assert f"/reward-models/{model.pk}/assess/" in text
    assert "optimisation unknown" in text


def test_every_line_appears_with_its_verdict_and_what_is_missing_is_not_measured(model, page):
    assessment_make(model, [red("accuracy"), green("beats_length")])
    text = page(f"reward-models/{model.pk}/")
    assert verdict_of(text, "accuracy") == "Bad"
    assert verdict_of(text, "beats_length") == "OK"
    assert verdict_of(text, "overfit") == "Unknown"
    assert len(re.findall(r'<details class="finding"', text)) == len(LINES)
    assert "1 failed" in text
    assert "not fit" in text
    named = text.split('class="tallies"')[1].split("</section>")[0]
    assert 'href="#accuracy"' in named
    assert 'href="#overfit"' in named
    assert 'href="#beats_length"' not in named


def test_every_kind_of_evidence_is_drawn_and_said_in_words(model, page):
    assessment_make(model, with_evidence())
    text = page(f"reward-models/{model.pk}/")
    for kind in ("intervals", "table", "curve", "histogram", "texts"):
        assert f"evidence-{kind}" in text
    assert "evidence-undrawn" not in text
    assert "73.1 %" in text
    assert "70.1–76.1 %" in text
    assert "no such pairs" in text  # the reason of an undefined share stands in its place
    assert "fewer than 10 clusters" in text
    assert "Scores. chosen: middle" in text
    assert "Held-out judge: 0" in text
    assert "0.660 at 8" in text
    assert "style=" not in text


def test_what_models_and_people_wrote_is_never_run(model, page):
    assessment_make(model, with_evidence())
    text = page(f"reward-models/{model.pk}/")
    assert HOSTILE not in text
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text


def test_the_csv_of_a_line_holds_its_numbers_and_runs_no_formula(model, page):
    assessment_make(model, with_evidence())
    text = page(f"reward-models/{model.pk}/lines/slices.csv")
    assert '"dialogue"' in text
    assert "0.41" in text
    formula = page(f"reward-models/{model.pk}/lines/praise_probes.csv")
    assert not re.search(r'(^|,)"=', formula)
    for line in LINES:
        assert page(f"reward-models/{model.pk}/lines/{line}.csv").startswith('"line"')
    page(f"reward-models/{model.pk}/lines/unknown.csv", status=404)


def test_the_ten_highest_and_lowest_answers_can_be_read(model, page):
    assessment_make(model)
    text = page(f"reward-models/{model.pk}/").split('id="tops"')[1]
    assert text.count("answer 0") == 2
    assert text.count("answer 9") == 2


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not JSON",
        b"[]",
        b"null",
        b'{"version": 2, "findings": []}',
        b'{"version": 1}',
        b'{"version": 1, "findings": 3}',
        b'{"version": 1, "findings": [], "tops": {"top": [{"surprise": 1}]}}',
        b"[" * 200_000 + b"]" * 200_000,
    ],
)
def test_a_broken_file_is_a_note_and_its_lines_are_not_measured(model, page, content):
    assessment_make(model, content=content)
    text = page(f"reward-models/{model.pk}/")
    assert "shown as not" in text
    assert verdict_of(text, "accuracy") == "Unknown"
    page("reward-models/")


def test_a_file_that_is_gone_or_changed_is_a_note(model, page):
    run = assessment_make(model)
    Artifact.objects.filter(run=run).update(sha256="1" * 64)
    assert "not the content" in page(f"reward-models/{model.pk}/")
    Artifact.objects.filter(run=run).update(uri="runs/none/assessment.json")
    assert "is missing" in page(f"reward-models/{model.pk}/")


def test_half_a_character_in_an_answer_is_shown_as_one_that_is_unknown(model, page):
    made = file_of(all_green())
    made["tops"] = {"top": [{"prompt": "p", "answer": "half \ud800 \x00", "score": 1e400}]}
    assessment_make(model, content=json.dumps(made).encode())
    text = page(f"reward-models/{model.pk}/")
    assert "half" in text
    assert verdict_of(text, "accuracy") == "OK"


@pytest.mark.parametrize(
    "broken",
    [
        {"line": "accuracy"},
        {"line": "accuracy", "verdict": "blue", "says": "x"},
        {"line": "accuracy", "verdict": "green", "says": "x", "evidence": [{"kind": "film"}]},
        {
            "line": "accuracy",
            "verdict": "green",
            "says": "x",
            "unit": "share",
            "figure": {"value": 0.7, "low": [], "high": {}, "n": "many"},
        },
        "accuracy",
    ],
)
def test_a_finding_that_cannot_be_read_is_not_measured_and_spoils_no_other(model, page, broken):
    made = file_of(all_green()[1:])
    made["findings"].append(broken)
    assessment_make(model, content=json.dumps(made).encode())
    text = page(f"reward-models/{model.pk}/")
    assert verdict_of(text, "accuracy") == "Unknown"
    assert verdict_of(text, "beats_length") == "OK"


@pytest.mark.parametrize(
    "block",
    [
        {"kind": "histogram", "title": "T", "edges": [0, 1], "groups": [["a", [0.5, 0.5]]]},
        {"kind": "histogram", "title": "T", "edges": [0, None], "groups": [["a", [0.5]]]},
        {"kind": "histogram", "title": "T", "edges": [], "groups": []},
        {
            "kind": "curve",
            "title": "T",
            "series": [{"label": "s", "x": [1], "y": []}],
            "x_label": "x",
            "y_label": "y",
        },
        {
            "kind": "curve",
            "title": "T",
            "series": [],
            "x_label": "x",
            "y_label": "y",
            "log_x": True,
        },
        {"kind": "curve", "title": "T", "series": [], "x_label": "", "y_label": "", "marks": [[1]]},
        {"kind": "table", "title": "T", "columns": ["a"], "formats": [], "rows": [[1, 2]]},
        {"kind": "table", "title": "T", "columns": [], "formats": [], "rows": []},
        {"kind": "intervals", "title": "T", "rows": []},
        {"kind": "texts", "title": "T", "examples": []},
    ],
)
def test_odd_evidence_breaks_no_page(model, page, block):
    one = {"line": "accuracy", "verdict": "green", "says": "fine", "evidence": [block]}
    made = file_of([])
    made["findings"] = [one]
    assessment_make(model, content=json.dumps(made).encode())
    assert verdict_of(page(f"reward-models/{model.pk}/"), "accuracy") == "OK"
    page(f"reward-models/{model.pk}/lines/accuracy.csv")


def test_while_the_model_is_assessed_again_the_last_look_stays_and_progress_is_shown(model, page):
    assessment_make(model, all_green(red("slices")))
    assessment_make(model, name="again", content=b"", state="running", ended_at=None, step=2)
    text = page(f"reward-models/{model.pk}/")
    assert 'id="assessing"' in text
    assert "last finished" in text
    assert verdict_of(text, "slices") == "Bad"


def test_progress_is_polled_and_the_page_is_read_again_once_the_run_has_ended(
    model, emil, signed_in
):
    run = assessment_make(model, content=b"", state="running", ended_at=None)
    client, address = signed_in(emil), f"/p/arguments/reward-models/{model.pk}/"
    polled = client.get(f"{address}?watch={run.pk}", headers={"HX-Request": "true"})
    assert 'id="assessing"' in polled.content.decode()
    assert "<html" not in polled.content.decode()
    Run.objects.filter(pk=run.pk).update(state="finished", ended_at=run.started_at)
    over = client.get(f"{address}?watch={run.pk}", headers={"HX-Request": "true"})
    assert over.headers["HX-Refresh"] == "true"


def test_the_first_assessment_under_way_is_no_reason_to_press_again(model, page):
    assessment_make(model, content=b"", state="queued", ended_at=None)
    text = page(f"reward-models/{model.pk}/")
    assert "assessment is running" in text
    assert "Press “Assess”" not in text
    assert "being assessed" in page("reward-models/")


def test_an_assessment_that_failed_says_why_and_leaves_the_last_one(model, page):
    assessment_make(model)
    assessment_make(
        model,
        content=b"",
        state="failed",
        failure_kind="bad_data",
        failure_message="The dataset has no held-out pairs.",
    )
    text = page(f"reward-models/{model.pk}/")
    assert "The dataset has no held-out pairs." in text
    assert verdict_of(text, "accuracy") == "OK"


def test_the_list_shows_each_models_lines_and_can_be_searched_and_filtered(project, model, page):
    assessment_make(model, with_evidence())
    model_make(project, name="another")
    text = page("reward-models/")
    assert "2 models" in text
    assert "73.1 % ± 3.0, n = 612" in text
    assert "not assessed" in text
    assert "another" not in page("reward-models/?q=rewards")
    assert "No reward model" in page("reward-models/?status=approved")


def test_an_empty_list_says_why_and_what_to_do(page):
    text = page("reward-models/")
    assert "/runs/new/reward/" in text


def test_two_models_stand_side_by_side_with_what_differs_marked(project, model, page):
    data = model.run.inputs.get().snapshot
    other = model_make(project, name="another", data=data)
    alike = {"summary": {"protocol": FIRST.to_json()}}
    assessment_make(model, all_green(red("slices")), **alike)
    assessment_make(other, all_green(red("accuracy")), **alike)
    text = page(f"reward-models/compare/?a={model.pk}&b={other.pk}")
    assert text.count('class="differs"') == 2
    assert "2 of" in text
    assert "not comparable" not in text


def test_models_that_were_assessed_by_different_protocols_are_not_compared(project, model, page):
    data = model.run.inputs.get().snapshot
    other = model_make(project, name="another", data=data)
    planted = ((model, FIRST), (other, WARMER))
    for one, protocol in planted:
        assessment_make(one, all_green(), summary={"protocol": protocol.to_json()})
    text = page(f"reward-models/compare/?a={model.pk}&b={other.pk}")
    assert "not shown on one axis" in text
    assert "sampling.temperature" in text
    assert 'class="table compare"' not in text
    Run.objects.filter(kind="assess").update(summary={})
    text = page(f"reward-models/compare/?a={model.pk}&b={other.pk}")
    assert "before protocols were kept" in text
    assert 'class="table compare"' not in text


def test_figures_from_different_datasets_are_called_not_comparable(project, model, page):
    other = model_make(project, name="another", data=dataset_make(project, "others"))
    assessment_make(model)
    assessment_make(other)
    text = page(f"reward-models/compare/?a={model.pk}&b={other.pk}")
    assert "different datasets" in text
    assert "not comparable" in text.replace("\n", " ")


def test_where_a_model_is_missing_there_is_a_picker(project, model, page):
    assert "two reward models" in page(f"reward-models/compare/?a={model.pk}")
    model_make(project, name="another")
    text = page(f"reward-models/compare/?a={model.pk}")
    assert "Choose two models" in text
    page("reward-models/compare/?a=nothing", status=404)
    page("reward-models/%00/", status=404)


def test_models_of_another_project_lead_nowhere(project, model, page, olga):
    elsewhere = Project.objects.get(slug="elsewhere")
    theirs = model_make(elsewhere, by=person_make("Oskar", elsewhere, "engineer"))
    assessment_make(theirs)
    for rest in ("", "assess/", "approve/", "reject/", "retire/", "lines/accuracy.csv"):
        page(f"reward-models/{theirs.pk}/{rest}", status=404)
    page(f"reward-models/compare/?a={model.pk}&b={theirs.pk}", status=404)
    assert theirs.pk not in page("reward-models/")


def test_a_checkpoint_of_another_kind_has_no_such_page(project, model, page):
    Run.objects.filter(pk=model.run_id).update(kind="sft")
    page(f"reward-models/{model.pk}/", status=404)


def test_the_model_page_of_training_links_to_the_verdict(model, page):
    assert f"/p/arguments/reward-models/{model.pk}/" in page(f"models/{model.pk}/")


def accuracy(value: float, n: int) -> dict[str, object]:
    return {"value": value, "low": value - 0.1, "high": value + 0.1, "n": n}


def test_accuracy_on_pairs_that_people_compared_stands_apart(model, page):
    mixed = {"rows": 40, "accuracy": accuracy(0.9, 40), "by_people": 10}
    mixed["people"] = {"rows": 10, "accuracy": accuracy(0.61, 10), "by_people": 10}
    by_ai = {"rows": 5, "accuracy": accuracy(0.8, 5), "by_people": 0}
    by_people = {"rows": 7, "accuracy": accuracy(0.77, 7), "by_people": 7}
    splits = {"dev": mixed, "smoke": by_ai, "public_test": by_people}
    Run.objects.filter(pk=model.run_id).update(summary={"splits": splits})
    told = page(f"reward-models/{model.pk}/").split('id="peoples-title"')[1].split("</section>")[0]
    assert "0.610" in told
    assert "No person has compared a pair of this split." in told
    assert "public_test" not in told
    overview = page(f"runs/{model.run_id}/")
    assert overview.count("pairs people compared") == 1
    assert overview.count("No person has compared a pair of this split.") == 1


def test_a_model_of_people_s_pairs_alone_has_no_such_part(model, page):
    whole = {"rows": 7, "accuracy": accuracy(0.7, 7), "by_people": 7}
    Run.objects.filter(pk=model.run_id).update(summary={"splits": {"dev": whole}})
    assert "peoples-title" not in page(f"reward-models/{model.pk}/")


def test_an_assessment_on_a_model_s_labels_is_no_word_of_people(project, model, page):
    run = assessment_make(model, [green("accuracy")])
    assert "No person has compared" not in page(f"reward-models/{model.pk}/")
    by_ai = Snapshot.objects.create(
        project=project,
        name="judged",
        kind="preferences",
        state="frozen",
        uri="snapshots/ai",
        sha256="1" * 64,
        counts={"rows": {"train": 8, "dev": 2}, "labelled_by": {"ai:judge": 8}},
        frozen_at=timezone.now(),
    )
    RunInput.objects.filter(run=run, role="data").update(snapshot=by_ai)
    assert "No person has compared a pair of judged." in page(f"reward-models/{model.pk}/")
