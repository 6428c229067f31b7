"""The Python client against a running server."""

import asyncio
import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, DatasetDict
from django.utils import timezone
from pytest_django.fixtures import Settings
from pytest_django.live_server_helper import LiveServer

from apps.accounts.models import Project, User
from apps.accounts.services import token_create
from apps.evaluation.models import JudgeRun
from apps.labeling import dispatch, services
from apps.labeling.models import Answer, ImportJob, LabelingSettings, Vote
from apps.snapshots.services.importing import snapshot_import
from apps.training.models import Run, Sample
from concord import AsyncClient, Client, ConcordError, RunFailed
from tests.evaluation.judged import answered, model_of, right, voted
from tests.labeling.conftest import inline_parsing
from tests.labeling.pairs import rows_make, tasks_make
from tests.training.test_launching import model
from tests.web.world import metrics_add

__all__ = ["inline_parsing"]

README = Path(__file__).resolve().parents[2] / "clients" / "python" / "README.md"
ONE_VOTE = {"overlap": 1, "max_overlap": 1, "least_votes": 1, "least_agreeing": 1}


def token_of(user: User, *scopes: str) -> str:
    return token_create(user=user, name="client", scopes=scopes, days=1)[1]


def test_a_whole_round_by_the_client(
    transactional_db: None, live_server: LiveServer, project: Project, ada: User, ana: User
) -> None:
    with (
        Client(live_server.url, token_of(ada, "read", "write", "admin")) as admin,
        Client(live_server.url + "/", token_of(ana, "label", "read")) as annotator,
    ):
        changed = admin.settings_update(project.slug, acknowledge_guidelines=True, **ONE_VOTE)
        assert changed == admin.settings(project.slug)
        assert (changed.overlap, changed.show_tie, changed.extra) == (1, True, {})
        report = admin.import_comparisons(project.slug, rows_make(3), batch="first")
        assert (report.n_created, report.problems) == (3, ())

        published = admin.guidelines_publish(project.slug, "Judge facts.", is_major=True)
        assert published.body == "Judge facts.\n"
        guidelines = annotator.guidelines(project.slug)
        assert (guidelines.body, guidelines.must_acknowledge) == ("Judge facts.\n", True)
        assert annotator.next(project.slug).nothing.code == "guideline"
        read = annotator.acknowledge(project.slug, guidelines.version)
        assert read.must_acknowledge is False

        pair = annotator.next(project.slug).pair
        assert pair.prompt[0].content.startswith("Question")
        assert (pair.asks.tie, pair.asks.criteria, pair.extra) == (True, (), {})
        stored = annotator.vote(pair, "left", rationale="Shorter.", flags=["unsafe"], wall_ms=900)
        again = annotator.vote(pair, "left", rationale="Shorter.", flags=["unsafe"], wall_ms=900)
        assert (again.vote, stored.replayed, again.replayed) == (stored.vote, False, True)
        assert again.pair.slot == stored.pair.slot

        revised = annotator.revise(stored.vote, choice="tie", idempotency_key="changed")
        assert (revised.revision, Vote.objects.get(is_current=True).choice) == (2, "tie")
        after_skip = annotator.skip(stored.pair, "Not my subject.")
        assert after_skip.pair.comparison not in (pair.comparison, stored.pair.comparison)
        done = annotator.vote(after_skip.pair, choice="a")
        assert (done.pair, done.nothing.code) == (None, "yours_done")
        mine = annotator.progress(project.slug)
        assert (mine.own.answers, mine.attempts, mine.shows_gold, mine.extra) == (2, (), False, {})

        (tied,) = (row for row in admin.decisions(project.slug) if row.winner == "tie")
        assert (tied.comparison, tied.n_tie) == (pair.comparison, 1)
        LabelingSettings.objects.update(overlap=3, max_overlap=5)
        past = [{"comparison": f"pair-{n}", "annotator": "w1", "choice": "b"} for n in (1, 2, 3)]
        assert admin.import_votes(project.slug, past).n_people == 1
        every = [row.comparison for row in admin.decisions(project.slug, page=1)]
        assert every == sorted(set(every))
        assert len(every) == 3
        assert list(admin.decisions(project.slug, outcome="contested")) == []
        assert list(admin.disputes(project.slug)) == []
        dispute = admin.dispute(project.slug, tied.comparison)
        ruled = admin.rule(project.slug, dispute, choice="a", cause="taste", comment="Clearer.")
        assert (ruled.choice, ruled.cause, ruled.comment) == ("a", "taste", "Clearer.")
        with pytest.raises(ConcordError) as late:
            admin.rule(project.slug, dispute, choice="b", cause="taste")
        assert (late.value.status, late.value.code) == (409, "ruled_meanwhile")
        assert admin.dispute(project.slug, dispute.comparison).rulings == (ruled,)
        (row,) = admin.disputes(project.slug, page=1, show="settled")
        assert (row.comparison, row.ruled) == (tied.comparison, True)


