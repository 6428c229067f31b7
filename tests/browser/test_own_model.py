"""One's own model, pairs and prompts in an empty project: DPO, PPO, a comparison and a download."""

import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Locator, Page, expect

from apps.accounts.models import Project, User
from apps.labeling import dispatch, services
from tests.training.stack import Stack
from tests.workers.recipes.language import WORDS, tiny_llama, word_tokenizer
from workers.models.loading import save_model

pytestmark = [pytest.mark.browser, pytest.mark.stack, pytest.mark.django_db(transaction=True)]
TRAINING_MS = 240_000  # a run loads torch; machines are busy

# What somebody runs who has the folder and nothing of ours.
PLAIN = """
import json, sys
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, text = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder)
asked = tokenizer.apply_chat_template(
    [{"role": "user", "content": text}],
    add_generation_prompt=True, return_tensors="pt", return_dict=True,
)
answer = model.generate(**asked, max_new_tokens=8, do_sample=False)
print(json.dumps({
    "parameters": model.num_parameters(),
    "answer": answer[0, asked["input_ids"].shape[1]:].tolist(),
    "foreign": [name for name in sys.modules if name.split(".")[0] in {"workers", "apps", "trl"}],
}))
"""


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Imports sent to the workers; the test is the worker."""
    jobs: list[str] = []
    monkeypatch.setattr(dispatch, "import_send", lambda job: not jobs.append(job))
    return jobs


@pytest.fixture
def stack(transactional_db: None, tmp_path: Path, settings: Any) -> Iterator[Stack]:
    with Stack(tmp_path).running() as stack:
        settings.ARTIFACTS_URL = str(stack.artifacts)
        yield stack


def section(page: Page, name: str) -> None:
    menu = page.get_by_role("navigation", name="Main")
    menu.get_by_role("link", name=name, exact=True).click()


def imported(page: Page, waiting: list[str], file: Path, kind: str, name: str) -> None:
    """A file becomes a dataset of this name."""
    section(page, "Datasets")
    page.get_by_role("link", name="Import", exact=True).click()
    page.get_by_label(re.compile(f"^{kind}")).check()
    page.get_by_label("File", exact=True).set_input_files(file)
    page.get_by_role("button", name="Upload").click()
    page.get_by_role("button", name="Check the whole file").click()
    expect(page.get_by_role("button", name="Cancel")).to_be_visible()
    services.import_job_run(job=waiting.pop())
    expect(page.get_by_role("heading", name="What an import would do")).to_be_visible()
    page.get_by_label("Name of the dataset").fill(name)
    page.get_by_role("button", name=re.compile("^Freeze")).click()
    services.import_job_run(job=waiting.pop())
    page.get_by_role("link", name="See the dataset").click()
    expect(page.get_by_role("heading", name=name)).to_be_visible()


def launched(page: Page, kind: str, name: str, fields: dict[str, str], **inputs: str) -> None:
    """A run from its form, waited for until the page says it has finished."""
    section(page, "Runs")
    page.get_by_role("link", name="New run").first.click()
    page.get_by_role("link", name=kind, exact=True).click()
    page.get_by_label("Name", exact=True).fill(name)
    for role, wanted in inputs.items():
        place = page.locator(f"[name='input_{role}']")
        place.select_option(place.locator("option", has_text=wanted).first.get_attribute("value"))
    summary = page.get_by_text(re.compile("^All settings"))
    if summary.count():
        summary.click()
    for label, value in fields.items():
        field = page.locator(f"[name='c_{label}'], [name='{label}']")
        if label == "reward" and value.startswith("{"):
            page.get_by_text("As text (JSON)").first.click()
            field.fill(value)
            continue
        if label == "reward":
            page.get_by_label("Kind of reward").select_option("token_count")
            page.get_by_label("token", exact=True).fill(value)
            continue
        chooses = field.evaluate("node => node.tagName") == "SELECT"
        field.select_option(value) if chooses else field.fill(value)
    page.get_by_role("button", name="Launch").click()
    head = page.locator("#run-head")
    expect(head.locator("h1")).to_have_text(name)
    state: Locator = head.get_by_text(re.compile("^(finished|failed)"))
    expect(state.first).to_be_visible(timeout=TRAINING_MS)
    expect(head.get_by_text("finished").first).to_be_visible()
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"own-{name}.png", full_page=True)


def test_own_model_pairs_and_prompts_become_two_trained_models_and_a_download(
    live_server: Any,
    project: Project,
    emil: User,
    open_page: Callable[..., Page],
    sign_in: Callable[..., None],
    waiting: list[str],
    stack: Stack,
    tmp_path: Path,
) -> None:
    model, prompts, pairs = (tmp_path / n for n in ("model", "prompts.csv", "pairs.parquet"))
    save_model(tiny_llama(seed=7), word_tokenizer(), model)
    asked = [f"{one} {two} small" for one in WORDS[:8] for two in WORDS[8:14]]
    prompts.write_text("prompt\n" + "".join(f"{text}\n" for text in asked))
    rows = [
        {"prompt": f"{text} {WORDS[5]}", "chosen": WORDS[3], "rejected": WORDS[9]} for text in asked
    ]
    pq.write_table(pa.Table.from_pylist(rows), pairs)
    page = open_page()
    sign_in(page, "emil")

    launched(page, "Registered policy", "mine", {"model": str(model)})
    imported(page, waiting, pairs, "Preferences", "Chosen or rejected")
    imported(page, waiting, prompts, "Prompts", "Asked")
    short = {"learning_rate": "0.001", "batch_size": "8"}
    launched(page, "DPO", "dpo", short | {"max_steps": "4"}, data="Chosen or rejected", sft="mine")
    lengths = {"max_prompt_length": "16", "max_new_tokens": "8"}
    # A count of a word does not rank real answers over noise, as the check before step 1 says.
    drawn = lengths | {"steps": "2", "minibatch_size": "4", "reward": WORDS[3]}
    drawn |= {"reward_check": "warn"}
    launched(page, "PPO", "ppo", short | drawn, prompts="Asked", sft="mine", policy="dpo")
    launched(
        page,
        "Evaluation",
        "compared",
        lengths | {"reward": WORDS[3], "latency_requests": "2"},
        prompts="Asked",
        policy="ppo",
        sft="mine",
    )
    expect(page.locator("main")).to_contain_text(re.compile("win", re.IGNORECASE))

    section(page, "Models")
    page.get_by_role("link", name=re.compile("^ppo, step")).first.click()
    with page.expect_download() as download:
        page.locator("a[download]").first.click()
    folder = tmp_path / "taken"
    with tarfile.open(download.value.path()) as archive:
        archive.extractall(folder, filter="data")
    (config,) = folder.rglob("config.json")
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    said = subprocess.run(
        [sys.executable, "-c", PLAIN, str(config.parent), asked[0]],
        cwd=tmp_path,
        env=environment | {"HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    plain = json.loads(said.stdout.splitlines()[-1])
    assert plain["parameters"] == tiny_llama().num_parameters()
    assert plain["foreign"] == []
    assert 1 <= len(plain["answer"]) <= 8
