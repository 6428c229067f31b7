"""Where each millisecond of a page cycle goes: the steps of one request, web side and PostgreSQL.

One annotator votes through the whole WSGI application in this process (session, CSRF token,
membership check, form in, HTML out, connection pool as `manage.py up` has it). Times are CPU time,
which other work on the machine changes less than the clock: of this thread for the web side, and
PostgreSQL's own account of each statement (log_statement_stats). Texts come from the cache, as two
out of three showings of a pair do; what a first showing adds is a row of its own.

Not in here: the HTTP server and its sockets, and the processes' waiting for each other, which
B=labeling has in its totals. The alternative of the same kind is there too.

Run: python -m benchmarks.labeling_cycle [--cycles 400]
"""

import argparse
import io
import os
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from benchmarks.load.stages import Stages
from benchmarks.report import print_report, versions
from benchmarks.site import site

REST = "URL, middleware, headers, request and response objects"
STEPS: dict[str, tuple[str, ...]] = {
    "connection from the pool and back": (
        "django.db.backends.base.base.BaseDatabaseWrapper.connect",
        "django.db.backends.base.base.BaseDatabaseWrapper.close",
    ),
    "session from Redis, person": ("django.contrib.auth.get_user",),
    "membership and project": ("apps.accounts.permissions.membership_get",),
    "form": (
        "django.forms.forms.BaseForm.__init__",
        "django.forms.forms.BaseForm.full_clean",
    ),
    "vote: lock, read, check": ("apps.labeling.services.vote_cast",),
    "vote: store and count": ("apps.labeling.services.votes.vote_write",),
    "decision": ("apps.labeling.services.answers.decision_store",),
    "next pair": ("apps.labeling.services.leasing.draw",),
    "commit": ("django.db.backends.base.base.BaseDatabaseWrapper.commit",),
    "what remains, from Redis": ("apps.labeling.selectors.remaining_for",),
    "texts as HTML, from Redis": ("apps.labeling.screens.label.texts_html",),
    "what the page shows": (
        "apps.labeling.screens.label.context",
        "apps.labeling.screens.label.bar_html",
    ),
    "template": ("django.template.loader.render_to_string",),
}
# The step a statement belongs to, by a word of it.
STATEMENTS = {
    "from accounts_user": "session from Redis, person",
    "from accounts_membership join": "membership and project",
    "for no key update of s, c": "vote: lock, read, check",
    "insert into labeling_vote": "vote: store and count",
    "insert into labeling_decision": "decision",
    "with own as": "next pair",
    "COMMIT": "commit",
}
FIELDS = re.compile(r'<input type="hidden" name="(\w+)" value="([^"]*)"')


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--cycles", type=int, default=400)
    cycles = arguments.parse_args().cycles
    os.environ["DATABASE_POOL"] = "1"
    with site() as var:
        from apps.labeling.models import Prompt, Response
        from apps.labeling.rendering import texts_html
        from benchmarks.load import projects
        from benchmarks.load.statement_costs import costs

        played = projects.project_make("cycle", pairs=4 * cycles, annotators=2)
        cycle = cycles_of(played)
        repeat(cycle, 50)  # plans, templates and pools are warm
        cold_ms = repeat(cycle, cycles // 4)
        for kind in (Prompt, Response):
            texts_html(m[0]["content"] for m in kind.objects.values_list("brief", flat=True))
        warm_ms = repeat(cycle, cycles)
        stages = Stages()
        with stages.wrapping(STEPS):
            whole = stages.timed(REST, cycle)
            repeat(whole, cycles)
        with costs(var) as by_statement:
            repeat(cycle, cycles)
    postgres: dict[str, float] = defaultdict(float)
    for statement, took in by_statement.items():
        step = next((step for word, step in STATEMENTS.items() if word in statement), REST)
        postgres[step] += took / cycles
    rows = [
        {
            "step": step,
            "web CPU ms": round(stages.spent[step] / cycles, 3),
            "PostgreSQL CPU ms": round(postgres[step], 3),
        }
        for step in (*STEPS, REST)
    ]
    total = {
        "web_cpu_ms": round(sum(stages.spent.values()) / cycles, 3),
        "postgres_cpu_ms": round(sum(postgres.values()), 3),
        "first_showing_adds_ms": round(cold_ms - warm_ms, 3),
    }
    rows += [
        {
            "step": "all, texts from the cache",
            "web CPU ms": total["web_cpu_ms"],
            "PostgreSQL CPU ms": total["postgres_cpu_ms"],
        },
        {
            "step": "texts shown for the first time add",
            "web CPU ms": total["first_showing_adds_ms"],
        },
    ]
    print_report(
        "Where each millisecond of a page cycle goes",
        rows,
        total | {"steps": rows[:-2], "cycles": cycles, "versions": versions("django", "psycopg")},
    )


def cycles_of(played: Any) -> Callable[[], None]:
    """One vote through the WSGI application; each call votes on the pair that the last one got."""
    from django.core.wsgi import get_wsgi_application
    from django.test import Client

    application = get_wsgi_application()
    client = Client(headers={"host": "localhost"})
    client.force_login(played.annotators[0])
    root = f"/p/{played.project.slug}/label/"
    html = client.get(root).content.decode()
    cookies = "; ".join(f"{name}={one.value}" for name, one in client.cookies.items())

    def cycle() -> None:
        nonlocal html
        sent = dict(FIELDS.findall(html))
        body = urlencode(sent | {"answer": "left", "active_ms": 900, "wall_ms": 1000}).encode()
        environ = {
            "REQUEST_METHOD": "POST",
            "PATH_INFO": f"{root}vote/",
            "QUERY_STRING": "",
            "SERVER_NAME": "localhost",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": "127.0.0.1",
            "HTTP_HOST": "localhost",
            "HTTP_COOKIE": cookies,
            "HTTP_HX_REQUEST": "true",
            "CONTENT_TYPE": "application/x-www-form-urlencoded",
            "CONTENT_LENGTH": str(len(body)),
            "wsgi.input": io.BytesIO(body),
            "wsgi.url_scheme": "http",
            "wsgi.errors": sys.stderr,
        }
        statuses: list[str] = []
        answer = application(environ, lambda status, *_: statuses.append(status))
        html = b"".join(answer).decode()
        answer.close()
        assert statuses[0].startswith("200"), statuses
        assert dict(FIELDS.findall(html)).get("slot") != sent["slot"], html[:1000]

    return cycle


def repeat(cycle: Callable[[], None], times: int) -> float:
    """Milliseconds of this thread's CPU a cycle."""
    began = time.thread_time()
    for _ in range(times):
        cycle()
    return (time.thread_time() - began) * 1000 / times


if __name__ == "__main__":
    main()
