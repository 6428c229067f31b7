"""The API's common ground: one factory, one shape of error, errors documented for every operation.

An error is JSON: `code` (stable, for programs), `message` (a sentence, for people), and where it
applies `field`, `row` (1-based, of a bulk input) and `errors` (all of them, when there are more).
Unexpected exceptions are logged and answered with a 500 that says nothing about their inside.
"""

import json
import logging
import re
from collections.abc import Callable
from typing import Any

import pydantic
from django.core.exceptions import PermissionDenied
from django.core.exceptions import ValidationError as DjangoValidationError
from django.db import connection
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.urls import URLPattern, path, re_path
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError
from ninja.openapi.docs import DocsBase
from ninja.parser import Parser

from apps.common.errors import DomainError
from apps.common.refusals import error_body, explain, log_known, note_reason, unreadable
from apps.common.transactions import FailedStatement

logger = logging.getLogger(__name__)
_FAILED = "concord.failed_statement"  # of a request's META

ERROR_SCHEMA: dict[str, Any] = {
    "title": "Error",
    "type": "object",
    "required": ["code", "message"],
    "properties": {
        "code": {"type": "string", "description": "stable, for programs"},
        "message": {"type": "string", "description": "a sentence, for people"},
        "field": {"type": ["string", "null"], "description": "the field or parameter at fault"},
        "row": {"type": ["integer", "null"], "description": "1-based row of a bulk input"},
        "details": {"description": "more, where there is more"},
        "errors": {
            "type": "array",
            "description": "every error of an input that did not validate",
            "items": {
                "type": "object",
                "properties": {
                    "field": {"type": ["string", "null"]},
                    "row": {"type": ["integer", "null"]},
                    "message": {"type": "string"},
                },
            },
        },
    },
}
ERROR_RESPONSES = {
    400: "The request does not fit: see code and field",
    401: "No valid token and no session",
    403: "Your role or your token's scope does not allow this",
    404: "There is no such thing, or not for you",
    409: "The thing is in a state that does not allow this, or has changed meanwhile",
    413: "More was sent than this address accepts",
    422: "A field is missing or has a wrong type",
    429: "Too many of your requests at once: wait as Retry-After says",
    503: (
        "Something this needs does not answer, or is full (`unavailable`, `database_unavailable`, "
        "`disk_full`, `maintenance`), or somebody else is changing the same rows (`locked`): try "
        "again as Retry-After says. Without it, `statement_too_long`: the database did not finish "
        "in the time it is given, and nothing was changed; ask for less at once"
    ),
}


class Api(NinjaAPI):
    """NinjaAPI whose every operation documents the errors it may answer with."""

    _schema: Any = None

    def get_openapi_schema(self, **kwargs: Any) -> Any:
        """Made once: it takes a fifth of a second and never changes while a process lives."""
        if self._schema is None:
            self._schema = self._make_schema(**kwargs)
        return self._schema

    def _make_schema(self, **kwargs: Any) -> Any:
        schema = super().get_openapi_schema(**kwargs)
        schema.setdefault("components", {}).setdefault("schemas", {})["Error"] = ERROR_SCHEMA
        content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
        for item in schema["paths"].values():
            for operation in item.values():
                for status, text in ERROR_RESPONSES.items():
                    operation["responses"].setdefault(
                        status, {"description": text, "content": content}
                    )
        return schema


class WholeText(Parser):
    """Refuses JSON whose escapes spell half a character, which no database can store."""

    _SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

    def parse_body(self, request: HttpRequest) -> Any:
        value = super().parse_body(request)
        if self._SURROGATE.search(request.body):
            try:
                json.dumps(value, ensure_ascii=False).encode()
            except UnicodeEncodeError:
                raise HttpError(400, "A text holds half a character (a lone surrogate).") from None
        return value


def api_make(*, title: str, version: str, description: str, docs: DocsBase) -> Api:
    """An empty API with our errors; the caller mounts the routers."""
    api = Api(
        title=title,
        version=version,
        description=description,
        docs=docs,
        urls_namespace="api",
        parser=WholeText(),
    )
    for exception, handler in _HANDLERS.items():
        api.add_exception_handler(exception, _bind(api, handler))
    return api


def api_urls(api: Api) -> tuple[list[URLPattern], str, str]:
    """The API's patterns: outside the sign-in redirect (each operation authenticates by itself),
    with JSON also for unknown paths and methods."""
    patterns, app_name, namespace = api.urls
    for pattern in patterns:
        if pattern.name != "openapi-view":  # the reference is a page for people who are signed in
            pattern.callback = _json_only(pattern.callback)
    patterns = [p for p in patterns if p.name != "api-root"]
    patterns.append(path("", _unknown, name="api-root"))
    patterns.append(re_path(r"^.*$", _unknown, name="unknown"))
    return patterns, app_name, namespace


