"""What every page's frame shows. Values are computed when a template asks: fragments ask for none.

`nav` is the view's own context variable: the section that is current in the rail.
"""

from functools import cache
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from apps.accounts.models import Membership, Project, Role
from apps.accounts.selectors import memberships_of
from apps.common import registry
from apps.common.numbers import count

THEMES = {"system": _("system"), "light": _("light"), "dark": _("dark")}


def frame(request: HttpRequest) -> dict[str, Any]:
    user = getattr(request, "user", None)
    theme = user.theme if user is not None and user.is_authenticated else "system"
    names = list(THEMES)
    projects = cache(lambda: rail_projects(request))
    place = cache(lambda: _place(request, projects()))
    entries = cache(lambda: rail_nav(*place()))
    return {
        "active_project": getattr(request, "project", None),
        "role": getattr(request, "role", None),
        "theme": theme,
        "theme_name": THEMES[theme],
        "next_theme": names[(names.index(theme) + 1) % len(names)],
        "rail_projects": projects,
        "rail_project": lambda: place()[0],
        "rail_nav": entries,
        "rail_has_more": lambda: any(not item["is_tab"] for item in entries()),
        "rail_bell": cache(lambda: rail_bell(request, *place())),
        "setup_bar": cache(lambda: setup_bar(request)),
        "rail_overview": lambda: rail_overview(projects()),
    }


def rail_projects(request: HttpRequest) -> list[Membership]:
    user = getattr(request, "user", None)
    return memberships_of(user) if user is not None and user.is_authenticated else []


def _place(request: HttpRequest, memberships: list[Membership]) -> tuple[Project | None, str]:
    """The project the rail is about: the page's, else the one used last, else the only one."""
    if getattr(request, "project", None) is not None:
        return request.project, request.role
    last = request.session.get("project")
    for membership in memberships:
        if membership.project.slug == last or len(memberships) == 1:
            return membership.project, membership.role
    return None, ""


def rail_nav(project: Project | None, role: str) -> list[dict[str, Any]]:
    """The entries of the role's rail in the project, group by group."""
    if project is None:
        return []
    shown = cache(lambda when: when(project))  # entries of one kind share their condition
    return [
        {
            "label": item.label,
            "icon": item.icon,
            "section": item.section,
            "url": reverse(item.url_name, args=[project.slug]),
            "group": item.group,
            "is_tab": role in item.tabs,
        }
        for item in registry.nav_for(role)
        if item.when is None or shown(item.when)
    ]


def rail_bell(request: HttpRequest, project: Project | None, role: str) -> dict[str, Any] | None:
    """How much is new to this person in the project, and where it is told."""
    bell = registry.bell()
    if bell is None or project is None:
        return None
    n = bell.count(project, request.user, role)
    if n:
        new = ngettext("%(n)s new notification", "%(n)s new notifications", n)
        words = new % {"n": count(n)}
    else:
        words = gettext("Notifications")
    return {"url": reverse(bell.url_name, args=[project.slug]), "n": n, "words": words}


def rail_overview(memberships: list[Membership]) -> str:
    """The address of one's work in all projects; empty for people whose roles have none."""
    url_name = registry.overview_of([membership.role for membership in memberships])
    return reverse(url_name) if url_name else ""


def setup_bar(request: HttpRequest) -> list[dict[str, Any]]:
    """The steps of setting the project up, for its admins until they finish; on their pages only.

    Each step links to the page where it is done, which is the same page as ever after.
    """
    project = getattr(request, "project", None)
    if project is None or project.set_up_at is not None or request.role != Role.ADMIN:
        return []
    steps = registry.setup_steps()
    name = request.resolver_match.view_name if request.resolver_match else ""
    if not any(name == step.url_name or name in step.within for step in steps):
        return []
    urls = [reverse(step.url_name, args=[project.slug]) for step in steps]
    return [
        {
            "label": step.label,
            "url": url,
            "done": step.done(project),
            "current": name == step.url_name or name in step.within,
            "next": following,
        }
        for step, url, following in zip(steps, urls, [*urls[1:], ""], strict=True)
    ]
