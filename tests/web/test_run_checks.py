"""What a run's reports, failures and ways back look like, whatever a trainer wrote."""

import hashlib
import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from apps.snapshots.models import Snapshot
from apps.training.models import Alert, Artifact, Checkpoint, Run, RunInput
from tests.web.world import metrics_add, run_make

MEMORY = {
    "version": 1,
    "peak_bytes": 3_000_000_000,
    "peak_phase": "update",
    "room": {"bytes": 2_000_000_000, "device": "cpu", "name": "the processor's memory"},
    "fits": False,
    "phases": [
        {"phase": "resident", "title": "held all the time", "bytes": 1_000_000_000},
        {"phase": "update", "title": "while the weights are updated", "bytes": 2_000_000_000},
    ],
    "models": [{"role": "policy", "model": "policy", "bytes": 1_000_000_000}],
    "lines": [
        {
            "role": "policy",
            "model": "policy",
            "part": "optimizer",
            "phase": "resident",
            "bytes": 1_000_000_000,
            "how": "125,000,000 trained parameters × 8 B of moments",
        }
    ],
    "measures": [
        {
            "name": "lora",
            "title": "low-rank adapters",
            "field": "lora_rank",
            "peak_bytes": 1_500_000_000,
            "saves_bytes": 1_500_000_000,
            "fits": True,
        }
    ],
    "would_fit": {"fits": True, "peak_bytes": 1, "measures": ["lora"], "message": "Adapters fit."},
}
PREFLIGHT = {
    "version": 1,
    "kind": "ppo",
    "level": "block",
    "blocked": ["reward"],
    "seconds": 1.9,
    "findings": [
        {"check": "data", "title": "Data", "level": "ok", "message": "Fine.", "figures": {"n": 3}},
        {
            "check": "reward",
            "title": "Reward against chance",
            "level": "block",
            "message": "No difference <b>at all</b>.",
            "figures": {"difference": None},
            "evidence": [
                {
                    "kind": "histogram",
                    "title": "Scores",
                    "edges": [0.0, 0.5, 1.0],
                    "groups": [["starting policy", [0.75, 0.25]]],
                    "x_label": "raw score",
                },
                {"kind": "hologram"},
                "nonsense",
            ],
        },
    ],
    "memory": MEMORY,
    "changed": {"steps": [100, 4]},
}
PATH = {
    "requests": 50,
    "tokens": 3200,
    "p50_ms": 210.0,
    "p99_ms": 260.0,
    "p50_ms_per_token": 3.3,
    "p99_ms_per_token": 4.1,
}
LATENCY = {
    "version": 1,
    "without_value_head": PATH,
    "with_value_head": PATH | {"p50_ms": 230.0},
    "message": "The head adds 20.0 ms.",
}
BOTTLENECK = {
    "part": "reward",
    "shares": {"rollout": 0.2, "reward": 0.71, "update": 0.09, "other": 0.0},
    "message": "Every step waits for the reward.",
    "tokens_per_second": 410.0,
}


@pytest.fixture
def left(settings, tmp_path):
    """Leave a file with a run, as its trainer would."""
    settings.ARTIFACTS_URL = str(tmp_path)

    def leave(run: Run, name: str, content, **fields) -> Artifact:
        text = content if isinstance(content, bytes) else json.dumps(content).encode()
        (tmp_path / run.pk).mkdir(exist_ok=True)
        (tmp_path / run.pk / name).write_bytes(text)
        values = {"sha256": hashlib.sha256(text).hexdigest(), "size_bytes": len(text)} | fields
        seq = Artifact.objects.count() + 1
        return Artifact.objects.create(
            run=run, attempt=1, seq=seq, name=name, uri=f"{run.pk}/{name}", **values
        )

    return leave


@pytest.fixture
def see(signed_in, emil):
    client = signed_in(emil)

    def look(run: Run, tab: str) -> str:
        page = client.get(f"/p/arguments/runs/{run.pk}/?tab={tab}")
        assert page.status_code == 200
        return page.content.decode()

    return look


