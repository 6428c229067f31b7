"""The charts of a run: panels, limits, marks, other runs behind them, histograms by step."""

import re
from typing import Any

import pytest
from django.utils import timezone

from apps.accounts.models import Project
from apps.monitoring.selectors.diagnosis import run_diagnosis
from apps.training.models import Alert, Run, RunAttempt, Sample
from apps.training.screens.charts import bands_of
from apps.training.screens.histograms import median, quantile
from apps.training.screens.panels import charts_of
from apps.training.selectors.metrics import Spread, histograms
from apps.training.selectors.results import samples_chosen
from apps.training.services.points import metrics_store
from measures.duplicates import repeated_share
from tests.web.world import event_add, metrics_add, run_make
from workers.contract.metrics import metric_or_own

pytestmark = pytest.mark.django_db


def address(run: Run, more: str = "") -> str:
    return f"/p/{run.project.slug}/runs/{run.pk}/{more}"


def alert_make(run: Run, rule: str, **fields: Any) -> Alert:
    values = {"attempt": 1, "seq": 1, "step": 9, "severity": "critical", "message": "over"}
    return Alert.objects.create(run=run, rule=rule, raised_at=timezone.now(), **values | fields)


@pytest.fixture
def ppo(project, emil) -> Run:
    """At step 9 of a PPO run whose answers have grown."""
    run = run_make(project, by=emil, name="longer", kind="ppo", config={})
    ratio = [1.0, 1.1, 1.3, 1.7, 2.1, 2.2, 2.3, 2.4, 2.5, 2.6]
    metrics_add(
        run, 1, list(range(10)), response__length_ratio=ratio, objective__kl=[0.1] * 10, loss=ratio
    )
    return run


@pytest.fixture
def data(emil, signed_in, ppo):
    return lambda more="": signed_in(emil).get(address(ppo, f"metrics.json{more}")).json()


# --- panels ---


@pytest.mark.parametrize(
    ("name", "panel"),
    [
        ("objective/kl", "training"),
        ("reward/calibrated_mean", "training"),
        ("eval/canary_accuracy", "evaluation"),
        ("report/dev/accuracy", "evaluation"),
        ("response/length", "behaviour"),
        ("behaviour/phrase/of course", "behaviour"),
        ("reward/length_correlation", "behaviour"),
        ("nobody/knows_it", "training"),
    ],
)
def test_every_metric_has_its_panel(name, panel):
    assert metric_or_own(name).panel == panel


def test_the_headline_of_the_kind_leads_and_most_is_folded_away():
    names = ["objective/scores", "objective/kl", *(f"time/part_{i}_s" for i in range(9))]
    charts = charts_of("ppo", names)
    assert [chart.key for chart in charts][:2] == ["objective/scores", "objective/kl"]
    assert {chart.key for chart in charts if chart.leads} == {"objective/scores", "objective/kl"}


def test_a_panel_that_nobody_ranked_still_shows_something():
    assert [chart.leads for chart in charts_of("drill", ["drill/other"])] == [True]


def test_the_components_of_a_reward_are_one_chart_and_a_lone_one_is_its_own():
    both = charts_of("ppo", ["reward/component/helpful", "reward/component/brief"])
    assert [chart.labels for chart in both] == [("brief", "helpful")]
    (alone,) = charts_of("ppo", ["reward/component/helpful"])
    assert alone.key == "reward/component/helpful"


def test_a_metric_on_which_something_was_found_leads_whatever_it_is():
    names = [f"response/other_{i}" for i in range(9)]
    charts = charts_of("ppo", [*names, "response/zzz"], {"response/zzz"})
    assert next(chart for chart in charts if chart.key == "response/zzz").leads


def test_the_curves_of_a_machine_have_a_panel_of_their_own_without_an_empty_gpu_chart():
    charts = charts_of("sft", ["loss", "machine/cpu", "machine/disk_free"])
    machine = [chart for chart in charts if chart.panel == "machine"]
    assert [(chart.key, chart.leads) for chart in machine] == [
        ("machine/cpu", True),
        ("machine/disk_free", False),
    ]
    assert [chart.to_json()["by_time"] for chart in charts] == [False, True, True]
    (alone,) = charts_of("sft", ["machine/gpu_use/0"])
    assert alone.leads


NOON = 1_800_000_000


