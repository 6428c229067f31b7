"""The list of runs, the page of one, its numbers, and what people do to it."""

import hashlib
import json
from datetime import timedelta

import pytest
from django.utils import timezone

from apps.accounts.models import AuditEvent
from apps.training import selectors
from apps.training.models import Alert, Artifact, Checkpoint, Run, RunInput, Sample
from apps.training.services import held_out
from tests.web.world import event_add, metrics_add, run_make

HTMX = {"hx-request": "true"}


@pytest.fixture
def run(project, emil):
    return run_make(project, by=emil)


def address(run: Run, rest: str = "") -> str:
    return f"/p/{run.project.slug}/runs/{run.pk}/{rest}"


# --- the list ---


def test_an_empty_list_says_why_and_what_to_do(project, emil, signed_in):
    text = signed_in(emil).get("/p/arguments/runs/").content.decode()
    assert "No runs yet" in text
    assert "/p/arguments/runs/new/" in text


def test_runs_are_found_by_name_id_kind_and_state(project, emil, signed_in, run):
    run_make(project, name="against-a-reward", kind="ppo", state="failed")
    client = signed_in(emil)
    for query, shown, hidden in (
        ("q=warm", "warm-up", "against-a-reward"),
        (f"q={run.pk[:6]}", "warm-up", "against-a-reward"),
        ("kind=ppo", "against-a-reward", "warm-up"),
        ("state=live", "warm-up", "against-a-reward"),
        ("state=failed", "against-a-reward", "warm-up"),
    ):
        text = client.get(f"/p/arguments/runs/?{query}").content.decode()
        assert shown in text, query
        assert hidden not in text, query
    assert "No matching runs" in client.get("/p/arguments/runs/?q=zzz").content.decode()


def test_the_list_polls_only_while_something_lives(project, emil, signed_in, run):
    client = signed_in(emil)
    assert "every 3s" in client.get("/p/arguments/runs/").content.decode()
    Run.objects.update(state="finished", ended_at=timezone.now())
    assert "every 3s" not in client.get("/p/arguments/runs/").content.decode()


def test_the_fragment_of_the_list_is_the_same_view_without_its_frame(project, emil, signed_in, run):
    text = signed_in(emil).get("/p/arguments/runs/", headers=HTMX).content.decode()
    assert "warm-up" in text
    assert "<html" not in text


def test_runs_of_another_project_are_nobody_elses_business(olga, run, signed_in):
    client = signed_in(olga)
    assert client.get(address(run)).status_code == 404
    assert client.get(f"/p/elsewhere/runs/{run.pk}/").status_code == 404


# --- the page ---


@pytest.mark.parametrize(
    "tab", ["overview", "charts", "samples", "alerts", "config", "logs", "lineage", "nonsense"]
)
def test_every_tab_is_a_page_of_its_own_also_for_a_run_that_left_nothing(emil, signed_in, run, tab):
    page = signed_in(emil).get(address(run, f"?tab={tab}"))
    assert page.status_code == 200
    assert "step 40 of 100" in page.content.decode()


def test_the_header_shows_state_progress_estimate_and_headline(emil, signed_in, run):
    Run.objects.update(eta_s=90)
    metrics_add(run, 1, [39, 40], drill__value=[0.5, 0.75])
    text = signed_in(emil).get(address(run)).content.decode()
    for words in ("running", "40 %", "about 1 min 30 s left", "attempt 1", "on box", "0.750"):
        assert words in text, words
    assert "<title>40 % · warm-up" in text
    assert "favicon-live.svg" in text


def test_a_live_page_polls_and_answers_204_when_nothing_is_new(emil, signed_in, run):
    client = signed_in(emil)
    first = client.get(address(run))
    seen = first.context["seen"]
    assert "every 2s" in first.content.decode()
    again = client.get(address(run, f"?tab=overview&seen={seen}"), headers=HTMX)
    assert again.status_code == 204
    event_add(run, 1, "Log", {"lines": ["hello"], "level": "info"})
    news = client.get(address(run, f"?tab=logs&seen={seen}"), headers=HTMX).content.decode()
    assert "hello" in news
    assert 'hx-swap-oob="true"' in news
    assert "<html" not in news