def test_gradings_and_rankings_come_where_they_are_asked_for(
    transactional_db: None, live_server: LiveServer, project: Project, ana: User
) -> None:
    tasks_make(project, n=1, k=3)
    tasks_make(project, n=2, k=4, kind="rank", name="rank")
    with Client(live_server.url, token_of(ana, "label")) as annotator:
        assert annotator.next(project.slug).nothing is not None  # pairs alone
        task = annotator.next(project.slug, kinds=["grade"]).task
        assert (task.kind, task.scale.low, task.scale.high, len(task.responses)) == (
            *("grade", 1, 7),
            3,
        )
        with pytest.raises(ConcordError) as refused:
            annotator.rate(task, [1, 2, 9])
        assert (refused.value.status, refused.value.field) == (400, "values")
        stored = annotator.rate(task, [3, 7, 1])
        answer = Answer.objects.get(pk=stored.vote)
        assert [answer.values[place - 1] for place in answer.shown] == [3, 7, 1]
        assert (answer.source, stored.task.kind) == ("api", "rank")
        skipped = annotator.skip(stored.task, "Too long.", kinds=["rank"])
        done = annotator.rate(skipped.task, [1, 2, 2, 4])
        assert (done.task, done.nothing.code) == (None, "yours_done")


def test_refusals_arrive_with_status_code_field_row_and_details(
    transactional_db: None, live_server: LiveServer, project: Project, ada: User, ana: User
) -> None:
    with Client(live_server.url, token_of(ada, "write")) as admin:
        bad = [*rows_make(1), {"prompt": "no answers"}]
        with pytest.raises(ConcordError) as refused:
            admin.import_comparisons(project.slug, bad)
        error = refused.value
        assert (error.status, error.code, error.row) == (400, "rows_invalid", 2)
        assert error.field in {"response_a", "response_b"}
        assert {problem["row"] for problem in error.details} == {2}
        assert str(error) == f"400 rows_invalid: {error.message} (field {error.field}, row 2)"
        with pytest.raises(ConcordError) as unscoped:
            admin.settings(project.slug)
        assert (unscoped.value.status, unscoped.value.code) == (403, "scope_missing")
    with (
        Client(live_server.url, "ccd_unknown") as stranger,
        pytest.raises(ConcordError) as unknown,
    ):
        stranger.next(project.slug)
    assert (unknown.value.status, unknown.value.code) == (401, "unauthenticated")


def test_the_round_of_the_readme_runs_as_it_is_printed(
    transactional_db: None,
    live_server: LiveServer,
    project: Project,
    ana: User,
    ada: User,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Client(live_server.url, token_of(ada, "write")) as admin:
        admin.import_comparisons(project.slug, rows_make(3))
    monkeypatch.setenv("CONCORD_TOKEN", token_of(ana, "label"))
    example = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)[1]
    assert "http://127.0.0.1:8000" in example
    exec(example.replace("http://127.0.0.1:8000", live_server.url), {})  # noqa: S102
    assert "You have answered or skipped every pair" in capsys.readouterr().out
    assert Vote.objects.filter(annotator=ana, source="api").count() == 3


def test_annotators_at_once_share_out_the_pairs(
    transactional_db: None, live_server: LiveServer, project: Project, ana: User, rita: User
) -> None:
    LabelingSettings.objects.create(project=project, **ONE_VOTE)
    tokens = [token_of(ana, "label"), token_of(rita, "label")]

    async def label_all(client: AsyncClient) -> list[int]:
        got: Any = await client.next(project.slug)
        seen = []
        while got.pair is not None:
            seen.append(got.pair.comparison)
            got = await client.vote(got.pair, "tie")
        return seen

    async def both() -> list[list[int]]:
        async with (
            AsyncClient(live_server.url, tokens[0]) as one,
            AsyncClient(live_server.url, tokens[1]) as other,
        ):
            return await asyncio.gather(label_all(one), label_all(other))

    services.comparisons_import(project=project, rows=rows_make(6))
    first, second = asyncio.run(both())
    assert len(first) + len(second) == len({*first, *second}) == 6