@pytest.fixture
def sampled(ppo) -> Run:
    """Sampled over half an hour, died, and was resumed from step 4."""
    metrics_add(
        ppo, 5, [NOON, NOON + 900, NOON + 1800], machine__step=[2, 5, 9], machine__cpu=[1, 2, 3]
    )
    RunAttempt.objects.create(run=ppo, number=2, resumed_from_step=4, last_seq=0)
    metrics_store(
        run=ppo,
        attempt=2,
        series={"machine/step": [(NOON + 3600, 6.0)], "loss": [(5, 1.5), (6, 1.4)]},
    )
    return ppo


def test_a_resumed_run_keeps_the_curves_of_the_machine_that_died(data, sampled):
    told = data("?names=machine/step&names=machine/cpu&names=loss")
    series = told["series"]
    assert series["machine/cpu"]["steps"] == [NOON, NOON + 900, NOON + 1800]
    assert series["machine/step"]["steps"] == [NOON, NOON + 900, NOON + 1800, NOON + 3600]
    assert series["loss"]["steps"] == [0, 1, 2, 3, 4, 5, 6]  # of steps the later attempt counts
    assert told["axes"] == {"time": "machine/step"}


def test_a_stretch_of_time_can_be_asked_for(data, sampled):
    series = data(f"?names=machine/cpu&from={NOON + 600}&to={NOON + 1000}")["series"]
    assert series["machine/cpu"]["steps"] == [NOON + 900]


def test_machine_curves_are_in_a_table_of_their_own(emil, signed_in, sampled):
    client = signed_in(emil)
    by_step = client.get(address(sampled, "metrics.csv")).getvalue().decode().splitlines()
    assert "machine/cpu" not in by_step[0]
    assert len(by_step) == 1 + 7
    by_time = client.get(address(sampled, "metrics.csv?by=time")).getvalue().decode().splitlines()
    assert by_time[0] == "unix_seconds,machine/cpu,machine/step"
    assert by_time[1] == f"{NOON},1.0,2.0"
    page = client.get(address(sampled, "?tab=charts")).content.decode()
    assert "at 1,800,000,000" not in page


def test_a_diagnosis_reads_steps_and_not_seconds(sampled):
    found = run_diagnosis(sampled)
    assert (found.first_step, found.last_step) == (0, 6)


# --- what stands on them ---


def test_the_limits_in_force_are_drawn_before_anything_fired(emil, signed_in, project):
    guards = {"reference_kl": {"threshold": 6, "action": "stop"}, "length": "off"}
    run = run_make(project, kind="ppo", config={"guards": guards})
    limits = signed_in(emil).get(address(run, "metrics.json")).json()["limits"]
    assert [(one["value"], one["stops"]) for one in limits if one["metric"] == "objective/kl"] == [
        (6, True)
    ]
    read = {one["metric"] for one in limits}
    assert "response/length_ratio" not in read  # switched off
    # relative to the run's own past: there is no line to draw
    assert not read & {"objective/entropy_per_token", "grad_norm_max", "eval/held_out_score"}


def test_an_alert_stands_on_the_chart_of_the_metric_that_its_rule_reads(data, ppo):
    alert_make(ppo, "length", value=2.3, threshold=2.0, step=7)
    body = {"link": "reward", "rule": "length", "evidence_class": "trend", "step": 7, "onset": 3}
    event_add(ppo, 5, "Evidence", body)
    (mark,) = data()["alerts"]
    assert (mark["metric"], mark["step"], mark["onset"]) == ("response/length_ratio", 7, 3)
    assert mark["threshold"] == 2.0
    assert mark["links"][0][1].endswith("?tab=alerts#alert-" + str(Alert.objects.get().pk))


def test_a_threshold_in_another_unit_than_the_curve_is_not_drawn_on_it(data, ppo):
    alert_make(ppo, "held_out_down", value=0.14, threshold=0.1)
    (mark,) = data()["alerts"]
    assert (mark["metric"], mark["threshold"]) == ("eval/held_out_score", None)


def test_a_finding_without_an_alert_is_marked_too_on_the_figure_its_detector_reads(data, ppo):
    body = {"link": "reward", "rule": "length_reward", "step": 8, "onset": 99, "value": 0.5}
    event_add(ppo, 5, "Evidence", body)
    (mark,) = data()["alerts"]
    assert mark["onset"] == 8  # an onset after the finding is none
    assert mark["metric"] in {"reward/length_correlation", "objective/kl"}