def test_a_sign_of_life_without_news_moves_when_it_was_last_seen(emil, signed_in, run):
    Run.objects.update(heard_at=timezone.now() - timedelta(seconds=50))
    client = signed_in(emil)
    first = client.get(address(run))
    assert 'data-age="50"' in first.content.decode()
    Run.objects.update(heard_at=timezone.now())
    again = client.get(address(run, f"?seen={first.context['seen']}"), headers=HTMX)
    assert "last seen" in again.content.decode()


def test_lines_of_the_trainers_output_are_told_from_those_about_the_run(emil, signed_in, run):
    event_add(run, 1, "Log", {"lines": ["about it"], "level": "info"})
    event_add(run, 2, "Log", {"lines": ["UserWarning: <b>"], "level": "output"})
    client = signed_in(emil)

    def shown(query: str) -> tuple[bool, bool]:
        text = client.get(address(run, f"?tab=logs{query}")).content.decode()
        assert "every 2s" in text
        return "about it" in text, "UserWarning: &lt;b&gt;" in text

    assert shown("") == (True, True)
    assert shown("&lines=run") == (True, False)
    assert shown("&lines=output") == (False, True)
    assert shown("&lines=anything") == (True, True)
    assert selectors.log_tail(run=run, source="output")[0]["level"] == "output"


def test_the_charts_tab_is_not_swapped_away_while_it_polls(emil, signed_in, run):
    fragment = signed_in(emil).get(address(run, "?tab=charts"), headers=HTMX).content.decode()
    assert "run-head" in fragment
    assert "run-body" not in fragment


def test_a_run_that_ended_is_asked_about_no_more(emil, signed_in, run):
    Run.objects.update(state="finished", ended_at=timezone.now())
    text = signed_in(emil).get(address(run), headers=HTMX).content.decode()
    assert "hx-trigger" not in text
    assert "favicon-good.svg" in text


def test_a_failure_says_what_happened_and_whose_turn_it_is(project, emil, signed_in):
    run = run_make(
        project,
        state="failed",
        fault="configuration",
        failure_kind="bad_config",
        failure_message="kl_coef: 0 lets the policy drift",
    )
    text = signed_in(emil).get(address(run)).content.decode()
    assert "kl_coef: 0 lets the policy drift" in text
    assert "Configuration problem" in text
    assert "Resume" in text


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("rank_lost", "continues from its checkpoint"),
        ("too_few_gpus", "another machine class or with fewer processes"),
        ("missing_package", "installs the package or extra"),
        ("no_code_verifier", "sets CODE_VERIFIER=1"),
        ("bad_setting", "corrects the environment variable"),
        ("store_unreachable", "Nothing is damaged"),
        ("inference_server", "only what is missing is asked for"),
        ("inference_server_answer", "Look at the rows that the message names"),
        ("inference_server_changed", "serve one model only"),
        ("inference_server_refused", "address or model in a clone"),
        ("actor_lost", "smaller chunks (rollout_chunk)"),
        ("contract_mask", "An invariant of policy training"),
        ("of_a_newer_worker", "resume it when the machine has room"),
    ],
)
def test_a_kind_of_failure_has_its_own_next_step(project, emil, signed_in, kind, words):
    run = run_make(project, state="failed", fault="machine", failure_kind=kind)
    assert words in signed_in(emil).get(address(run)).content.decode()


def test_a_reward_models_accuracy_stands_beside_length_alone(project, emil, signed_in):
    interval = {"value": 0.7131, "low": 0.69, "high": 0.735, "n": 900}
    too_few = {"value": 0.6, "low": None, "high": None, "n": 40, "no_interval": "too few clusters"}
    split = {"rows": 900, "accuracy": interval, "length_only": too_few, "difference": interval}
    run = run_make(project, kind="reward", state="finished", summary={"splits": {"test": split}})
    text = signed_in(emil).get(address(run)).content.decode()
    for words in ("0.713", "0.690 … 0.735", "too few clusters", "Length only"):
        assert words in text, words