@pytest.fixture
def run(project, emil) -> Run:
    return run_make(
        project, by=emil, kind="ppo", state="finished", summary={"bottleneck": BOTTLENECK}
    )


# --- the reports ---


def test_the_reports_of_a_run_are_shown_gravest_first(run, left, see):
    left(run, "preflight.json", PREFLIGHT)
    left(run, "latency.json", LATENCY)
    metrics_add(
        run,
        1,
        [40],
        reward__cache_hit_rate=[0.25],
        time__reward_s=[2.0],
        time__reward_wait_s=[0.5],
    )
    text = see(run, "checks")
    assert text.index("Reward against chance") < text.index("<strong>Data")
    assert text.count("evidence-histogram") == 1  # and what cannot be drawn is left out
    for words in (
        "No difference &lt;b&gt;at all&lt;/b&gt;.",
        "3.0 GB of the 2.0 GB of the processor&#x27;s memory (150 %). It does not fit.",
        "Adapters fit.",
        "low-rank adapters",
        "125,000,000 trained parameters × 8 B of moments",
        "Every step waits for the reward.",
        "Waiting for the reward</th>",
        "71.0 %",
        "25.0 % of the answers of step 40",
        "waited for it 500 ms",
        "With the value head",
        "230 ms",
        "Reduced: <code>steps</code> 100 → 4",
    ):
        assert words in text.replace("Low-rank", "low-rank"), words


def test_the_layout_that_fits_opens_the_form_of_a_clone(run, left, see, signed_in, emil):
    peaks = {"one": 145, "fsdp": 66, "zero3": 60, "from the future": 1}
    layouts = [
        {"layout": name, "processes": 4, "peak_bytes": size * 10**9, "fits": size < 80}
        for name, size in peaks.items()
    ]
    left(run, "preflight.json", PREFLIGHT | {"memory": MEMORY | {"layouts": layouts}})
    text = see(run, "checks")
    assert "4 × 66.0 GB" in text
    link = f"/p/arguments/runs/new/ppo/?from={run.pk}&amp;layout=fsdp&amp;processes=4"
    assert link in text
    assert "layout=one" not in text, "it does not fit"
    assert "layout=zero3" in text
    assert "from the future" not in text
    page = signed_in(emil).get(link.replace("&amp;", "&"))
    form = page.context["form"]
    assert (form["layout"].value(), form["processes"].value()) == ("fsdp", 4)
    assert page.context["layouts"]


@pytest.mark.parametrize(
    ("content", "fields", "words"),
    [
        (b"{no", {}, "is damaged"),
        (b"\xff\xfe", {}, "is damaged"),
        (b"[" * 100_000, {}, "is damaged"),
        ([1], {}, "not in a format this version can read"),
        ({"version": 2}, {}, "not in a format this version can read"),
        (PREFLIGHT, {"sha256": "0" * 64}, "cannot be read"),
        (PREFLIGHT, {"size_bytes": 10**9}, "is larger than 8 MB"),
        (PREFLIGHT, {"uri": "../../etc/passwd"}, "cannot be read"),
    ],
)
def test_a_damaged_report_is_a_sentence(run, left, see, content, fields, words):
    row = left(run, "preflight.json", content, **{k: v for k, v in fields.items() if k != "uri"})
    if "uri" in fields:
        row.uri = fields["uri"]
        row.save()
    text = see(run, "checks")
    assert words in text
    assert "Every step waits for the reward." in text