def test_a_run_is_launched_waited_for_and_read_also_inside_a_notebook(
    transactional_db: None, live_server: LiveServer, project: Project, emil: User
) -> None:
    token = token_of(emil, "read", "train")
    with Client(live_server.url, token) as concord:
        runs = concord.project(project.slug).runs
        with pytest.raises(ConcordError) as refused:
            runs.launch("ppo", "p", config={"kl_coef": "much"})
        assert (refused.value.status, refused.value.field) == (422, "config.kl_coef")
        run = runs.launch("drill", "from a notebook", config={"steps": 3})
        again = runs.launch("drill", "twice", idempotency_key="k")
        assert runs.launch("drill", "twice", idempotency_key="k").record == again.record
        assert [one.record.name for one in runs.list(page=1)] == ["twice", "from a notebook"]
        with pytest.raises(TimeoutError, match="queued"):
            run.wait(every=0.01, timeout=0.05)
        assert run.metrics().empty
        row = Run.objects.get(pk=run.id)
        metrics_add(row, 1, [1, 2], loss=[2.0, "nan"], kl=[0.5, None])
        Sample.objects.create(
            run=row,
            attempt=1,
            seq=2,
            step=1,
            bucket="high",
            prompt=[{"role": "user", "content": "Yes?"}],
            response="Yes.",
        )
        Run.objects.filter(pk=run.id).update(state="finished", ended_at=timezone.now())
        seen: list[str] = []
        ended = run.wait(on_progress=lambda found: seen.append(found.state))
        assert (ended, run.state, seen, run.record.extra) == (run, "finished", ["finished"], {})
        table = run.metrics("loss", "kl")
        assert (table.index.name, list(table.index)) == ("step", [1, 2])
        assert (table.loc[1, "loss"], table.loc[1, "kl"]) == (2.0, 0.5)
        assert table.loc[2].isna().all()
        (sample,) = run.samples(bucket="high")
        assert (sample.response, sample.prompt[0].role, run.log()) == ("Yes.", "user", ())
        found = run.curves("loss", "kl")
        assert run.curves(cursor=found.cursor).series == {}
        with pytest.raises(LookupError, match="no checkpoint 'final'"):
            run.model()
        assert again.cancel().state in ("cancelled", "stopping")
        Run.objects.filter(pk=again.id).update(
            state="failed",
            ended_at=timezone.now(),
            failure_kind="oom",
            failure_message="Out of memory.",
        )
        with pytest.raises(RunFailed, match="'twice': Out of memory") as failed:
            again.wait()
        assert failed.value.run.id == again.id
        assert again.wait(check=False).state == "failed"
        assert runs.get(again.id).record == again.record
    with pytest.raises(RuntimeError, match="closed"):
        run.refresh()
    assert "concord-client" not in [thread.name for thread in threading.enumerate()]

    async def notebook() -> list[str]:
        """Where an event loop runs already."""
        with Client(live_server.url, token) as concord:
            runs = concord.project(project.slug).runs
            return [run.record.name for run in runs.list(search="notebook")]

    assert asyncio.run(notebook()) == ["from a notebook"]


PAIRS = [
    {"prompt": f"Is {n} even?", "chosen": f"It is {n % 2 == 0}.", "rejected": f"Who knows {n}"}
    for n in range(40)
]


