"""The run page as a stream: what it would poll, rendered once for all who watch the same tab.

What is sent to all holds nothing of anybody: it is rendered for nobody in particular, in the time
zone of those who watch. The page puts its own CSRF token where `CSRF_PLACE` stands. A tab that
shows a person's own things is not sent: its watchers are told to fetch it.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import wraps
from io import BytesIO
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.core.handlers.asgi import ASGIRequest
from django.core.handlers.base import BaseHandler
from django.core.signals import request_started
from django.db import close_old_connections
from django.http import HttpRequest, QueryDict
from django.http.request import split_domain_port
from django.template.loader import render_to_string
from django.urls import Resolver404, resolve, reverse
from django.utils import timezone

from apps.accounts.reader import zone_of
from apps.common.streams import Admitted, Event, Scope
from apps.training.models import Run, RunEvent
from apps.training.selectors import pages
from apps.training.selectors.metrics import metric_cursor, metric_news
from apps.training.selectors.queueing import why_it_waits
from apps.training.views.metrics import series_json
from apps.training.views.runs import GROWING, live_context, tab_named

CSRF_PLACE = "csrf-token-of-the-page"
NEWS_POINTS = 500  # of each metric in one event
LONGEST_QUERY = 1000
OWN_PARAMETERS = ("seen",)  # of an address, not of what it shows
PERSONAL = {"samples"}  # tabs that show a person's own verdicts
# Events after which a tab must be fetched: what they add is not sent.
FETCHED_AFTER = {
    "charts": ("Alert", "Evidence"),
    "samples": ("Sample", "ReviewRequested"),
}
_TIMES = re.compile(r"(<time[^>]*>)[^<]*(?=</time>)")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Topic:
    """A tab of a run's page, as its address says, in a time zone."""

    run: str
    query: str
    zone: str


def _gives_back(method: Callable[..., T]) -> Callable[..., T]:
    """The thread's database connection goes back to the pool, or is closed."""

    @wraps(method)
    def inner(*args: Any) -> T:
        try:
            return method(*args)
        finally:
            close_old_connections()

    return inner


class RunFeed:
    """For `EventStreams`."""

    def __init__(self) -> None:
        self._handler = BaseHandler()
        self._handler.load_middleware()

    def admit(self, scope: Scope) -> Admitted | int:
        """Asks the site itself, with all its middleware, whether this request may see the run."""
        request = ASGIRequest(scope, BytesIO())
        try:
            found = resolve(request.path_info)
        except Resolver404:
            return 404
        if found.view_name != "training:run_stream":
            return 404
        request_started.send(sender=self.__class__, scope=scope)
        response = self._handler.get_response(request)
        response.close()
        if response.status_code != 200:
            return 401 if response.status_code == 302 else response.status_code
        query = request.GET.copy()
        for own in OWN_PARAMETERS:
            query.pop(own, None)
        topic = Topic(found.kwargs["run_id"], query.urlencode(), zone_of(request))
        if len(topic.query) > LONGEST_QUERY:
            return 400
        seen = request.headers.get("Last-Event-ID") or request.GET.get("seen", "")
        return Admitted(str(request.user.pk), topic, seen, _cross_origin(request))

    @_gives_back
    def states(self, topics: Collection[Topic]) -> dict[Topic, str]:
        found = pages.runs_seen({topic.run for topic in topics})
        return {topic: found[topic.run] for topic in topics if topic.run in found}

    @_gives_back
    def reader(self, topic: Topic) -> "RunReader":
        return RunReader(topic)


def _cross_origin(request: HttpRequest) -> tuple[tuple[bytes, bytes], ...]:
    """Without a proxy the page has another port of the same host, and says so as its origin."""
    origin = request.headers.get("Origin", "")
    host = split_domain_port(request.get_host())[0]
    if settings.BEHIND_PROXY or origin != f"{request.scheme}://{host}:{settings.PORT}":
        return ()
    return (
        (b"access-control-allow-origin", origin.encode()),
        (b"access-control-allow-credentials", b"true"),
        (b"vary", b"Origin"),
    )


class RunReader:
    """Events of one topic. `page`: HTML that replaces the head and, where it has changed, the tab;
    `fetch` where the watcher must ask for its tab. `points`: new points, as of metrics.json.
    `stale`: fetch the curves."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        run = self._run()
        self._tab = tab_named(QueryDict(topic.query).get("tab", ""), run)
        self._body = ""
        self._cursor = metric_cursor(run) if self._tab == "charts" else ""
        self._last = self._newest(run)
        self.ended = not run.is_live

    def _run(self) -> Run:
        return Run.objects.select_related("project", "created_by").get(pk=self._topic.run)

    @_gives_back
    def news(self) -> list[Event]:
        run = self._run()
        self.ended = not run.is_live
        fetch = self._must_fetch(run)
        events = [self._page(run, whole=False, fetch=fetch)]
        if self._tab == "charts":
            events += self._points(run, fetch)
        return events

    @_gives_back
    def whole(self) -> list[Event]:
        run = self._run()
        self.ended = not run.is_live
        page = self._page(run, whole=True, fetch=self._tab in PERSONAL)
        return [page, Event("stale", {})] if self._tab == "charts" else [page]

    def _must_fetch(self, run: Run) -> bool:
        """Whether something has come that is not sent."""
        before, self._last = self._last, self._newest(run)
        return self._last != before or (self.ended and self._tab in FETCHED_AFTER)

    def _newest(self, run: Run) -> tuple[int, int] | None:
        kinds = FETCHED_AFTER.get(self._tab)
        if kinds is None:
            return None
        rows = RunEvent.objects.filter(run=run, type__in=kinds).order_by("-attempt", "-seq")
        return rows.values_list("attempt", "seq").first()

    def _points(self, run: Run, fetch: bool) -> list[Event]:
        found = metric_news(run=run, cursor=self._cursor, max_points=NEWS_POINTS)
        before, self._cursor = self._cursor, found.cursor
        again = found.discard_after is not None or not before or self.ended
        if fetch or again:
            return [Event("stale", {})]
        return [Event("points", {"series": series_json(found.series)}, adds=True)]

    def _page(self, run: Run, *, whole: bool, fetch: bool) -> Event:
        html = self._render(run)
        body = _TIMES.sub(r"\1", html.partition('<div id="run-body"')[2])
        if body == self._body and not whole:
            html = html.partition('<div id="run-body"')[0]
        elif not whole:
            self._body = body
        return Event("page", {"html": html, "fetch": fetch and self._tab in PERSONAL})

    def _render(self, run: Run) -> str:
        request: Any = HttpRequest()
        request.method, request.GET = "GET", QueryDict(self._topic.query)
        request.path = reverse("training:run", args=[run.project.slug, run.pk])
        request.user, request.project, request.role = AnonymousUser(), run.project, ""
        waits = why_it_waits(run)
        with timezone.override(ZoneInfo(self._topic.zone)):
            context = live_context(
                request,
                run,
                tab=self._tab,
                waits=waits,
                seen=pages.run_seen(run, waits),
                with_tab=self._tab in GROWING - PERSONAL,
            )
            return render_to_string(
                "training/_live.html", context | {"csrf_token": CSRF_PLACE}, request
            )
