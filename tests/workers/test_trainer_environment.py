"""What a trainer gets of its machine: no password, no path that nobody listed."""

import json
import sys
from pathlib import Path

import pytest

from workers.contract.events import RecipeError
from workers.models.loading import named_model
from workers.supervisor.child import Trainer, trainer_environment

SECRETS = (
    *("SECRET_KEY", "SECRET_KEY_FALLBACKS", "DATABASE_URL", "REDIS_URL", "CACHE_URL"),
    *("EMAIL_URL", "METRICS_TOKEN", "PGPASSWORD", "SOMETHING_OF_TOMORROW"),
)
NEEDED = (
    *("CUDA_VISIBLE_DEVICES", "NCCL_DEBUG", "HF_HOME", "OMP_NUM_THREADS", "LC_ALL", "RAY_ADDRESS"),
    *("REWARD_TOKEN_OURS", "AWS_SECRET_ACCESS_KEY", "SCORE_CACHE_URL", "TRACKING"),
)


def test_a_trainer_sees_what_it_reads_and_no_secret_of_the_web_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*SECRETS, *NEEDED):
        monkeypatch.setenv(name, "x")
    seen = tmp_path / "seen.json"
    code = "import json, os, sys; json.dump(dict(os.environ), open(sys.argv[1], 'w'))"
    trainer = Trainer(
        [sys.executable, "-c", code, str(seen)], run="r", attempt=1, output=tmp_path / "log"
    )
    assert trainer.wait(60) == 0
    trainer.kill()
    environment = json.loads(seen.read_text())
    assert [name for name in SECRETS if name in environment] == []
    assert [name for name in NEEDED if name not in environment] == []
    assert {"PATH", "CONCORD_RUN", "CONCORD_ATTEMPT", "HF_HUB_OFFLINE"} <= environment.keys()


def test_whoever_runs_the_worker_adds_variables_by_name() -> None:
    ours = {"MY_CLUSTER": "a", "MY_PASSWORD": "b", "TRAINER_ENVIRONMENT": "MY_CLUSTER, OTHER"}
    assert trainer_environment(ours) == {"MY_CLUSTER": "a"}


def test_a_named_model_lies_in_a_listed_folder_or_on_a_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models, private = tmp_path / "models", tmp_path / "private"
    for folder in (models / "mine", private / "theirs", tmp_path / "workers"):
        folder.mkdir(parents=True)
    (models / "link").symlink_to(private / "theirs")
    monkeypatch.setenv("MODEL_FOLDERS", str(models))
    monkeypatch.chdir(tmp_path)
    assert named_model(str(models / "mine")) == models / "mine"
    assert named_model("org/model") == "org/model"
    refused = [
        *(str(private / "theirs"), str(private / "missing"), str(models), str(models / "link")),
        *(str(models / ".." / "private" / "theirs"), "private/theirs", "workers", "../x"),
    ]
    said = set()
    for name in refused:
        with pytest.raises(RecipeError) as raised:
            named_model(name)
        assert raised.value.kind == "model_not_allowed"
        said.add(raised.value.message)
    assert len(said) == 1, "the words are the same whether there is something or not"
