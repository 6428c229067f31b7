"""The demo's judges: its reward model, and with pretrained models the policy asked in words. They
are asked as anybody's judges are; what they are worth stands on their pages, good or bad."""

from collections.abc import Mapping
from typing import Any

from apps.accounts.models import User
from apps.common.errors import DomainError
from apps.evaluation.models import HeadToHead, Judge
from apps.evaluation.selectors.judges import HEAD_TO_HEAD, Scope
from apps.evaluation.services.judge_worth import judge_measure
from apps.evaluation.services.judges import judge_make
from apps.loop.demo import BATCH, Say
from apps.training.models import Run
from apps.training.selectors.runs import checkpoint_for_use

REWARD, PROMPTED = "Reward model", "SmolLM2, asked in words"
PAIRS = 600  # of the crowd's, which the reward model reads in seconds
PROMPTED_PAIRS, ATTACKED = 100, 4  # 135 M parameters on two cores: a second or two for each


def judges_ask(runs: Mapping[str, Run], found: HeadToHead | None, emil: User, say: Say) -> None:
    """Make the judges that are not there yet, and have them asked. runs: of a round, by stage;
    found: its head-to-head, beside which the reward model is laid too."""
    given: list[tuple[str, str, dict[str, Any], int, int]] = [("reward", REWARD, {}, PAIRS, 0)]
    if "policy" in runs:
        # Prompts of these pairs fit; long ones are counted as unreadable.
        words = (PROMPTED, {"max_prompt_length": 1024}, PROMPTED_PAIRS, ATTACKED)
        given.append(("policy", *words))
    for stage, name, config, pairs, attacked in given:
        run = runs.get(stage)
        model = checkpoint_for_use(run) if run is not None else None
        if run is None or model is None:
            continue
        if Judge.objects.filter(project=run.project, name=name).exists():
            continue
        try:
            version = judge_make(
                project=run.project, name=name, model=model, config=config, user=emil
            )
            judge_measure(
                version=version,
                scope=Scope("batch", BATCH),
                most=pairs,
                attacked=attacked,
                user=emil,
                queue=run.queue,
            )
            if found is not None and stage == "reward":
                judge_measure(
                    version=version,
                    scope=Scope(HEAD_TO_HEAD, found.pk),
                    share=1.0,
                    user=emil,
                    queue=run.queue,
                )
        except DomainError as error:
            say(f"judge {name}: {error.message}")
        else:
            say(f"judge {name}: asked about {pairs} of the crowd's pairs")