def test_what_a_model_says_is_shown_as_text_and_never_as_markup(emil, signed_in, run):
    Sample.objects.create(
        run=run,
        attempt=1,
        seq=1,
        step=3,
        bucket="high",
        prompt=[{"role": "user", "content": "<img src=x onerror=alert(1)>"}],
        response="<script>alert(1)</script>",
        reward=float("nan"),
    )
    text = signed_in(emil).get(address(run, "?tab=samples&bucket=high")).content.decode()
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "<img src=x" not in text
    assert ">not a number</strong>" in text
    low = signed_in(emil).get(address(run, "?tab=samples&bucket=low")).content.decode()
    assert "alert(1)" not in low


@pytest.mark.parametrize(
    ("kind", "parts", "words"),
    [
        ("ppo", {}, ("this model", "SFT model", "reward")),
        ("dpo", {"implicit_reward": 0.5}, ("this model", "reference model", "implicit reward")),
        ("sft", {"row_logprob_per_token": 0.5}, ("this model", "answer in the data", "mean log-")),
        ("reward", {"margin": 0.5}, ("chosen answer", "rejected answer", "score of the chosen")),
    ],
)
def test_a_sample_says_whose_answers_it_shows(project, emil, signed_in, kind, parts, words):
    own = run_make(project, kind=kind, state="finished")
    texts = {"prompt": [{"role": "user", "content": "Why?"}], "response": "So.", "baseline": "No."}
    Sample.objects.create(
        run=own, attempt=1, seq=1, step=1, bucket="high", reward=0.5, parts=parts, **texts
    )
    [shown] = signed_in(emil).get(address(own, "?tab=samples")).context["samples"]
    assert (shown.said_by, shown.baseline_by) == words[:2]
    assert shown.metrics[0][0].startswith(words[2])


def test_the_configuration_says_what_each_setting_does(project, emil, signed_in):
    own = run_make(project, kind="sft", config={"preset": "demo"})
    text = signed_in(emil).get(address(own, "?tab=config")).content.decode()
    assert "Longest sequence, prompt and response together" in text


def test_two_configurations_are_compared_field_by_field(project, emil, signed_in, run):
    other = run_make(project, name="other", config={"steps": 100, "step_seconds": 0.5})
    text = signed_in(emil).get(address(run, f"?tab=config&against={other.pk}")).content.decode()
    diff = text.split("Compared with another run")[1]
    assert "step_seconds" in diff
    assert "0.5" in diff
    assert "<code>steps</code>" not in diff


# --- numbers ---


def test_curves_come_as_json_that_javascript_can_read_whatever_was_measured(emil, signed_in, run):
    metrics_add(run, 1, [1, 2, 3], loss=[0.5, "nan", None])
    answer = signed_in(emil).get(address(run, "metrics.json"))
    series = json.loads(answer.content, parse_constant=pytest.fail)["series"]["loss"]
    assert series == {"steps": [1, 2, 3], "values": [0.5, None, None], "broken": [2]}


def test_asking_again_costs_nothing_until_there_is_something_new(emil, signed_in, run):
    client = signed_in(emil)
    metrics_add(run, 1, [1], loss=[0.5])
    etag = client.get(address(run, "metrics.json")).headers["ETag"]
    again = client.get(address(run, "metrics.json"), headers={"if-none-match": etag})
    assert (again.status_code, again.content) == (304, b"")
    metrics_add(run, 2, [2], loss=[0.4])
    assert client.get(address(run, "metrics.json"), headers={"if-none-match": etag}).json()


