"""The API reference as a page of ours, rendered from the OpenAPI schema: no script, no other host.

(Swagger and ReDoc want inline scripts and styles, which our content security policy refuses.)
"""

import json
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from ninja import NinjaAPI
from ninja.openapi.docs import DocsBase

_METHODS = ("get", "post", "put", "patch", "delete")


@dataclass(frozen=True, slots=True)
class Field:
    """A parameter, or a field of a body or an answer; `depth` is how far it is nested."""

    name: str
    kind: str
    is_required: bool
    text: str
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Operation:
    id: str
    method: str
    path: str
    summary: str
    text: str
    parameters: list[Field]
    body: list[Field]
    answers: list[tuple[str, str, list[Field]]]


class Reference(DocsBase):
    """django-ninja asks this for the page at `docs_url`."""

    def render_page(self, request: HttpRequest, api: NinjaAPI, **kwargs: Any) -> HttpResponse:
        schema = json.loads(json.dumps(api.get_openapi_schema(), default=str))
        groups: dict[str, list[Operation]] = {}
        for path, item in schema["paths"].items():
            for method in _METHODS:
                if method in item:
                    tag = (item[method].get("tags") or ["other"])[0]
                    groups.setdefault(tag, []).append(
                        _operation(schema, method, path, item[method])
                    )
        context = {
            "groups": sorted(groups.items()),
            "schema_url": self.get_openapi_url(api, kwargs),
            "error_fields": _fields(schema, {"$ref": "#/components/schemas/Error"}),
            "page_title": "API reference",
            "nav": "account",
        }
        return render(request, "api/reference.html", context)


def _operation(schema: dict, method: str, path: str, item: dict[str, Any]) -> Operation:
    parameters = [
        Field(
            name=p["name"],
            kind=f"{_kind(schema, p['schema'])}, in the {p['in']}",
            is_required=p.get("required", False),
            text=_text(p["schema"]) or p.get("description", ""),
        )
        for p in item.get("parameters", [])
    ]
    body = next(iter(item.get("requestBody", {}).get("content", {}).values()), {})
    answers = []
    for status, answer in sorted(item["responses"].items()):
        if status.startswith("2"):
            content = answer.get("content", {}).get("application/json", {})
            fields = _fields(schema, content.get("schema", {}))
            answers.append((status, answer.get("description", ""), fields))
    return Operation(
        id=item["operationId"],
        method=method.upper(),
        path=path,
        summary=item.get("summary", ""),
        text=item.get("description", ""),
        parameters=parameters,
        body=_fields(schema, body.get("schema", {})),
        answers=answers,
    )


def _resolve(schema: dict, node: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in node:
        node = schema["components"]["schemas"][node["$ref"].rsplit("/", 1)[-1]]
    return node


def _kind(schema: dict, node: dict[str, Any]) -> str:
    """A type in words: text, list of integer, one of a, b …"""
    node = _resolve(schema, node)
    if "enum" in node:
        return "one of " + ", ".join(str(value) for value in node["enum"])
    for combined in ("anyOf", "oneOf", "allOf"):
        if combined in node:
            return " or ".join(dict.fromkeys(_kind(schema, part) for part in node[combined]))
    kind = node.get("type", "anything")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        return "list of " + _kind(schema, node.get("items", {}))
    return {"date-time": "time"}.get(node.get("format", ""), kind)


def _text(node: dict[str, Any]) -> str:
    parts = [node.get("description", "")]
    if node.get("default") not in (None, ""):
        parts.append(f"default {node['default']}")
    for name, words in (
        ("minimum", "at least"),
        ("maximum", "at most"),
        ("maxLength", "at most this many characters:"),
    ):
        if name in node:
            parts.append(f"{words} {node[name]}")
    return "; ".join(part for part in parts if part)


def _fields(schema: dict, node: dict[str, Any], depth: int = 0) -> list[Field]:
    """The fields of an object, or of the objects of a list, three levels down."""
    node = _resolve(schema, node)
    if node.get("type") == "array":
        return _fields(schema, node.get("items", {}), depth)
    found = []
    required = node.get("required", ())
    for name, child in node.get("properties", {}).items():
        found.append(Field(name, _kind(schema, child), name in required, _text(child), depth))
        if depth < 2:
            found.extend(_fields(schema, child, depth + 1))
    return found