def test_what_a_resumed_attempt_undid_is_not_marked(data, ppo):
    alert_make(ppo, "length", step=8)
    alert_make(ppo, "reference_kl", step=4, seq=2)
    RunAttempt.objects.create(run=ppo, number=2, resumed_from_step=5)
    assert [mark["rule"] for mark in data()["alerts"]] == ["reference_kl"]


# --- asking for less ---


def test_only_what_is_shown_is_fetched_and_a_stretch_comes_in_full(data):
    assert set(data("?names=loss")["series"]) == {"loss"}
    assert data("?names=loss&from=3&to=5")["series"]["loss"]["steps"] == [3, 4, 5]
    leading = data("?shown=leading")
    shown = {name for chart in leading["charts"] if chart["leads"] for name in chart["names"]}
    assert set(leading["series"]) == shown


def test_an_odd_address_is_answered(data):
    for odd in ("from=x", "to=-1", "points=", "from=" + "9" * 40):
        assert data(f"?{odd}")["run"], odd


# --- other runs behind it ---


def seeds(project, n: int, **fields: Any) -> list[Run]:
    runs = []
    for i in range(n):
        runs.append(run_make(project, kind="ppo", name=f"seed {i}", group="g", **fields))
        metrics_add(runs[-1], 1, [1, 2, 3], objective__kl=[i, i + 1.0, i + 2.0])
    return runs


def test_the_band_is_where_the_other_seeds_lay(emil, signed_in, project):
    first, *_ = seeds(project, 4)
    answer = signed_in(emil).get(address(first, "band.json?seeds=1&names=objective/kl")).json()
    assert answer["runs"] == 3
    band = answer["bands"]["objective/kl"]
    assert (band["steps"], band["low"], band["high"]) == ([1, 2, 3], [1, 2, 3], [3, 4, 5])


def test_two_runs_make_no_band():
    curve = {"kl": [(1, 0.5), (2, 1.0)]}
    assert bands_of([curve, curve]) == {}


def test_a_step_that_too_few_runs_measured_has_no_bounds():
    runs = [{"kl": [(1, 1.0), (2, 5.0)]}, {"kl": [(1, 2.0)]}, {"kl": [(1, 3.0), (2, "nan")]}]
    band = bands_of(runs)["kl"]
    assert (band["low"], band["high"]) == ([1.0, None], [3.0, None])


def test_runs_that_measured_at_other_steps_are_compared_by_stretches():
    thousand = {"kl": [(step, 1.0) for step in range(1, 1001)]}
    every_tenth = {"kl": [(step, 3.0) for step in range(5, 1001, 10)]}
    band = bands_of([thousand, thousand, thousand, every_tenth])["kl"]
    assert len(band["steps"]) <= 300
    assert set(band["low"]) == {1.0}
    assert 3.0 in band["high"]


def test_reference_runs_are_in_the_address_and_drawn_behind(emil, signed_in, ppo, project):
    other = run_make(project, kind="ppo", name="the good one")
    page = signed_in(emil).get(address(ppo, f"?tab=charts&with={other.pk}"))
    roles = [(one["name"], one["role"]) for one in page.context["sources"]]
    assert roles == [("longer", "self"), ("the good one", "reference")]
    assert page.context["references"].problem == ""


def test_a_band_of_too_few_runs_says_so_and_draws_lines(emil, signed_in, ppo, project):
    other = run_make(project, kind="ppo")
    page = signed_in(emil).get(address(ppo, f"?tab=charts&with={other.pk}&as=band"))
    assert "at least 3 other" in page.content.decode()
    assert len(page.context["sources"]) == 2


def test_another_projects_run_cannot_be_drawn_behind(emil, signed_in, ppo):
    elsewhere = Project.objects.create(slug="elsewhere", name="Elsewhere")
    theirs = run_make(elsewhere, kind="ppo")
    for more in (f"?tab=charts&with={theirs.pk}", f"band.json?with={theirs.pk}&names=loss"):
        assert signed_in(emil).get(address(ppo, more)).status_code == 404


# --- histograms ---


def spread_add(run: Run, seq: int, step: int, counts: list[int], attempt: int = 1) -> None:
    edges = [float(i) for i in range(len(counts) + 1)]
    body = {"step": step, "name": "reward", "edges": edges, "counts": counts}
    event_add(run, seq, "Histogram", body, attempt)