def _json_only(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    def inner(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        method = request.method
        if method == "HEAD":  # the server sends the head of this answer alone
            request.method = "GET"
        failed = request.META[_FAILED] = FailedStatement()
        try:
            with connection.execute_wrapper(failed):
                response = view(request, *args, **kwargs)
        except Http404:
            return _unknown(request)
        finally:
            request.method = method
        if response.status_code == 405:
            allowed = response.headers.get("Allow", "")
            body = error_body("method_not_allowed", f"Use one of: {allowed}.")
            return JsonResponse(body, status=405, headers={"Allow": allowed})
        return response

    inner.csrf_exempt = True
    inner.login_required = False
    return inner


def _unknown(request: HttpRequest) -> HttpResponse:
    return JsonResponse(error_body("not_found", f"There is no {request.path} here."), status=404)


_unknown.csrf_exempt = True
_unknown.login_required = False


# --- exceptions to answers ---------------------------------------------------------------------

Answer = tuple[int, dict[str, Any]]


def _domain(error: DomainError) -> Answer:
    more = {"field": error.field, "row": error.row}
    if error.details is not None:
        more["details"] = error.details
    return error.status, error_body(error.code, error.message, **more)


def _not_valid(error: ValidationError) -> Answer:
    """422 with every error; `row` when the input is a list, `field` without its place in it."""
    found = [_place(item) for item in error.errors]
    first = found[0] if found else {"field": None, "row": None, "message": "invalid input"}
    where = f"row {first['row']}: " if first["row"] else ""
    name = f"{first['field']}: " if first["field"] else ""
    more = {"field": first["field"], "row": first["row"], "errors": found}
    return 422, error_body("invalid_input", f"{where}{name}{first['message']}", **more)


def _place(item: dict[str, Any]) -> dict[str, Any]:
    # loc is (source, parameter, …): the source is no field, a body parameter's name is ours alone
    location = [part for part in item["loc"][1:] if part != "payload"]
    row = next((part + 1 for part in location if isinstance(part, int)), None)
    names = [str(part) for part in location if not isinstance(part, int)]
    return {"field": ".".join(names) or None, "row": row, "message": item["msg"]}


def _model_invalid(error: DjangoValidationError) -> Answer:
    if hasattr(error, "error_dict"):
        field, messages = next(iter(error.message_dict.items()))
        return 400, error_body("invalid", messages[0], field=field)
    return 400, error_body("invalid", error.messages[0])


def _unauthenticated(error: AuthenticationError) -> Answer:
    text = str(error)
    if text == "Unauthorized":
        text = "Send a token in the header 'Authorization: Bearer …', or sign in."
    return 401, error_body("unauthenticated", text)


def _http(error: HttpError) -> Answer:
    codes = {400: "invalid", 403: "forbidden", 404: "not_found", 429: "too_many_requests"}
    code = codes.get(error.status_code, "http_error")
    return error.status_code, error_body(code, str(error))


def _missing(_error: Http404) -> Answer:
    return 404, error_body("not_found", "There is no such thing, or not for you.")


def _refused(error: PermissionDenied) -> Answer:
    return 403, error_body("forbidden", str(error) or "You may not do this.")


def _cause(request: HttpRequest, error: Exception) -> Exception:
    """Pydantic reads the rows of an answer and keeps of their errors nothing but the words."""
    failed: FailedStatement | None = request.META.get(_FAILED)
    if isinstance(error, pydantic.ValidationError) and failed and failed.error:
        return failed.error
    return error


def _unexpected(error: Exception) -> Answer:
    logger.error("API error", exc_info=error)
    return 500, error_body("internal", "Something broke on our side. It was logged.")


_HANDLERS: dict[type[Exception], Callable[[Any], Answer]] = {
    DomainError: _domain,
    ValidationError: _not_valid,
    DjangoValidationError: _model_invalid,
    AuthenticationError: _unauthenticated,
    HttpError: _http,
    Http404: _missing,
    PermissionDenied: _refused,
    Exception: _unexpected,
}


def _bind(api: Api, handler: Callable[[Any], Answer]) -> Callable[..., HttpResponse]:
    def answer(request: HttpRequest, error: Any) -> HttpResponse:
        cause = _cause(request, error)
        if handler is _unexpected and (known := unreadable(error) or explain(cause)):
            if known.status >= 500:
                log_known(logger, known, error, request.path)
            error, status_and_body = known, _domain(known)
        else:
            status_and_body = handler(error)
        status, body = status_and_body
        response = api.create_response(request, body, status=status)
        note_reason(request, body["code"])
        if (seconds := getattr(error, "retry_after", None)) is not None:
            response["Retry-After"] = str(seconds)
        if status == 401:
            response["WWW-Authenticate"] = 'Bearer realm="concord"'
        return response

    return answer
