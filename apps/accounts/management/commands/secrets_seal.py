"""`manage.py secrets_seal`: seal every secret in the database with the present SECRET_KEY."""

from typing import Any

from allauth.mfa.models import Authenticator
from django.apps import apps
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from apps.common.errors import Conflict
from apps.common.sealing import MARK, SealedField, seal, unseal


class Command(BaseCommand):
    help = (
        "Seal every secret in the database again with the present SECRET_KEY after a change; "
        "until then its former value must stand in SECRET_KEY_FALLBACKS. May be run again."
    )

    _closed = 0  # of those that no present key opens

    def handle(self, *args: Any, **options: Any) -> None:
        with transaction.atomic():
            n = sum(self._model(model) for model in apps.get_models()) + self._factors()
        self.stdout.write(f"{n:,} secrets are sealed with the present SECRET_KEY.")
        if self._closed:
            raise CommandError(
                f"{self._closed:,} were sealed under a key that is in neither SECRET_KEY nor "
                "SECRET_KEY_FALLBACKS, and stay as they are."
            )

    def _model(self, model: Any) -> int:
        names = [field.name for field in model._meta.fields if isinstance(field, SealedField)]
        rows = list(model._base_manager.select_for_update()) if names else []
        for row in rows:
            row.save(update_fields=names)
        texts = [text for row in rows for name in names if (text := getattr(row, name))]
        closed = sum(text.startswith(MARK) for text in texts)
        self._closed += closed
        return len(texts) - closed

    def _factors(self) -> int:
        n = 0
        for one in Authenticator.objects.select_for_update():
            sealed = {
                k: v for k, v in one.data.items() if isinstance(v, str) and v[: len(MARK)] == MARK
            }
            try:
                one.data |= {name: seal(unseal(value)) for name, value in sealed.items()}
            except Conflict:
                self._closed += len(sealed)
                continue
            one.save(update_fields=["data"])
            n += len(sealed)
        return n