@pytest.mark.parametrize(
    "content",
    [
        {"version": 1},
        {"version": 1, "level": [], "findings": "none"},
        {"version": 1, "level": "ok", "findings": [{"title": 1}]},
        {"version": 1, "level": "ok", "findings": [None]},
        {"version": 1, "level": "ok", "findings": [], "changed": {"a": 1}},
        {"version": 1, "level": "ok", "findings": [], "memory": {"peak_bytes": "much"}},
        {"version": 1, "level": "ok", "findings": [], "memory": MEMORY | {"phases": [{}]}},
        {"version": 1, "level": "ok", "findings": [], "memory": MEMORY | {"peak_bytes": -1}},
        {"version": 1, "level": "ok", "findings": [], "memory": MEMORY | {"layouts": [{}]}},
        {"version": 1, "level": "ok", "findings": [], "memory": [1]},
    ],
)
def test_a_report_of_another_shape_hides_no_other_part(run, left, see, content):
    left(run, "preflight.json", content)
    left(run, "latency.json", LATENCY)
    text = see(run, "checks")
    assert "not in a format this version can read" in text
    assert "The head adds 20.0 ms." in text


@pytest.mark.parametrize(
    "found",
    [{"shares": {"reward": 7}, "message": ""}, {"shares": []}, {"message": "x"}, "slow", []],
)
def test_a_summary_of_another_shape_is_no_error(project, emil, see, found):
    run = run_make(project, by=emil, kind="ppo", state="finished", summary={"bottleneck": found})
    see(run, "checks")
    see(run, "overview")


def test_a_live_run_says_who_waits_from_its_newest_step(project, emil, see):
    run = run_make(project, by=emil, kind="ppo")
    metrics_add(run, 1, [7], time__rollout_s=[6.0], time__reward_wait_s=[3.0], time__update_s=[1.0])
    text = see(run, "checks")
    assert "Of step 7 alone" in text
    assert "Generation</th>" in text
    assert "60.0 %" in text


def test_a_run_without_reports_says_why_there_are_none(project, emil, see):
    assert "No checks" in see(run_make(project, by=emil, state="finished"), "checks")
    assert "No checks yet" in see(run_make(project, by=emil), "checks")


# --- failures and the way back ---


@pytest.fixture
def stopped(project, emil) -> Run:
    """Stopped by a guardrail at step 43, with a sound checkpoint at 40."""
    base = run_make(project, kind="sft", state="finished", name="the SFT model")
    start = checkpoint_add(base, 60, "final")
    run = run_make(
        project,
        by=emil,
        kind="ppo",
        state="failed",
        step=43,
        fault="guard",
        failure_kind="guard_reference_kl",
        failure_message="step 43: reference_kl",
        config={"steps": 100, "kl_coef": 0.05, "reward": {"type": "token_count", "token": "a"}},
    )
    prompts = Snapshot.objects.create(
        project=project,
        name="prompts",
        kind="prompts",
        state="frozen",
        uri="snapshots/x",
        sha256="1" * 64,
        counts={"rows": {"train": 8, "dev": 2}},
        frozen_at=run.ended_at,
    )
    RunInput.objects.create(run=run, role="prompts", snapshot=prompts)
    RunInput.objects.create(run=run, role="sft", checkpoint=start)
    checkpoint_add(run, 40, "best", metrics={"eval/score": 1.5, "eval/kl": 9.0})
    checkpoint_add(run, 43, "failed")
    Alert.objects.create(
        run=run,
        attempt=1,
        seq=9,
        step=43,
        rule="reference_kl",
        severity="critical",
        message="KL",
        value=12.34,
        threshold=10,
        raised_at=run.ended_at,
    )
    return run


def checkpoint_add(run: Run, step: int, *tags: str, **fields) -> Checkpoint:
    return Checkpoint.objects.create(
        project=run.project,
        run=run,
        attempt=1,
        step=step,
        uri=f"runs/{run.pk}/{step}",
        sha256=f"{step:064d}",
        tags=list(tags),
        **fields,
    )


def test_a_guardrails_stop_says_what_fired_what_is_sound_and_what_to_change(stopped, see):
    text = see(stopped, "overview")
    for words in (
        "The policy is far from its reference.",
        "was 12.3 at step 43, over the limit of 10.0 nats per sequence (2 of 3 checks).",
        "<code>kl_coef</code> 0.05 → 0.075",
        "Roll back to step 40 with the advised change",
        "Clone with the advised change",
        "Saved when the run failed: inspect it",
        "Best on the held-out evaluation",
        "<dt>Reward on fixed prompts</dt><dd>1.50</dd>",
    ):
        assert words in text, words


