"""Results of lm-evaluation-harness and Inspect, beside Concord's own and under their own hashes."""

import copy
import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from apps.accounts.models import AuditEvent, Project, User
from apps.common.errors import DomainError
from apps.evaluation.formats.outside import LARGEST, OutsideTask, outside_tasks
from apps.evaluation.models import OutsideResult
from apps.evaluation.selectors.cards import card_lines
from apps.evaluation.selectors.evidence import evidence_of
from apps.evaluation.selectors.outside import by_protocol
from apps.evaluation.services.outside import outside_results_import
from apps.training.models import Checkpoint
from tests.evaluation.outside_files import TASK_HASH, as_bytes, inspect, lm_eval, samples, zipped
from tests.evaluation.promoted import run_made, saved
from workers.contract.protocol import content_sha256


def task_of(data: bytes, name: str) -> OutsideTask:
    (found,) = [one for one in outside_tasks(data) if one.task == name]
    return found


def test_every_metric_keeps_its_value_error_and_n() -> None:
    found = outside_tasks(as_bytes(lm_eval()))
    assert [one.task for one in found] == ["facts_easy", "sums"], "a group without figures is none"
    easy, sums = found
    assert [(m.name, m.value, m.stderr, m.n, m.higher_is_better) for m in easy.metrics] == [
        ("acc", 0.75, 0.1637, 8, True),
        ("acc_norm", 0.5, None, 8, True),
    ]
    assert [(m.name, m.n) for m in sums.metrics] == [
        ("exact_match (strict-match)", 20),
        ("exact_match (flexible-extract)", 20),
    ]
    told = easy.protocol
    assert (told["task_version"], told["n_shot"], told["git_hash"]) == (1.0, 5, "9f1c2ab")
    assert told["task_hash"] == TASK_HASH
    assert told["model_args"] == {"dtype": "bfloat16", "api_key": "(left out)"}
    assert easy.system["model"] == "org/model-a"
    assert easy.sha256 == content_sha256(easy.protocol)
    assert "abc123" not in json.dumps([easy.protocol, easy.system])


def test_inspect_keeps_its_scorers() -> None:
    (found,) = outside_tasks(as_bytes(inspect()))
    assert [(m.name, m.value, m.stderr, m.n) for m in found.metrics] == [
        ("accuracy (includes)", 0.9, 0.048, 40),
        ("std (includes)", 0.3, None, 40),
    ]
    assert found.protocol["program_version"] == "0.3.285"
    assert found.protocol["generate"] == {"temperature": 0.0}
    archive = zipped(header_dot_json=as_bytes(inspect()), samples__1_dot_json=b"{}")
    assert outside_tasks(archive) == [found], "the .eval of the same log"


def test_another_model_measured_alike_has_the_same_hash_and_a_planted_change_another() -> None:
    one = task_of(as_bytes(lm_eval()), "facts_easy")
    other = lm_eval(model_name="org/model-b")
    other["config"] = other["config"] | {
        "model_args": "pretrained=org/model-b,dtype=bfloat16,api_key=z"
    }
    other["configs"]["facts_easy"]["metadata"]["pretrained"] = "org/model-b"
    other["configs"]["facts_easy"]["process_docs"] = "<function process_docs at 0x7fffffffffff>"
    assert task_of(as_bytes(other), "facts_easy").sha256 == one.sha256
    for change in (
        {"n-shot": {"facts_easy": 0}},
        {"versions": {"facts_easy": 2.0}},
        {"git_hash": "other"},
        {"chat_template_sha": "e1b4a7c9"},
        {"lm_eval_version": "0.4.9"},
    ):
        assert task_of(as_bytes(lm_eval(**change)), "facts_easy").sha256 != one.sha256, change
    warm = inspect()
    warm["plan"]["config"]["temperature"] = 0.7
    assert outside_tasks(as_bytes(warm))[0].sha256 != outside_tasks(as_bytes(inspect()))[0].sha256


def test_the_samples_of_another_run_are_refused() -> None:
    good = zipped(
        org__results_1_dot_json=as_bytes(lm_eval()), org__samples_facts_easy_1_dot_jsonl=samples()
    )
    assert task_of(good, "facts_easy").protocol["task_hash"] == TASK_HASH
    without = lm_eval(task_hashes={})
    made = zipped(results_1_dot_json=as_bytes(without), samples_facts_easy_1_dot_jsonl=samples())
    assert task_of(made, "facts_easy").protocol["task_hash"] == TASK_HASH, "made from the samples"
    with pytest.raises(DomainError, match="task hash is not that of the results"):
        outside_tasks(
            zipped(
                results_1_dot_json=as_bytes(lm_eval()), samples_facts_easy_1_dot_jsonl=samples(7)
            )
        )
    with pytest.raises(DomainError, match="has 7 documents, the results say 8"):
        outside_tasks(
            zipped(results_1_dot_json=as_bytes(without), samples_facts_easy_1_dot_jsonl=samples(7))
        )


def broken(change: Callable[[dict[str, Any]], Any], of: dict[str, Any]) -> bytes:
    found = copy.deepcopy(of)
    change(found)
    return as_bytes(found)


def damaged(data: bytes) -> bytes:
    """One byte of what an archive holds is another."""
    place = data.index(b"success")
    return data[:place] + b"S" + data[place + 1 :]