def test_the_charts_page_gives_every_curve_in_figures_without_javascript(emil, signed_in, run):
    metrics_add(run, 1, [1, 2, 3], objective__kl=[0.25, 4.5, 2.0])
    text = signed_in(emil).get(address(run, "?tab=charts")).content.decode()
    table = text.split("Curves as a table")[-1]
    for words in ("objective/kl", "0.250", "2.00", "4.50"):
        assert words in table, words


def test_the_csv_holds_a_row_for_every_step_and_no_formula(emil, signed_in, run):
    metrics_add(run, 1, [1, 2], **{" =cmd": [1.0, 2.0]})
    metrics_add(run, 2, [2, 3], kl=[0.5, "nan"])
    answer = signed_in(emil).get(address(run, "metrics.csv"))
    lines = b"".join(answer.streaming_content).decode().splitlines()
    assert lines == ["step,' =cmd,kl", "1,1.0,", "2,2.0,0.5", "3,,nan"]


def test_a_file_of_a_run_is_always_a_download(emil, signed_in, run, settings, tmp_path):
    settings.ARTIFACTS_URL = str(tmp_path)
    (tmp_path / "runs").mkdir()
    content = b"<script>alert(1)</script>"
    (tmp_path / "runs/report.html").write_bytes(content)
    row = Artifact.objects.create(
        run=run,
        attempt=1,
        seq=1,
        name="report.html",
        uri="runs/report.html",
        sha256=hashlib.sha256(content).hexdigest(),
    )
    answer = signed_in(emil).get(address(run, f"files/{row.pk}/"))
    assert b"".join(answer.streaming_content) == content
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Content-Disposition"].startswith("attachment")
    row.uri = "runs/gone.html"
    row.save()
    assert signed_in(emil).get(address(run, f"files/{row.pk}/")).status_code == 404
    row.uri = "../../etc/passwd"
    row.save()
    assert signed_in(emil).get(address(run, f"files/{row.pk}/")).status_code == 409


# --- what people do ---


def test_cancelling_asks_first_and_says_what_is_lost(project, emil, signed_in, run):
    Checkpoint.objects.create(
        project=project, run=run, attempt=1, step=25, uri="x", sha256="0" * 64, tags=["last"]
    )
    text = signed_in(emil).get(address(run, "cancel/")).content.decode()
    assert "15 of 40" in text
    run.refresh_from_db()
    assert run.command == ""


def test_cancelling_sets_the_command_and_is_in_the_audit_log(emil, signed_in, run):
    assert signed_in(emil).post(address(run, "cancel/")).status_code == 302
    run.refresh_from_db()
    assert run.command == "cancel"
    assert AuditEvent.objects.filter(action="run.cancelled", subject=run.pk, actor=emil).exists()


def test_a_button_pressed_too_late_is_told_so(emil, signed_in, run):
    Run.objects.update(state="finished", ended_at=timezone.now())
    page = signed_in(emil).post(address(run, "stop/"))
    assert page.status_code == 409
    assert "finished already" in page.content.decode()


def test_an_alert_is_acknowledged_once_and_by_name(emil, ada, signed_in, run):
    alert = Alert.objects.create(
        run=run,
        attempt=1,
        seq=1,
        step=9,
        rule="objective/kl",
        severity="critical",
        message="KL is over 10 nats",
        value=12.5,
        threshold=10.0,
        raised_at=timezone.now(),
    )
    assert "1 open alert" in signed_in(emil).get(address(run)).content.decode()
    where = address(run, f"alerts/{alert.pk}/acknowledge/")
    assert signed_in(emil).post(where).url.endswith("?tab=alerts")
    signed_in(ada).post(where)
    alert.refresh_from_db()
    assert alert.acknowledged_by == emil
    assert "open alert" not in signed_in(emil).get(address(run)).content.decode()
    data = signed_in(emil).get(address(run, "metrics.json")).json()
    assert data["alerts"][0]["threshold"] == 10.0