def test_one_click_rolls_back_once(stopped, signed_in, emil):
    client = signed_in(emil)
    address = f"/p/arguments/runs/{stopped.pk}/roll-back/"
    sent = {"to": "healthy", "advised": "on", "key": "k"}
    first, again = client.post(address, sent), client.post(address, sent)
    made = Run.objects.get(name="warm-up, back to step 40")
    assert first.url == again.url == f"/p/arguments/runs/{made.pk}/"
    assert made.config["kl_coef"] == pytest.approx(0.075)
    assert made.inputs.get(role="reference").checkpoint.step == 60


def test_the_page_of_the_way_back_offers_what_is_sound_and_says_why_the_rest_is_not(
    stopped, signed_in, emil
):
    page = signed_in(emil).get(f"/p/arguments/runs/{stopped.pk}/roll-back/")
    choices = {one.title: one for one in page.context["choices"]}
    assert choices["Step 40 (best)"].checked
    assert ("steps", "100", "60") in choices["Step 40 (best)"].changes
    assert choices["Step 43 (failed)"].why_not
    assert list(choices)[-1].endswith("the SFT model, step 60")
    assert "kl_coef" in page.content.decode()


def test_where_nothing_is_sound_the_start_is_offered(stopped, see, signed_in, emil):
    Checkpoint.objects.filter(run=stopped, step=40).delete()
    text = see(stopped, "overview")
    assert "from the beginning" in text
    refused = signed_in(emil).post(f"/p/arguments/runs/{stopped.pk}/roll-back/", {"to": "healthy"})
    assert refused.status_code == 409
    assert "no_healthy_checkpoint" in refused.content.decode()


def test_a_clone_with_the_advised_change_is_a_form_with_that_value(stopped, signed_in, emil):
    page = signed_in(emil).get(f"/p/arguments/runs/new/ppo/?from={stopped.pk}&advised=1")
    assert page.context["form"]["c_kl_coef"].value() == pytest.approx(0.075)


def test_a_blocked_preflight_says_that_nothing_was_trained(project, emil, see):
    run = run_make(project, by=emil, kind="ppo", state="failed", failure_kind="preflight_reward")
    text = see(run, "overview")
    assert "does not rank" in text
    assert "Nothing was trained" in text
    assert "?tab=checks" in text
    assert "Clone and edit" in text
    assert "Restart from" not in text  # as it was it would be blocked again


@pytest.mark.parametrize("kind", ["guard_of_another_version", "preflight_nonsense", "non_finite"])
def test_a_failure_of_any_name_is_a_page(project, emil, see, kind):
    see(run_make(project, by=emil, kind="ppo", state="failed", failure_kind=kind), "overview")


def test_a_way_back_in_another_project_leads_nowhere(stopped, signed_in, olga, emil):
    client = signed_in(olga)
    for verb in ("roll-back", "minimal"):
        assert client.post(f"/p/elsewhere/runs/{stopped.pk}/{verb}/").status_code == 404
        assert client.post(f"/p/arguments/runs/{stopped.pk}/{verb}/").status_code == 404
    model = Checkpoint.objects.get(step=40)
    assert client.post(f"/p/elsewhere/models/{model.pk}/evaluate/").status_code == 404
    other = run_make(olga.memberships.get().project, kind="sft", state="finished")
    foreign = checkpoint_add(other, 5, "final")
    answer = signed_in(emil).post(f"/p/arguments/runs/{stopped.pk}/roll-back/", {"to": foreign.pk})
    assert answer.status_code == 409


# --- doing it again ---


