"""Taking a model out: what the file holds, who gets it, and that it loads."""

import io
import json
import math
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from apps.accounts.models import AuditEvent, Project, User
from apps.training.formats import python_lines, readme_text
from apps.training.models import Checkpoint, Run, RunInput
from apps.training.selectors.cards import model_card
from tests.training.reports import report, saved
from tests.web.world import run_make
from tests.workers.s3 import Bucket, bucket, s3
from workers.artifacts import ArtifactError, Store
from workers.contract import Finished, Opened

__all__ = ["bucket", "s3"]  # fixtures
FILES = {
    "config.json": "{}",
    "model.safetensors": "w" * 3000,
    "tokenizer.json": "t",
    "chat_template.jinja": "c",
    "resume/optimizer.pt": "o",
    "resume/weights.safetensors": "x",
}
LORA = FILES | {"adapter/adapter_config.json": "{}", "adapter/adapter_model.safetensors": "a"}
MODEL = {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja", "README.md"}
Put = Callable[..., Checkpoint]


@pytest.fixture
def put(project: Project, artifacts: Path, settings: Settings) -> Put:
    """A model of these files, saved by a finished run."""

    def make(
        files: dict[str, str] | Path = FILES,
        *,
        kind: str = "dpo",
        start: Checkpoint | None = None,
        summary: dict[str, Any] | None = None,
        **config: Any,
    ) -> Checkpoint:
        run = run_make(
            project, kind=kind, name="Kind | one", attempt=1, state="running", ended_at=None
        )
        run.config = config
        run.save()
        if start is not None:
            RunInput.objects.create(run=run, role="sft", checkpoint=start)
        folder = files
        if isinstance(files, dict):
            folder = artifacts.parent / run.pk
            for name, text in files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text)
        uri = f"runs/{run.pk}/attempt-1/checkpoints/step-7"
        sha256, _ = Store(settings.ARTIFACTS_URL).put_tree(folder, uri)
        report(
            run,
            Opened(),
            replace(saved(7, "last", "final"), uri=uri, sha256=sha256),
            Finished(step=7, summary=summary or {}),
        )
        return Checkpoint.objects.get(run=run)

    return make


def address(model: Checkpoint, part: str = "") -> str:
    query = f"?part={part}" if part else ""
    return f"/p/{model.project.slug}/models/{model.pk}/download/{query}"


def api(model: Checkpoint, rest: str = "") -> str:
    return f"/api/v1/projects/{model.project.slug}/models/{model.pk}{rest}"


