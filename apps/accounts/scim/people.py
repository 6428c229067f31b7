"""An account as a resource of SCIM."""

from collections.abc import Mapping
from typing import Any, ClassVar

from django.http import HttpRequest
from django_scim import exceptions
from django_scim.adapters import SCIMUser

from apps.accounts import services
from apps.accounts.models import User
from apps.common.errors import Conflict, DomainError

_TAKEN = {"username_taken", "email_taken"}


class Person(SCIMUser):
    """An account as the directory sees it. What it says is gathered, and stored by `save`."""

    id_field = "id"
    groups: ClassVar[list[dict[str, Any]]] = []

    def __init__(self, obj: User, request: HttpRequest | None = None) -> None:
        super().__init__(obj, request=request)
        self._said: dict[str, Any] = {}

    @property
    def display_name(self) -> str:
        return self.obj.display_name or self.obj.username

    @property
    def emails(self) -> list[dict[str, Any]]:
        return [{"value": self.obj.email, "primary": True}] if self.obj.email else []

    def validate_dict(self, d: Mapping[str, Any]) -> None:
        """Each attribute is looked at where it is gathered."""

    def from_dict(self, d: Mapping[str, Any]) -> None:
        """The whole person (POST and PUT): what is not said is empty, but for `active`."""
        nothing = dict.fromkeys(_TEXTS, "") | {"emails": []}
        for name, value in (*nothing.items(), *d.items()):
            self._gather(name, value)

    def handle_operations(self, operations: Any) -> None:
        if not isinstance(operations, list) or not all(isinstance(one, dict) for one in operations):
            raise exceptions.BadRequestError("Operations is a list of objects")
        for one in operations:
            op, path, value = str(one.get("op", "")).lower(), one.get("path"), one.get("value")
            if op not in {"add", "replace", "remove"}:
                raise exceptions.BadRequestError(f"There is no operation {op}")
            if op == "remove":
                if not isinstance(path, str) or not path:
                    raise exceptions.BadRequestError("remove needs a path", scim_type="noTarget")
                value = [] if path.lower().startswith("emails") else ""
            if isinstance(path, str) and path:
                self._gather(path, value)
            elif isinstance(value, dict):
                for name, part in value.items():
                    self._gather(name, part)
            else:
                raise exceptions.BadRequestError("Without a path the value is an object")
        self.save()

    def _gather(self, name: str, value: Any) -> None:
        """One attribute, by its name or path. What Concord does not keep is passed over."""
        low = name.lower().removeprefix("urn:ietf:params:scim:schemas:core:2.0:user:")
        if low == "name":
            if not isinstance(value, dict):
                raise _bad("name", "an object")
            for part, text in value.items():
                self._gather(f"name.{part}", text)
        elif low == "active":
            self._said["is_active"] = _truth(value)
        elif low.startswith("emails"):
            self._said["email"] = _address(value)
        elif low in _TEXTS:
            if value is not None and (not isinstance(value, str) or "\0" in value):
                raise _bad(name, "text")
            self._said[_TEXTS[low]] = (value or "").strip()

    def save(self) -> None:
        """Raises what SCIM answers: 409 where somebody has the name, 400 naming what is wrong."""
        try:
            self.obj = self._stored()
        except Conflict as error:
            kind = "uniqueness" if error.code in _TAKEN else None
            raise exceptions.IntegrityError(error.message, scim_type=kind) from error
        except DomainError as error:
            words = f"{error.field}: {error.message}" if error.field else error.message
            raise exceptions.BadRequestError(words, scim_type="invalidValue") from error

    def delete(self) -> None:
        try:
            services.person_deprovision(user=self.obj)
        except Conflict as error:
            raise exceptions.IntegrityError(error.message) from error

    def _stored(self) -> User:
        user, said = self.obj, dict(self._said)
        formatted = said.pop("formatted", "")
        now = {
            "username": user.username,
            "external_id": user.scim_external_id,
            "display_name": user.display_name,
            "first_name": user.first_name,
            "last_name": user.last_name,
            "email": user.email,
            "is_active": user.is_active,
        }
        then = now | said
        if formatted and not said.get("display_name"):
            then["display_name"] = formatted
        elif then["display_name"] in {"", _full_name(now)}:  # nobody chose another
            then["display_name"] = _full_name(then)
        wanted = services.Provisioned(**then)
        if user.pk is None:
            return services.person_provision(said=wanted)
        return services.person_change(user=user, said=wanted)


def _full_name(names: Mapping[str, Any]) -> str:
    return f"{names['first_name']} {names['last_name']}".strip()


_TEXTS = {
    "username": "username",
    "externalid": "external_id",
    "displayname": "display_name",
    "name.formatted": "formatted",
    "name.givenname": "first_name",
    "name.familyname": "last_name",
}


def _truth(value: Any) -> bool:
    """Entra sends "True" and "False"."""
    if isinstance(value, str) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise _bad("active", "true or false")
    return value


def _address(value: Any) -> str:
    """The primary address, else the first; of a path into the list it is the text itself."""
    if isinstance(value, str):
        return value.strip()
    found = [value] if isinstance(value, dict) else value
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise _bad("emails", "a list of objects")
    found = sorted(found, key=lambda one: one.get("primary") is not True)
    text = found[0].get("value") if found else ""
    if text is not None and not isinstance(text, str):
        raise _bad("emails", "a list with texts as values")
    return (text or "").strip()


def _bad(name: str, kind: str) -> exceptions.BadRequestError:
    return exceptions.BadRequestError(f"{name} is {kind}", scim_type="invalidValue")