def test_the_repeat_tab_names_code_inputs_and_the_evaluation_command(stopped, see):
    Run.objects.filter(pk=stopped.pk).update(code_version="abc123-dirty", seed=5)
    text = see(stopped, "repeat")
    model = Checkpoint.objects.get(step=40)
    for words in (
        f"manage.py evaluate_checkpoint {model.pk} --seed 5",
        "changes that were not committed",
        "1" * 64,
        "&quot;seed&quot;: 5",
        "Run minimal reproduction",
        "The library versions are not known yet",
    ):
        assert words in text, words


def test_the_run_in_small_is_offered_where_the_recipe_has_one(run, project, signed_in, emil, see):
    assert "Run minimal reproduction" not in see(run_make(project, by=emil), "repeat")
    small = run_make(project, by=emil, kind="ppo", config={"minimal": True})
    assert "already a minimal reproduction" in see(small, "repeat")


def test_the_evaluation_command_launches_what_the_page_says(stopped, project):
    model = Checkpoint.objects.get(step=40)
    out = StringIO()
    call_command("evaluate_checkpoint", model.pk, "--seed", "5", "--user", "emil", stdout=out)
    made = Run.objects.get(pk=out.getvalue().strip())
    assert (made.kind, made.seed, made.created_by.username) == ("evaluate", 5, "emil")
    assert made.inputs.get(role="policy").checkpoint == model
    assert made.inputs.get(role="sft").checkpoint.step == 60


def test_a_dpo_model_is_evaluated_by_a_reward_that_is_named(project, emil, see):
    """Nothing in its history says what it is to please."""
    base = checkpoint_add(run_make(project, kind="sft", state="finished"), 60, "final")
    reward = checkpoint_add(run_make(project, kind="reward", state="finished"), 9, "final")
    pairs = Snapshot.objects.create(
        project=project,
        name="pairs",
        kind="preferences",
        state="frozen",
        uri="snapshots/y",
        sha256="2" * 64,
        counts={"rows": {"train": 8, "dev": 2}},
        frozen_at=base.created_at,
    )
    run = run_make(project, by=emil, kind="dpo", state="finished", seed=4)
    RunInput.objects.create(run=run, role="sft", checkpoint=base)
    RunInput.objects.create(run=run, role="data", snapshot=pairs)
    model = checkpoint_add(run, 5, "final")
    command = f"manage.py evaluate_checkpoint {model.pk} --reward CHECKPOINT --seed 4"
    assert command in see(run, "repeat")
    assert ">Evaluate</button>" not in see(run, "overview")
    with pytest.raises(CommandError, match="'reward'"):
        call_command("evaluate_checkpoint", model.pk)
    out = StringIO()
    call_command("evaluate_checkpoint", model.pk, "--reward", reward.pk, stdout=out)
    made = Run.objects.get(pk=out.getvalue().strip())
    assert made.inputs.get(role="reward").checkpoint == reward


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nobodys"], "no checkpoint"),
        (["{model}", "--user", "nobody"], "sign-in name"),
        (["{model}", "--prompts", "nothing"], "no 'snapshot:nothing' in this project"),
    ],
)
def test_the_evaluation_command_says_what_is_missing(stopped, arguments, words):
    model = Checkpoint.objects.get(step=40)
    with pytest.raises(CommandError, match=words):
        call_command("evaluate_checkpoint", *[one.format(model=model.pk) for one in arguments])


def test_a_model_is_evaluated_from_its_page(stopped, signed_in, emil):
    model, failed = Checkpoint.objects.get(step=40), Checkpoint.objects.get(step=43)
    client = signed_in(emil)
    assert "Evaluate</button>" in client.get(f"/p/arguments/models/{model.pk}/").content.decode()
    text = client.get(f"/p/arguments/models/{failed.pk}/").content.decode()
    assert "note bad" in text
    answer = client.post(f"/p/arguments/models/{model.pk}/evaluate/", {"key": "e"})
    assert answer.url == f"/p/arguments/runs/{Run.objects.get(kind='evaluate').pk}/"
