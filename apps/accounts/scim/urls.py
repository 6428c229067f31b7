"""The addresses of SCIM 2.0 that there are: people, and what is said of the service itself.

`django_scim` looks addresses up in this namespace.
"""

from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest
from django.urls import path
from django_scim import views

from apps.accounts.scim.people import Person


class PeopleTypes(views.ResourceTypesView):
    def type_dict_by_type_id(self, request: HttpRequest) -> dict[str, Any]:
        said = Person.resource_type_dict(request)
        return {said["id"]: said}


app_name = "scim"
_people = login_not_required(views.UsersView.as_view())
_types = login_not_required(PeopleTypes.as_view())
_schemas = login_not_required(views.SchemasView.as_view())
urlpatterns = [
    path("Users", _people, name="users"),
    path("Users/<str:uuid>", _people, name="users"),
    path("Users/.search", login_not_required(views.UserSearchView.as_view()), name="users-search"),
    path(
        "ServiceProviderConfig",
        login_not_required(views.ServiceProviderConfigView.as_view()),
        name="service-provider-config",
    ),
    path("ResourceTypes", _types, name="resource-types"),
    path("ResourceTypes/<str:uuid>", _types, name="resource-types"),
    path("Schemas", _schemas, name="schemas"),
    path("Schemas/<str:uuid>", _schemas, name="schemas"),
]
