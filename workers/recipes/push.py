"""A model is uploaded to a hub, by the worker that has the token.

Inputs: `model`, and `base`, the registered model that it began as, whose licence goes along. The
token is read from HF_TOKEN of this environment and is in no job, log or page. What goes up is what
a download holds (`workers.artifacts`).
"""

import json
import os
from typing import Any, NoReturn

import httpx2
from huggingface_hub import CommitOperationAdd, HfApi, is_offline_mode
from huggingface_hub.errors import HfHubHTTPError

from workers.artifacts import CARD, MANIFEST, model_files, papers
from workers.config import settings_for
from workers.config.inference import PushSettings
from workers.context import RunContext
from workers.contract.events import Fault, RecipeError

CONFIG = PushSettings
TOKEN = "HF_TOKEN"  # noqa: S105 — the name of a variable


def run(context: RunContext) -> dict[str, Any]:
    """Check, upload in one commit, and tell where it is."""
    settings: PushSettings = settings_for("push", context.spec.config)
    token = os.environ.get(TOKEN, "")
    if is_offline_mode():
        refuse("this worker may not reach a hub; start one with HF_HUB_OFFLINE=0")
    if not token:
        refuse(f"this worker has no token of a hub; set {TOKEN} in its environment")
    files = _files(context, settings)
    context.progress(0, None, "uploading")
    if context.should_stop() == "cancel":
        return {"step": 0}
    hub = HfApi(token=token)
    try:
        made = hub.create_repo(settings.repo, private=settings.private, exist_ok=True)
        commit = hub.create_commit(
            made.repo_id,
            [CommitOperationAdd(name, source) for name, source in files.items()],
            commit_message=f"Upload run {context.spec.run}",
        )
    except HfHubHTTPError as error:
        if error.response is not None and error.response.status_code < 500:
            refuse(f"the hub refuses '{settings.repo}': {error.server_message or error}")
        raise _unreachable(error) from error
    except (httpx2.HTTPError, RuntimeError) as error:  # the latter around an upload
        raise _unreachable(error) from error
    context.log(f"Uploaded {len(files)} files: {commit.commit_url}")
    return {"step": 0, "repo": made.repo_id, "url": commit.commit_url, "files": len(files)}


def refuse(why: str) -> NoReturn:
    raise RecipeError("push_refused", Fault.CONFIGURATION, why)


def _unreachable(error: Exception) -> RecipeError:
    told = f"the hub does not answer: {error}"
    return RecipeError("hub_unreachable", Fault.MACHINE, told, retryable=True)


def _files(context: RunContext, settings: PushSettings) -> dict[str, str | bytes]:
    """{name in the repository: its file, or its content}."""
    folder = context.input_path("model")
    found = model_files(_manifest(context, "model"), settings.part)
    if not any(name.endswith(".safetensors") for name in found):
        refuse(f"part: this model has no part '{settings.part}'; it was trained without adapters")
    files: dict[str, str | bytes] = {name: str(folder / source) for name, source in found.items()}
    if (base := context.spec.input("base")) is not None:
        theirs = _manifest(context, "base")
        for name in papers(theirs):
            content = context.store.read_bytes(f"{base.uri}/{name}", sha256=theirs[name])
            files.setdefault(name, content)
    if settings.card:
        files[CARD] = settings.card.encode()
    return files


def _manifest(context: RunContext, role: str) -> dict[str, str]:
    ref = context.spec.input(role)
    assert ref is not None  # noqa: S101 — whoever asks has looked
    text = context.store.read_bytes(f"{ref.uri}/{MANIFEST}", sha256=ref.sha256)
    found: dict[str, str] = json.loads(text)
    return found
