"""What the service says that it can do."""

from typing import Any

from django_scim.models import SCIMServiceProviderConfig

from apps.accounts.scim.gate import MOST_AT_ONCE


class Abilities(SCIMServiceProviderConfig):
    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {
            "changePassword": {"supported": False},
            "filter": {"supported": True, "maxResults": MOST_AT_ONCE},
        }