def unpacked(content: bytes) -> dict[str, bytes]:
    """{name in the folder: content}."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return {
            member.name.partition("/")[2]: archive.extractfile(member).read()
            for member in archive.getmembers()
        }


def test_a_download_holds_the_model_and_nothing_of_its_trainer(
    client: Client, emil: User, put: Put
) -> None:
    model = put()
    client.force_login(emil)
    answer = client.get(address(model))
    content = answer.getvalue()
    assert answer.headers["Content-Disposition"] == 'attachment; filename="kind-one-step-7.tar"'
    assert int(answer.headers["Content-Length"]) == len(content)
    found = unpacked(content)
    assert set(found) == MODEL
    assert found["model.safetensors"] == FILES["model.safetensors"].encode()
    assert client.get(api(model, "/download")).getvalue() == content
    assert client.get(address(model, "adapter")).status_code == 404
    events = AuditEvent.objects.filter(action="model.downloaded", actor=emil, subject=model.pk)
    assert [event.details["part"] for event in events] == ["merged", "merged"]


def test_a_download_that_broke_off_goes_on_from_any_byte(
    client: Client, emil: User, put: Put
) -> None:
    model = put()
    client.force_login(emil)
    whole = client.get(address(model))
    content, etag = whole.getvalue(), whole.headers["ETag"]
    for start in (1, 511, 512, 2000, len(content) - 1):
        rest = client.get(address(model), headers={"range": f"bytes={start}-", "if-range": etag})
        assert rest.status_code == 206
        assert rest.getvalue() == content[start:]
        assert rest.headers["Content-Range"] == f"bytes {start}-{len(content) - 1}/{len(content)}"
    changed = client.get(address(model), headers={"range": "bytes=9-", "if-range": '"other"'})
    assert (changed.status_code, changed.getvalue()) == (200, content)
    past = client.get(address(model), headers={"range": f"bytes={len(content)}-"})
    assert past.status_code == 416


def test_a_download_comes_from_s3_as_from_a_folder(
    client: Client, emil: User, put: Put, bucket: Bucket, settings: Settings
) -> None:
    settings.ARTIFACTS_URL = bucket.url
    model = put()
    client.force_login(emil)
    whole = client.get(address(model))
    content = whole.getvalue()
    assert unpacked(content)["model.safetensors"] == FILES["model.safetensors"].encode()
    headers = {"range": "bytes=3000-", "if-range": whole.headers["ETag"]}
    assert client.get(address(model), headers=headers).getvalue() == content[3000:]
    bucket.delete(f"{model.uri}/model.safetensors")
    assert client.get(api(model, "/download")).json()["code"] == "gone"


def test_an_adapter_leaves_alone_or_merged(client: Client, emil: User, put: Put) -> None:
    base = put(kind="register_policy", model="org/small", summary={"licence": "mit"})
    model = put(LORA, start=base, lora_rank=32)
    client.force_login(emil)
    assert set(unpacked(client.get(address(model)).getvalue())) == MODEL
    alone = unpacked(client.get(address(model, "adapter")).getvalue())
    assert set(alone) == {
        "adapter_config.json",
        "adapter_model.safetensors",
        "tokenizer.json",
        "chat_template.jinja",
        "README.md",
    }
    said = client.get(api(model)).json()
    merged, adapter = said["parts"]
    assert (merged["part"], adapter["part"]) == ("merged", "adapter")
    assert 'PeftModel.from_pretrained(base, "kind-one-step-7-adapter")' in adapter["python"]
    assert 'from_pretrained("org/small"' in adapter["python"]
    assert "--max-lora-rank 32" in adapter["serve"]
    assert b'base_model: "org/small"\nlibrary_name: "peft"' in alone["README.md"]


def test_the_card_says_base_data_licence_and_settings_with_their_hashes(
    client: Client, emil: User, put: Put, snapshot_make: Any
) -> None:
    licence = FILES | {"LICENSE": "MIT License", "README.md": "theirs"}
    summary = {"licence": "mit", "weights_sha256": "f" * 64}
    snapshot = snapshot_make("preferences")
    base = put(licence, kind="register_policy", model="/srv/models/small", summary=summary)
    sft = put(start=base, kind="sft")
    model = put(start=sft, learning_rate=0.5)
    RunInput.objects.create(run=model.run, role="data", snapshot=snapshot)
    client.force_login(emil)
    found = unpacked(client.get(address(model)).getvalue())
    card = found["README.md"].decode()
    for words in (
        'license: "mit"',
        "small (weights " + "f" * 64,
        base.sha256,
        sft.sha256,
        model.sha256,
        snapshot.sha256,
        "**learning\\_rate**: 0.5",
        "Kind \\| one, step 7",
        "vllm serve ./kind-one-step-7",
    ):
        assert words in card, words
    assert "/srv" not in card
    assert found["LICENSE"] == b"MIT License"
    page = client.get(f"/p/{model.project.slug}/models/{model.pk}/").content.decode()
    for words in (snapshot.sha256, "vllm serve", address(model, "merged"), "learning_rate"):
        assert words in page, words
    theirs = unpacked(client.get(address(base)).getvalue())
    assert theirs["README-of-the-base.md"] == b"theirs"


def test_only_engineers_and_admins_get_it(
    put: Put, signed_in: Callable[[User], Client], ana: User, ada: User, olga: User
) -> None:
    model = put()
    for person, status in ((ana, 403), (olga, 404), (ada, 200)):
        for where in (address(model), api(model), api(model, "/download")):
            assert signed_in(person).get(where).status_code == status, (person, where)


def test_files_that_are_gone_or_another_are_refused_or_break_off(
    client: Client, emil: User, put: Put, artifacts: Path
) -> None:
    model = put()
    client.force_login(emil)
    weights = artifacts / model.uri / "model.safetensors"
    weights.write_text("v" * 3000)
    answer = client.get(address(model))
    with pytest.raises(ArtifactError, match="damaged"):
        answer.getvalue()
    weights.unlink()
    assert client.get(api(model, "/download")).json()["code"] == "gone"
    drill = put(kind="drill")
    assert client.get(address(drill)).status_code == 404
    assert client.get(f"/p/{drill.project.slug}/models/{drill.pk}/").status_code == 200


def test_a_push_is_a_run_with_the_card_and_the_licence_and_without_a_token(
    client: Client, emil: User, put: Put
) -> None:
    base = put(FILES | {"LICENSE": "MIT"}, kind="register_policy", model="org/small")
    model = put(start=base)
    client.force_login(emil)
    page = f"/p/{model.project.slug}/models/{model.pk}/"
    sent = {"repo": "org/mine", "private": "on", "key": "k"}
    for _ in range(2):
        assert client.post(f"{page}push/", sent).status_code == 302
    run = Run.objects.get(kind="push")
    assert {row.role: row.checkpoint for row in run.inputs.all()} == {"model": model, "base": base}
    assert {n: v for n, v in run.config.items() if n != "card"} == {
        "repo": "org/mine",
        "part": "merged",
        "private": True,
    }
    readme = unpacked(client.get(address(model)).getvalue())["README.md"].decode()
    assert run.config["card"] == readme
    assert run.name in client.get(page).content.decode()
    for wrong, words in (({"repo": "../x"}, "repo: name"), ({"part": "adapter"}, "adapters")):
        again = client.post(f"{page}push/", sent | wrong | {"key": "l"}, follow=True)
        assert words in again.content.decode()
    refused = client.post(
        api(model, "/push"), {"repo": "org/mine", "part": "adapter"}, "application/json"
    )
    assert (refused.status_code, refused.json()["code"]) == (404, "no_such_part")
    made = client.post(api(model, "/push"), {"repo": "org/other"}, "application/json")
    assert (made.status_code, made.json()["kind"]) == (201, "push")
    assert client.get(f"/p/{model.project.slug}/runs/{run.pk}/").status_code == 200


@pytest.mark.spread
def test_the_lines_of_the_card_load_what_was_downloaded_and_it_answers_as_here(
    client: Client, emil: User, put: Put, tmp_path: Path
) -> None:
    from tests.workers.recipes.language import tiny_llama, user, word_tokenizer
    from workers.data.batches import encode_prompt
    from workers.models.loading import load_causal, load_tokenizer, save_model, stop_ids
    from workers.rollouts.local import Sampling, generate

    folder = tmp_path / "model"
    save_model(tiny_llama(seed=1), word_tokenizer(), folder)
    model = put(folder, kind="sft")
    client.force_login(emil)
    with tarfile.open(fileobj=io.BytesIO(client.get(address(model)).getvalue())) as archive:
        archive.extractall(tmp_path, filter="data")
    lines = client.get(api(model)).json()["parts"][0]["python"]
    lines = lines.replace("…", "the big cat").replace("max_new_tokens=256", "max_new_tokens=12")
    said = subprocess.run(
        [sys.executable, "-c", lines],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        cwd=tmp_path,
    )
    tokenizer, loaded = load_tokenizer(folder), load_causal(folder)
    here = generate(
        loaded,
        tokenizer,
        [encode_prompt(tokenizer, user("the big cat"))],
        Sampling(12, temperature=0),
        stop=stop_ids(loaded, tokenizer),
    )
    assert said.stdout.strip() == here.texts[0].strip() != ""
    assert json.loads((tmp_path / "kind-one-step-7" / "config.json").read_text())["use_cache"]


def test_the_lines_of_a_process_reward_model_say_whether_a_step_is_right(
    project: Project, emil: User, client: Client, tmp_path: Path
) -> None:
    """As a run that learns against it reads that step."""
    from tests.workers.recipes.language import tiny_llama, user, word_tokenizer
    from workers.models.loading import load_step_scorer, save_model
    from workers.rewards.build import load_reward

    tiny_llama().save_pretrained(tmp_path / "body")
    scorer = load_step_scorer(tmp_path / "body", word_tokenizer())
    run = run_make(project, kind="process_reward", name="steps", attempt=1, state="running")
    report(run, Opened(), saved(7, "last"), Finished(step=7, summary={"step": 7}))
    model = Checkpoint.objects.get(run=run)
    folder = tmp_path / "steps-step-7"
    save_model(scorer, word_tokenizer(), folder)
    card = model_card(model)
    assert 'pipeline_tag: "token-classification"' in readme_text(card)
    lines = python_lines(card).replace("…", "the cat").replace("a step", "bad dog")
    command = [sys.executable, "-c", lines]
    said = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=True, cwd=tmp_path
    )
    (log_odds,) = (
        load_reward(folder, name="m", batch_size=1).score([user("the cat")], ["bad dog"]).values
    )
    shown = float(said.stdout.split("[")[1].split("]")[0])
    assert shown == pytest.approx(1 / (1 + math.exp(-log_odds)), abs=1e-3)