def bomb() -> bytes:
    """A small archive of one large file."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", b" " * (LARGEST + 1))
    return out.getvalue()


def without_metrics(found: dict[str, Any]) -> None:
    found["results"] = {name: {"alias": name} for name in found["results"]}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (as_bytes(lm_eval())[:400], "cut off or damaged at line 1"),
        (b"\xff\xfe\x00", "no text in UTF-8"),
        (b"[1, 2]", "no JSON object"),
        (as_bytes({"scores": {"mmlu": 0.4}}), "neither results_"),
        (broken(without_metrics, lm_eval()), "no task of it has a metric"),
        (
            broken(
                lambda d: d["results"]["sums"].update({"exact_match,x": float("nan")}), lm_eval()
            ),
            "sums: exact_match,x is NaN or infinite",
        ),
        (
            broken(lambda d: d["results"]["sums"].update({"exact_match,x": "0.3"}), lm_eval()),
            "sums: exact_match,x is no number",
        ),
        (as_bytes(inspect(status="error")), "its status is error"),
        (as_bytes(inspect(status="started", results=None)), "its status is started"),
        (as_bytes(inspect(results=None)), "no scorer of it has a metric"),
        (as_bytes(inspect(invalidated=True)), "marked as invalid"),
        (as_bytes(inspect(results={"scorer": {"name": "x"}})), "of an older format"),
        (zipped(readme=b"hello"), "holds 0 files results_"),
        (damaged(zipped(header_dot_json=as_bytes(inspect()))), "archive is cut off or damaged"),
        (b" " * (LARGEST + 1), "is larger than 32 MB"),
        (bomb(), "is larger than 32 MB, at header.json"),
        (zipped(_journal__start_dot_json=b"{}"), "was not finished"),
        (zipped(header_dot_json=as_bytes(inspect()))[:-40], "archive is cut off"),
        (b"[" * 100_000, "cut off or damaged|nested too deeply"),
    ],
)
def test_a_bad_file_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(DomainError, match=reason) as refused:
        outside_tasks(data)
    assert (refused.value.code, refused.value.field) == ("bad_results", "file")


@pytest.fixture
def model(project: Project) -> Checkpoint:
    return saved(run_made(project, "sft", "assistant"))


def sent(data: Any, name: str = "results_1.json") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, data if isinstance(data, bytes) else as_bytes(data))


def test_emil_imports_a_file_by_page_and_it_stands_on_the_model_card_and_evidence(
    project: Project, emil: User, model: Checkpoint, client: Client
) -> None:
    client.force_login(emil)
    here = reverse("evaluation:outside_results", args=[project.slug, model.pk])
    bad = client.post(here, {"file": sent(b"{")})
    assert bad.status_code == 422
    assert "cut off or damaged" in bad.content.decode()
    assert not OutsideResult.objects.exists()
    page = client.post(here, {"file": sent(lm_eval())}, follow=True).content.decode()
    assert "2 results imported." in page
    assert "0.7500 ± 0.16, n = 8" in page
    again = client.post(here, {"file": sent(lm_eval())})
    assert "was imported for this model already" in again.content.decode()
    shown = client.get(reverse("training:model", args=[project.slug, model.pk])).content.decode()
    assert "Measured elsewhere" in shown
    assert "0.7500 ± 0.16, n = 8" in shown
    (line,) = [one for one in evidence_of(model) if one.name == "outside"]
    assert line.facts["results"][0]["protocol_sha256"] == line.facts["source"]
    assert line.verdict == "noted", "neither good nor bad"
    card = [one for one in card_lines(model) if one.part == "Measured elsewhere"]
    assert [one.name.split(" ")[0] for one in card] == ["facts_easy", "sums"]
    assert AuditEvent.objects.filter(action="outside_result.imported").count() == 1


def test_results_of_two_hashes_are_never_in_one_table(
    project: Project, emil: User, model: Checkpoint, signed_in: Callable[..., Client]
) -> None:
    other = saved(run_made(project, "dpo", "better"))
    third = saved(run_made(project, "dpo", "warmer"))
    changed = lm_eval(git_hash="another", date=2.0)
    for checkpoint, found in ((model, lm_eval()), (other, lm_eval(date=1.0)), (third, changed)):
        outside_results_import(
            checkpoint=checkpoint, file_name="r.json", data=as_bytes(found), user=emil
        )
    groups = [
        one for one in by_protocol(list(OutsideResult.objects.all())) if one.first.task == "sums"
    ]
    assert [{row.checkpoint_id for row in one.rows} for one in groups] == [
        {model.pk, other.pk},
        {third.pk},
    ]
    assert [line.path for line in groups[1].unlike] == ["git_hash"]
    text = signed_in(emil).get(f"/p/{project.slug}/outside-results/").content.decode()
    assert "Not comparable with the first table of this task: 1 line differs" in text


def test_by_api(project: Project, emil: User, model: Checkpoint, client: Client) -> None:
    client.force_login(emil)
    base = f"/api/v1/projects/{project.slug}"
    post = f"{base}/models/{model.pk}/outside-results"
    made = client.post(post, {"file": sent(inspect(), "log.json")})
    assert made.status_code == 201
    (one,) = made.json()
    refused = client.post(post, {"file": sent(inspect(), "log.json")})
    assert (refused.status_code, refused.json()["code"]) == (409, "already_imported")
    reward = saved(run_made(project, "reward", "reward"))
    wrong = client.post(
        f"{base}/models/{reward.pk}/outside-results", {"file": sent(inspect(), "log.json")}
    )
    assert wrong.json()["code"] == "wrong_kind"
    other = client.post(post, {"file": sent(inspect(version=3), "log2.json")}).json()[0]
    told = client.get(f"{base}/outside-results/{one['id']}/differences/{other['id']}").json()
    assert (told["same"], told["differences"]) == (True, [])
    listed = client.get(f"{base}/outside-results", {"model": model.pk}).json()
    assert listed["count"] == 2
    assert client.delete(f"{base}/outside-results/{one['id']}").status_code == 204
    assert client.get(f"{base}/outside-results").json()["count"] == 1
    assert AuditEvent.objects.filter(action="outside_result.deleted").count() == 1
