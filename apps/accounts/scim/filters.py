"""By what people may be looked for."""

from typing import ClassVar

from django_scim.filters import UserFilterQuery


class PersonFilter(UserFilterQuery):
    attr_map: ClassVar = UserFilterQuery.attr_map | {
        ("externalId", None, None): "scim_external_id",
        ("displayName", None, None): "display_name",
        ("emails", None, None): "email",
        ("emails", "value", None): "email",
    }