@pytest.fixture
def worker(inline_parsing: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Imports are done where they are asked for."""

    def at_once(job: str) -> bool:
        services.import_job_run(job=job)
        return True

    monkeypatch.setattr(dispatch, "import_send", at_once)


@pytest.mark.usefixtures("transactional_db", "worker")
def test_rows_of_any_kind_become_a_dataset_and_come_back(
    live_server: LiveServer, project: Project, emil: User, tmp_path: Path
) -> None:
    with Client(live_server.url, token_of(emil, "read", "write")) as concord:
        datasets = concord.project(project.slug).datasets
        told: list[tuple[int, int]] = []
        made = datasets.from_hf(
            Dataset.from_list(PAIRS),
            "Even numbers",
            on_progress=lambda through, total: told.append((through, total)),
        )
        assert (made.name, made.kind, made.state, made.extra) == (
            *("Even numbers", "preferences", "frozen"),
            {},
        )
        assert sum(made.counts["rows"].values()) == 40
        assert made.counts["file"] == "Even-numbers.jsonl"
        assert told[-1][0] == told[-1][1] > 1000
        named = DatasetDict(
            train_prefs=Dataset.from_list(PAIRS[:30]), test_prefs=Dataset.from_list(PAIRS[30:])
        )
        with pytest.raises(ConcordError) as held_out:
            datasets.from_hf(
                named, "Split", splits={"train_prefs": "train", "test_prefs": "public_test"}
            )
        assert (held_out.value.code, held_out.value.field) == ("held_out_elsewhere", "overlap")
        prompts = ({"question": f"What is {n} times {n}?"} for n in range(20))
        asked = datasets.from_hf(
            prompts, "Squares", makes="prompts", settings={"mapping": {"prompt": "question"}}
        )
        assert asked.kind == "prompts"
        written = tmp_path / "more.jsonl"
        written.write_text(
            "".join(
                json.dumps({"prompt": f"Name {n}.", "response": f"{n}", "split": split}) + "\n"
                for n, split in enumerate(["train"] * 5 + ["test"] * 2)
            )
        )
        more = datasets.import_file(written, makes="demonstrations")
        assert (more.name, more.counts["rows"]) == ("more.jsonl", {"train": 5, "public_test": 2})
        assert [one.name for one in datasets.list()] == ["more.jsonl", "Squares", "Even numbers"]
        back = datasets.export(more, tmp_path / "back" / "test.jsonl", split="public_test")
        assert len(back.read_text().splitlines()) == 2
        assert [path.name for path in back.parent.iterdir()] == ["test.jsonl"]
        with pytest.raises(ValueError, match="are imported by"):
            datasets.import_file(written, makes="comparisons")


@pytest.mark.usefixtures("transactional_db", "worker")
def test_bad_rows_are_named_and_nothing_of_their_file_stays(
    live_server: LiveServer, project: Project, emil: User, tmp_path: Path
) -> None:
    with Client(live_server.url, token_of(emil, "read", "write")) as concord:
        datasets = concord.project(project.slug).datasets
        rows = [*PAIRS[:5], {"prompt": "And?", "chosen": "Yes.", "rejected": None}]
        with pytest.raises(ConcordError) as refused:
            datasets.from_hf(rows, "Bad")
        error = refused.value
        assert (error.code, error.row, error.field) == ("rows_invalid", 6, "rejected")
        assert [problem["row"] for problem in error.details] == [6]
        assert (datasets.list(), ImportJob.objects.get().state) == ((), "cancelled")
        kept = datasets.from_hf(rows, "Bad", on_error="skip")
        assert sum(kept.counts["rows"].values()) == 5
        with pytest.raises(ConcordError) as unread:
            datasets.from_hf([{"colour": "blue"}], "No columns")
        assert unread.value.code == "column_missing"
        report = concord.project(project.slug).comparisons.import_file(comparisons(tmp_path))
        assert (report.makes, report.result["n_created"]) == ("comparisons", 3)


def comparisons(folder: Path) -> Path:
    file = folder / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows_make(3)))
    return file


BRIEF = {"type": "rules", "rules": [{"name": "brief", "words": {"most": 100}}]}


def test_two_models_are_compared_by_an_evaluation_that_is_waited_for(
    transactional_db: None,
    live_server: LiveServer,
    project: Project,
    emil: User,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy, baseline = model(project, "sft"), model(project, "sft")
    rows = [{"prompt": f"What is {n}?"} for n in range(20)]
    prompts = snapshot_import(project=project, kind="prompts", name="Questions", rows=rows)
    rate = {"value": 0.75, "low": 0.6, "high": 0.9, "n": 40}

    def evaluated(self: AsyncClient, *args: Any, **options: Any) -> Any:
        Run.objects.filter(kind="evaluate").update(
            state="finished",
            ended_at=timezone.now(),
            summary={"reward": {"win_rate": rate}},
        )
        return waited(self, *args, **options)

    waited = AsyncClient.wait
    monkeypatch.setattr(AsyncClient, "wait", evaluated)
    with Client(live_server.url, token_of(emil, "read", "train")) as concord:
        models = concord.project(project.slug).models
        one, other = (models.get(str(found.pk)) for found in (policy, baseline))
        assert {found.id for found in models.list(kind="sft")} == {one.id, other.id}
        with pytest.raises(ConcordError) as refused:
            models.compare(one, one, f"snapshot:{prompts.pk}", reward=BRIEF)
        assert (refused.value.code, refused.value.field) == ("same_input", "inputs.sft")
        found = models.compare(
            one, other, f"snapshot:{prompts.pk}", reward=BRIEF, config={"draws": 2}
        )
    assert (found.value, found.low, found.high, found.n, found.by) == (0.75, 0.6, 0.9, 40, "reward")
    assert Run.objects.get(pk=found.run.id).config["reward"] == BRIEF


def test_a_reward_is_tried_on_answers(
    transactional_db: None,
    live_server: LiveServer,
    project: Project,
    emil: User,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [{"prompt": "Why?", "response": "So.", "answer": "", "score": 1.0, "parts": {}}]

    def scored(self: AsyncClient, *args: Any, **options: Any) -> Any:
        Run.objects.filter(kind="check").update(
            state="finished", ended_at=timezone.now(), summary={"figures": {"rows": rows}}
        )
        return waited(self, *args, **options)

    waited = AsyncClient.wait
    monkeypatch.setattr(AsyncClient, "wait", scored)
    with Client(live_server.url, token_of(emil, "read", "train")) as concord:
        models = concord.project(project.slug).models
        with pytest.raises(ConcordError) as refused:
            models.try_reward(BRIEF)
        assert refused.value.field == "inputs.prompts"
        asked = {"prompt": "Why?", "response": "So."}
        assert models.try_reward(BRIEF, [asked]) == rows
    config = Run.objects.get().config
    assert (config["check"], config["answers"]) == ("answers", [asked])


@pytest.mark.usefixtures("transactional_db")
def test_two_systems_are_compared_and_the_result_is_shown_to_somebody_outside(
    live_server: LiveServer, project: Project, emil: User, ana: User
) -> None:
    rows = [
        {"prompt": f"What is {n} + 1?", "response_a": f"{n + 1}", "response_b": "Many."}
        for n in range(24)
    ]
    with Client(live_server.url, token_of(emil, "read", "write", "train")) as concord:
        duels = concord.project(project.slug).head_to_heads
        with pytest.raises(ConcordError) as refused:
            duels.open("N", first="Ours", second="Ours", rows=rows)
        assert refused.value.field == "second_name"
        made = duels.open("N", first="Ours", second="Theirs", rows=rows, people=5, margin=0.1)
        assert (made.verdict, made.planned, made.margin) == ("waiting", 24, 0.1)
        with Client(live_server.url, token_of(ana, "read", "label")) as theirs:
            pair = theirs.next(project.slug).pair
            assert pair is not None
            theirs.vote(pair, "left")
        found = duels.get(made.id)
        assert (found.votes, found.people, found.verdict) == (1, 1, "too_few_people")
        assert found.says.startswith("Too few people: 1 of at least 5.")
        assert duels.link(made.id, days=2).path
        assert duels.link(made.id, None).path == ""
        assert not duels.end(made.id).running
        assert [one.id for one in duels.all()] == [made.id]


def test_a_judge_is_made_asked_and_certified(
    live_server: LiveServer, project: Project, emil: User, tmp_path: Path, settings: Settings
) -> None:
    settings.ARTIFACTS_URL = str(tmp_path / "artifacts")
    voted(project, 30)
    with Client(live_server.url, token_of(emil, "read", "write", "train")) as concord:
        judges = concord.project(project.slug).judges
        made = judges.make("Judy", model_of(project).pk, top_k=5)
        assert (made.version.state, made.version.config["top_k"]) == ("not_measured", 5)
        with pytest.raises(ConcordError) as refused:
            judges.measure(made.id, 1, scope="batch:none")
        assert (refused.value.field, refused.value.status) == ("scope", 404)
        run = judges.measure(made.id, 1, share=1.0).run
        answered(JudgeRun.objects.get(run=run), right())
        [measured] = judges.measurements(made.id, 1)
        assert judges.measurement(made.id, 1, measured.id) == measured
        worth = judges.get(made.id).version.worth
        assert worth is not None
        assert (worth.measurement, worth.n_pairs) == (measured.id, 30)
        assert [one.is_vote for one in judges.verdicts(made.id, 1)] == [False] * 30
        found = judges.certify(made.id, 1, error=0.1, failure=0.05)
        assert (found.state, found.audit.n) == ("nothing_certified", 0)
        assert [one.id for one in judges.certificates(made.id)] == [found.id]
        with pytest.raises(ConcordError) as refused:
            judges.label(found.id)
        assert refused.value.code == "not_certified"
        assert judges.version_make(made.id, rubric="Be brief.").number == 2
        assert judges.trials(made.id) == ()
        assert judges.archive(made.id).archived_at
        assert judges.all() == ()
