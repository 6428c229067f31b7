"""How a session becomes a person."""

from typing import Any

from django.contrib.auth.backends import ModelBackend

from apps.accounts import identity
from apps.accounts.models import User


class SessionBackend(ModelBackend):
    """Django's own, with the row of the person read by a prepared statement."""

    def get_user(self, user_id: Any) -> User | None:
        user = identity.user_get(user_id)
        return user if user is not None and self.user_can_authenticate(user) else None
