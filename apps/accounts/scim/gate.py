"""Who may ask, and which people are there to be asked about."""

import hmac
import json
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django_scim import exceptions
from django_scim.constants import SCIM_CONTENT_TYPE

from apps.common import rates
from apps.common.refusals import log_denied

MOST_AT_ONCE = 200  # people of one answer


class TokenCheck:
    """Around every view of SCIM: the bearer token of SCIM_TOKEN, without which there is none."""

    def __init__(self, view: Callable[..., HttpResponse]) -> None:
        self._view = view

    def __call__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not settings.SCIM_TOKEN:
            raise Http404
        said = request.headers.get("Authorization", "")
        if hmac.compare_digest(said.encode(), f"Bearer {settings.SCIM_TOKEN}".encode()):
            if request.method in {"POST", "PUT", "PATCH"} and not _is_object(request.body):
                return _answer(exceptions.BadRequestError("The body is no JSON object"))
            return self._view(request, *args, **kwargs)
        log_denied(request, 401, "SCIM without its token")
        taken = rates.take_unknown(request)
        if taken is not None and not taken.ok:
            raise rates.too_often(taken)
        answer = _answer(exceptions.AuthorizationError("This needs the token of SCIM_TOKEN"))
        answer["WWW-Authenticate"] = "Bearer"
        return answer


def _answer(error: exceptions.SCIMException) -> HttpResponse:
    return JsonResponse(error.to_dict(), status=error.status, content_type=SCIM_CONTENT_TYPE)


def _is_object(body: bytes) -> bool:
    try:
        return isinstance(json.loads(body), dict)
    except ValueError:
        return False


def visible(model: object) -> Callable[..., dict[str, Any]]:
    """Which accounts the directory sees: not those of imports, nor whom it has taken away."""

    def columns(request: HttpRequest, uuid: str | None = None) -> dict[str, Any]:
        if uuid is not None and not (uuid.isascii() and uuid.isdigit() and len(uuid) < 10):
            raise exceptions.NotFoundError(uuid)
        if _number(request.GET.get("count")) > MOST_AT_ONCE:
            raise exceptions.BadRequestError(
                f"count is {MOST_AT_ONCE} at most", scim_type="tooMany"
            )
        return {"is_imported": False, "erased_at": None, "deprovisioned_at": None}

    return columns


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() else 0