def test_histograms_follow_the_attempts_and_skip_what_is_none(ppo):
    spread_add(ppo, 2, 0, [1, 2])
    spread_add(ppo, 3, 20, [5, 5])
    RunAttempt.objects.create(run=ppo, number=2, resumed_from_step=10)
    spread_add(ppo, 1, 20, [0, 7], attempt=2)
    event_add(ppo, 2, "Histogram", {"step": 30, "name": "reward", "edges": [0, 1]}, attempt=2)
    assert [(one.step, one.counts) for one in histograms(ppo, "reward")] == [
        (0, (1, 2)),
        (20, (0, 7)),
    ]


def test_the_median_of_a_histogram_lies_within_its_bin():
    # 10 values in 0–1, 30 in 1–2: the 20th of 40 is a third into the second bin
    one = Spread(0, (0.0, 1.0, 2.0), (10, 30))
    assert median(one) == pytest.approx(1 + 1 / 3)
    assert quantile(one, 0.0) == 0.0
    assert quantile(one, 1.0) == 2.0


def test_histograms_are_on_the_page_without_javascript_and_in_words(emil, signed_in, ppo):
    spread_add(ppo, 2, 0, [4, 0, 0])
    spread_add(ppo, 3, 50, [0, 0, 8])
    text = signed_in(emil).get(address(ppo, "?tab=charts&from-reward=0&to-reward=50"))
    text = text.content.decode()
    assert "Step 0: median 0.500" in text
    assert "Step 50: median 2.50" in text
    assert len(re.findall('class="heat-8"', text)) == 2  # one full bin at each step
    assert "0 to 1.00" in text.replace("0.000 to", "0 to")


def test_histograms_as_csv_have_a_row_for_each_bin(emil, signed_in, ppo):
    spread_add(ppo, 2, 5, [4, 1])
    answer = signed_in(emil).get(address(ppo, "histograms.csv?name=reward"))
    lines = b"".join(answer.streaming_content).decode().splitlines()
    assert lines[1:] == ['"reward","5","0.0","1.0","4"', '"reward","5","1.0","2.0","1"']


# --- an imported run ---


def test_an_imported_run_offers_nothing_that_needs_a_trainer(emil, signed_in, project):
    run = run_make(project, kind="imported", state="finished", config={"trained_as": "ppo"})
    metrics_add(run, 1, [1, 2], objective__kl=[0.5, 0.7])
    text = signed_in(emil).get(address(run)).content.decode()
    assert "Imported from" in text
    for words in ("Clone", "Resume", "queue cpu", ">Repeat<", ">Logs<", "Roll back"):
        assert words not in text, words
    assert "KL to the reference" in text  # the headline of what it trained
    for tab in ("charts", "samples", "alerts", "config", "lineage", "repeat", "checks", "logs"):
        assert signed_in(emil).get(address(run, f"?tab={tab}")).status_code == 200, tab


# The answers and the alerts of a run, as its page shows them.


@pytest.fixture
def run(project, emil) -> Run:
    return run_make(project, by=emil, kind="ppo", config={})


def sample_add(run: Run, seq: int, step: int, bucket: str = "random", **more) -> Sample:
    values = {"prompt": [{"role": "user", "content": "Why?"}], "response": f"Answer {seq}."}
    return Sample.objects.create(
        run=run, attempt=1, seq=seq, step=step, bucket=bucket, **values | more
    )


def page_of(client, run: Run, more: str = ""):
    return client.get(f"/p/arguments/runs/{run.pk}/?tab=samples{more}")


def shown(page) -> list[str]:
    return [one.response for one in page.context["samples"]]


def test_answers_are_found_by_sort_and_step_and_stay_so_in_the_address(emil, signed_in, run):
    sample_add(run, 1, 10, "high", reward=1.0)
    sample_add(run, 2, 10, "high", reward=3.0)
    sample_add(run, 3, 20, "low", reward=-1.0)
    client = signed_in(emil)
    assert shown(page_of(client, run)) == ["Answer 3.", "Answer 2.", "Answer 1."]
    assert shown(page_of(client, run, "&bucket=high")) == ["Answer 2.", "Answer 1."]
    assert shown(page_of(client, run, "&step=20")) == ["Answer 3."]
    # a marker on a chart stands between steps that kept answers
    assert shown(page_of(client, run, "&until=19")) == ["Answer 2.", "Answer 1."]
    assert shown(page_of(client, run, "&until=3")) == ["Answer 2.", "Answer 1."]
    empty = page_of(client, run, "&bucket=flagged&step=20").content.decode()
    assert "No matching answers" in empty


