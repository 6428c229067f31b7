"""A model that answers at an OpenAI-compatible server becomes a checkpoint that runs may ask.

The checkpoint is the server's settings, and the files of a tokenizer where one is named:
docs/servers.md. Nothing is saved before the server has given one short answer.
"""

from dataclasses import replace
from typing import Any

from workers.config import settings_for
from workers.config.server import ServedModelSettings
from workers.context import RunContext
from workers.contract.events import Fault, RecipeError
from workers.models.loading import load_tokenizer, named_model
from workers.rollouts.local import Sampling
from workers.servers.answers import Served, read_served, write_served
from workers.servers.asking import Cancelled

CONFIG = ServedModelSettings
GREETING = [{"role": "user", "content": "Say hello."}]
SHOWN = 200  # characters of the answer
PATIENCE_S, RETRIES = 60.0, 1  # at most: other short runs wait for this one


def run(context: RunContext) -> dict[str, Any]:
    """Ask as runs will ask, save, and tell who answered."""
    settings: ServedModelSettings = settings_for("served", context.spec.config)
    context.progress(0, None, "asking the server")
    named = settings.tokenizer
    tokenizer = None if named is None else load_tokenizer(named_model(named, "tokenizer"))
    folder = context.workdir / "model"
    write_served(folder, settings, tokenizer)
    own, tokenizer = read_served(folder)
    seconds, retries = min(own.timeout_s, PATIENCE_S), min(own.retries, RETRIES)
    own = replace(own, timeout_s=seconds, retries=retries)
    served = Served(context, own, tokenizer, has_weights=False)
    try:
        (said,) = served.answer([GREETING], Sampling(16, temperature=0.0, seed=context.spec.seed))
    except Cancelled:
        return {"step": 0}
    except RecipeError as error:
        if error.kind != "inference_server_answer":
            raise  # such as a server that is down for now
        raise RecipeError("inference_server_refused", Fault.CONFIGURATION, error.message) from error
    context.progress(0, None, "saving")
    context.save_checkpoint(folder, step=0, tags=["last", "final"], metrics={})
    told = served.as_summary()
    context.log(f"Registered the model {settings.model}, which answers at {told['at']}.")
    return {
        "step": 0,
        "registered_as": "a served model",
        "served_model": settings.model,
        "at": told["at"],
        "says": told.get("says", ""),
        "said": said.text[:SHOWN],
    }
