"""`manage.py evaluate_checkpoint CHECKPOINT`: launch the evaluation of a policy."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.accounts.models import User
from apps.common.errors import DomainError
from apps.snapshots.models import Snapshot
from apps.training.models import Checkpoint
from apps.training.services import checkpoint_evaluate
from workers.contract.wire import JOB_QUEUES


class Command(BaseCommand):
    help = (
        "Evaluate a policy against the SFT model it comes from: its answers to the prompts of its "
        "run, by the reward it was trained on and by the held-out judge, where it had them. "
        "Prints the id of the run."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("checkpoint", help="id of the checkpoint (its page shows it)")
        parser.add_argument("--prompts", help="id of a frozen dataset to ask instead")
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
                prompts=self._prompts(model, options["prompts"]),
                seed=options["seed"],
                queue=options["queue"],
                user=self._user(options["user"]),
            )
        except DomainError as error:
            raise CommandError(error.message) from error
        self.stdout.write(run.pk)

    def _prompts(self, model: Checkpoint, key: str | None) -> Snapshot | None:
        if key is None:
            return None
        row = Snapshot.objects.filter(project=model.project, pk=key).first()
        if row is None:
            raise CommandError(f"The checkpoint's project has no dataset '{key}'.")
        return row

    def _user(self, name: str | None) -> User | None:
        if name is None:
            return None
        user = User.objects.filter(username=name).first()
        if user is None:
            raise CommandError(f"Nobody has the sign-in name '{name}'.")
        return user
