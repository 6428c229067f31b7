"""`manage.py evaluate_checkpoint CHECKPOINT`: launch the evaluation of a policy."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.accounts.models import User
from apps.common.errors import DomainError
from apps.training.models import Checkpoint
from apps.training.selectors.pages import input_resolve
from apps.training.services import checkpoint_evaluate
from apps.training.services.kinds import Input
from workers.contract.wire import JOB_QUEUES

MODELS = {
    "sft": "the model to compare with",
    "reward": "what the policy was trained to please",
    "judge": "a reward model it never met",
}


class Command(BaseCommand):
    help = (
        "Evaluate a policy against the SFT model it comes from: its answers to the prompts of its "
        "run, by the reward it was trained on and by the held-out judge, where it had them. "
        "Prints the id of the run."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("checkpoint", help="id of the checkpoint (its page shows it)")
        parser.add_argument("--prompts", help="id of a frozen dataset to ask instead")
        for role, what in MODELS.items():
            parser.add_argument(f"--{role}", help=f"id of a checkpoint: {what}")
        parser.add_argument("--seed", type=int, help="of the sampling (default: its run's)")
        parser.add_argument("--queue", choices=JOB_QUEUES, default="", help="(default: its run's)")
        parser.add_argument("--user", help="sign-in name of the person it is launched for")

    def handle(self, *args: Any, **options: Any) -> None:
        model = (
            Checkpoint.objects.select_related("run", "project")
            .filter(pk=options["checkpoint"])
            .first()
        )
        if model is None:
            raise CommandError(f"There is no checkpoint '{options['checkpoint']}'.")
        try:
            run = checkpoint_evaluate(
                checkpoint=model,
                inputs=self._inputs(model, options),
                seed=options["seed"],
                queue=options["queue"],
                user=self._user(options["user"]),
            )
        except DomainError as error:
            raise CommandError(error.message) from error
        self.stdout.write(run.pk)

    def _inputs(self, model: Checkpoint, options: dict[str, Any]) -> dict[str, Input]:
        """What was named on the command line, of the checkpoint's own project."""
        named: dict[str, Input] = {}
        for role in ("prompts", *MODELS):
            if not (key := options[role]):
                continue
            kind = "snapshot" if role == "prompts" else "checkpoint"
            named[role] = input_resolve(model.project, f"{kind}:{key}")
        return named

    def _user(self, name: str | None) -> User | None:
        if name is None:
            return None
        user = User.objects.filter(username=name).first()
        if user is None:
            raise CommandError(f"Nobody has the sign-in name '{name}'.")
        return user