def test_models_are_listed_with_their_run_and_found(project, emil, signed_in, run):
    kept = Checkpoint.objects.create(
        project=project, run=run, attempt=1, step=25, uri="x", sha256="0" * 64, tags=["best"]
    )
    Checkpoint.objects.create(
        project=project, run=run, attempt=1, step=20, uri="y", sha256="1" * 64, tags=[]
    )
    client = signed_in(emil)
    text = client.get("/p/arguments/models/").content.decode()
    assert "warm-up, step 25" in text
    assert "step 20" not in text
    assert 'data-empty="search"' in client.get("/p/arguments/models/?kind=ppo").content.decode()
    page = client.get(f"/p/arguments/models/{kept.pk}/").content.decode()
    assert "About this model" in page
    assert "0" * 16 in page


def test_what_an_evaluation_found_is_said_with_its_intervals(project, emil, signed_in):
    won = {"value": 0.531, "low": 0.482, "high": 0.58, "n": 200}
    none = {"value": None, "low": None, "high": None, "n": 0, "undefined": "no rows"}
    run = run_make(
        project,
        kind="evaluate",
        state="finished",
        summary={
            "judge": {"win_rate": won, "difference": none},
            "first": {"eval/score": 1.5},
            "last": {"eval/score": 2.25},
        },
    )
    text = signed_in(emil).get(address(run)).content.decode()
    for words in (
        "Win rate, by the judge",
        "0.531",
        "0.482 … 0.580, n = 200",
        "no rows",
        "First and last evaluation",
    ):
        assert words in text, words
    assert text.index("1.500") < text.index("2.250")


def test_a_file_announced_twice_is_listed_once_with_count_and_size(emil, signed_in, run):
    same = {"run": run, "attempt": 1, "name": "audit.jsonl", "uri": "x", "sha256": "0" * 64}
    Artifact.objects.create(**same, seq=1, purpose="audit", count=15)
    Artifact.objects.create(**same, seq=2, size_bytes=8600)
    text = signed_in(emil).get(address(run)).content.decode()
    assert text.count("audit.jsonl") == 1
    assert "8.6 kB" in text
    assert ">15<" in text


def test_a_policys_likeness_to_its_demonstrations_is_a_table(emil, signed_in, project):
    trait = {
        "name": "length",
        "low": 0.8,
        "high": 1.25,
        "demonstrations": 78.8,
        "answers": 126.4,
        "departs": True,
        "difference": {"value": 1.604, "low": 1.436, "high": 1.791, "n": 64},
    }
    imitation = {"prompts": 64, "limit": 128, "traits": [trait]}
    run = run_make(project, kind="sft", state="finished", summary={"imitation": imitation})
    text = signed_in(emil).get(address(run)).content.decode()
    row = text[text.index("Similarity to the demonstrations") :]
    for words in ("79 tokens", "126 tokens", "1.604", "1.436 … 1.791", "departs", "64 answers"):
        assert words in row
    assert "&#x27;name&#x27;" not in text


@pytest.mark.parametrize(
    ("behind", "said"),
    [
        ((2, 3, 3), "2 of the 3 people"),
        ((0, 3, 3), ""),
        ((0, 0, 3), "Labelled elsewhere"),
        ((0, 3, 0), "Labelled elsewhere"),
    ],
)
def test_a_judge_of_the_same_annotators_is_marked(
    project, emil, signed_in, monkeypatch, behind: tuple[int, int, int], said: str
) -> None:
    run = run_make(project, kind="evaluate", state="finished")
    for role in ("reward", "judge"):
        model = run_make(project, kind="reward", state="finished")
        RunInput.objects.create(run=run, role=role, upstream=model)
    shared, n, of_reward = behind
    sides = [set(range(of_reward)), set(range(of_reward - shared, of_reward - shared + n))]
    monkeypatch.setattr(held_out, "voters", lambda votes: sides.pop(0))
    shown = signed_in(emil).get(address(run)).content.decode()
    people = held_out.judge_people(run)  # from the cache: nobody is asked twice
    assert people == held_out.JudgePeople(*behind)
    assert people.independent is (not said)
    assert said in shown if said else "Same annotators" not in shown