def test_an_answer_that_people_must_see_is_among_the_flagged_with_its_reason(emil, signed_in, run):
    sample_add(run, 1, 10, "flagged", response="Both kept and asked about.")
    sample_add(run, 2, 10, "random", response="Only random.")
    for seq, response in ((3, "Both kept and asked about."), (4, "Asked about alone.")):
        body = {"step": 10, "prompt": [], "response": response, "reason": f"reason {seq}"}
        event_add(run, seq, "ReviewRequested", body)
    page = page_of(signed_in(emil), run, "&bucket=flagged")
    assert {(one.response, one.reason) for one in page.context["samples"]} == {
        ("Both kept and asked about.", "reason 3"),
        ("Asked about alone.", "reason 4"),
    }
    assert ("flagged", "Flagged", 2) in page.context["buckets"]


def test_answers_come_page_by_page(emil, signed_in, run):
    for seq in range(45):
        sample_add(run, seq, seq)
    pages = [shown(page_of(signed_in(emil), run, f"&page={n}")) for n in (1, 2, 3)]
    assert [len(one) for one in pages] == [20, 20, 5]
    assert len({answer for one in pages for answer in one}) == 45


def test_answers_of_a_past_that_was_undone_are_not_shown(run):
    sample_add(run, 1, 10)
    sample_add(run, 2, 30)
    RunAttempt.objects.create(run=run, number=2, resumed_from_step=20)
    assert [row[0] for row in samples_chosen(run).rows] == [10]


def test_an_answer_stands_beside_the_baseline_with_all_it_scored(emil, signed_in, run):
    parts = {"helpful": 1.25, "brief": -0.5}
    said = "go on and go on and go on and go"
    sample_add(
        run, 1, 10, response=said, baseline="Go on.", reward=0.75, parts=parts, kl=3.5, tokens=10
    )
    text = page_of(signed_in(emil), run).content.decode()
    for words in ("0.750", "1.25", "−0.500", "3.50 nats", "10 tokens", "Go on.", "2 words"):
        assert words in text, words
    # 7 of its 4-grams of words, 3 of them different: 57 % stood there before
    assert 'class="is-bad">repeated <strong>57 %' in text


@pytest.mark.parametrize(
    ("text", "share"),
    [("a b c", None), ("a b c d", 0.0), ("a b c d a b c d", 1 / 5), ("x " * 10, 6 / 7)],
)
def test_repetition_counts_what_stood_before(text, share):
    assert repeated_share(text) == (None if share is None else pytest.approx(share))


# --- alerts ---


def alert_add(run: Run, rule: str) -> Alert:
    return Alert.objects.create(
        run=run,
        attempt=1,
        seq=1,
        step=9,
        rule=rule,
        severity="warning",
        message="Over.",
        raised_at=timezone.now(),
    )


def test_an_alert_says_what_to_do_and_where_to_look(emil, signed_in, run):
    alert = alert_add(run, "length")
    text = signed_in(emil).get(f"/p/arguments/runs/{run.pk}/?tab=alerts").content.decode()
    assert f'id="alert-{alert.pk}"' in text
    assert "Set length_penalty" in text
    assert "?tab=samples&amp;until=9" in text


def test_an_alert_of_an_unknown_rule_is_shown_under_its_name(emil, signed_in, run):
    alert_add(run, "of_another_version")
    text = signed_in(emil).get(f"/p/arguments/runs/{run.pk}/?tab=alerts").content.decode()
    assert "<strong>of_another_version</strong>" in text


# --- tabs of later apps ---


def test_a_tab_of_a_later_app_is_loaded_as_a_fragment_and_is_a_link_without_javascript(
    emil, signed_in, run
):
    page = signed_in(emil).get(f"/p/arguments/runs/{run.pk}/?tab=diagnosis").content.decode()
    where = f"/p/arguments/runs/{run.pk}/diagnosis/"
    assert f'hx-get="{where}"' in page
    assert f'href="{where}"' in page
    names = page.split('<nav class="tabs"')[1].split("</nav>")[0]
    assert names.index("Charts") < names.index("Diagnosis") < names.index("Samples")
