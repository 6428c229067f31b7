"""Who may watch a run by event stream, and what is sent."""

import http.client
from collections.abc import Callable, Iterator

import pytest
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.cached_db import SessionStore
from django.utils import timezone

from apps.accounts.models import Membership, Project, Role, User
from apps.common import streams as machinery
from apps.training.models import Run, RunAttempt
from apps.training.streams import CSRF_PLACE, RunReader
from tests.people import person_make
from tests.training.streamed import streams, watching
from tests.web.world import event_add, metrics_add, run_make

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def project() -> Project:
    return Project.objects.create(slug="arguments", name="Arguments")


@pytest.fixture
def emil(project) -> User:
    return person_make("Emil", project, Role.ENGINEER)


@pytest.fixture
def run(project) -> Run:
    return run_make(project)


@pytest.fixture
def port(transactional_db, monkeypatch) -> Iterator[int]:
    monkeypatch.setattr(machinery, "LOOK_S", 0.05)
    monkeypatch.setattr(machinery, "PUSH_S", 0.05)
    with streams() as port:
        yield port


@pytest.fixture
def session_of(db) -> Callable[[User], str]:
    def sign_in(user: User) -> str:
        session = SessionStore()
        session[SESSION_KEY] = str(user.pk)
        session[BACKEND_SESSION_KEY] = "apps.accounts.backends.SessionBackend"
        session[HASH_SESSION_KEY] = user.get_session_auth_hash()
        session.save()
        return session.session_key

    return sign_in


def step_to(run: Run, step: int) -> None:
    """As a batch of events: the run has moved on."""
    RunAttempt.objects.filter(run=run).update(last_seq=1000 + step)
    run.step = step
    run.save()


def test_a_watcher_is_sent_the_head_of_the_page_when_the_run_moves(port, run, emil, session_of):
    with watching(port, run, session_of(emil)) as page:
        assert page.status == 200
        assert page.answer.headers["Content-Type"] == "text/event-stream"
        assert page.answer.headers["Cache-Control"] == "no-store"
        assert page.answer.headers["X-Accel-Buffering"] == "no"
        page.event("hello")
        page.event("page")  # it came without a state, so it is brought up to date
        step_to(run, 7)
        sent = page.event("page")
        assert "step 7" in sent["html"]
        assert 'hx-swap-oob="true"' in sent["html"]  # the overview was not known to it
        assert CSRF_PLACE in sent["html"]
        step_to(run, 8)
        assert "run-body" not in page.event("page")["html"]  # it has not changed since


def test_who_has_the_newest_state_is_sent_nothing_until_it_changes(port, run, emil, session_of):
    session = session_of(emil)
    with watching(port, run, session) as page:
        known = page.event("page")["id"]
        with watching(port, run, session, seen=known) as other:
            other.event("hello")
            step_to(run, 9)
            assert "step 9" in other.event("page")["html"]


def test_a_lost_connection_continues_after_its_last_event(port, run, emil, session_of):
    session, sent = session_of(emil), {}
    metrics_add(run, 1, [1], drill__value=[0.1])
    with watching(port, run, session, tab="charts") as page:
        page.event("stale")
        for step in (2, 3, 4):
            metrics_add(run, step, [step], drill__value=[step / 10])
            sent[step] = page.event("points")
            assert sent[step]["series"]["drill/value"]["steps"] == [step]
            assert sent[step]["series"]["drill/value"]["values"] == [step / 10]
        back = {"Last-Event-ID": sent[2]["id"]}
        with watching(port, run, session, headers=back, tab="charts") as again:
            missed = [again.event("points") for _ in range(2)]
    assert missed == [sent[3], sent[4]]


def test_a_rule_that_fires_sends_the_charts_to_fetch(port, run, emil, session_of):
    session = session_of(emil)
    metrics_add(run, 1, [1], drill__value=[0.1])
    with watching(port, run, session, tab="charts") as page:
        page.event("stale")
        metrics_add(run, 2, [2], drill__value=[0.2])
        page.event("points")
        event_add(run, 3, "Alert", {"rule": "kl_high", "severity": "warn", "step": 2})
        page.event("stale")


def test_personal_tabs_are_fetched_and_never_sent(port, run, emil, session_of):
    with watching(port, run, session_of(emil), tab="samples") as page:
        sent = page.event("page")
        assert sent["fetch"]
        assert "run-body" not in sent["html"]


def test_nothing_of_the_person_is_in_what_all_are_sent(port, run, emil, session_of):
    with watching(port, run, session_of(emil)) as page:
        html = page.event("page")["html"]
    assert f'value="{CSRF_PLACE}"' in html
    assert html.count("csrfmiddlewaretoken") == html.count(CSRF_PLACE)


def test_the_stream_ends_with_the_run(port, run, emil, session_of):
    session = session_of(emil)
    with watching(port, run, session) as page:
        page.event("page")
        run.state, run.ended_at = Run.State.FINISHED, timezone.now()
        run.save()
        last = page.event("page")
        assert "finished" in last["html"]
        assert "hx-trigger" not in last["html"]
        page.event("end")
        assert page.ends()
    with watching(port, run, session) as late:
        assert late.status == 204  # at which a browser asks no more


def test_strangers_are_refused(port, run, project, session_of):
    outsider = User.objects.create_user("olga", password="correct-horse-battery")
    annotator = person_make("Ana", project, Role.ANNOTATOR)
    for session, status in (("", 401), (session_of(outsider), 404), (session_of(annotator), 403)):
        with watching(port, run, session) as page:
            assert page.status == status


def test_only_streams_are_answered(port, run, emil, session_of):
    for method, path, status in (
        ("GET", "/sign-in/", 404),
        ("GET", "/nothing/", 404),
        ("POST", f"/p/arguments/runs/{run.pk}/stream", 405),
    ):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request(method, path)
        assert connection.getresponse().status == status
        connection.close()


@pytest.mark.parametrize("how", ["membership", "session", "deactivated"])
def test_who_may_no_longer_watch_is_cut_off(run, project, emil, session_of, monkeypatch, how):
    monkeypatch.setattr(machinery, "CHECK_S", 0.5)
    session = session_of(emil)
    with streams() as port, watching(port, run, session) as page:
        page.event("page")
        if how == "membership":
            Membership.objects.filter(user=emil).delete()
        elif how == "session":
            SessionStore(session).delete()
        else:
            emil.is_active = False
            emil.save()
        assert page.ends()


def test_one_who_may_watch_is_not_cut_off(run, emil, session_of, monkeypatch):
    monkeypatch.setattr(machinery, "CHECK_S", 0.2)
    with streams() as port, watching(port, run, session_of(emil)) as page:
        page.event("page")
        checked = []
        ask = machinery.EventStreams._ask

        async def counted(self, scope):
            checked.append(scope)
            return await ask(self, scope)

        monkeypatch.setattr(machinery.EventStreams, "_ask", counted)
        while len(checked) < 3:
            step_to(run, run.step + 1)
            page.event("page")


def test_more_connections_than_allowed_are_sent_to_polling(run, emil, session_of, monkeypatch):
    monkeypatch.setattr(machinery, "PER_PERSON", 2)
    session = session_of(emil)
    with (
        streams(most=3) as port,
        watching(port, run, session) as one,
        watching(port, run, session) as two,
        watching(port, run, session) as three,
    ):
        assert [page.status for page in (one, two, three)] == [200, 200, 503]
        assert three.answer.headers["Retry-After"] == "30"


def test_a_deleted_run_ends_its_streams(port, run, emil, session_of):
    with watching(port, run, session_of(emil)) as page:
        page.event("page")
        run.delete()
        assert page.ends()


def test_the_pages_own_port_may_read_and_no_other(port, run, emil, session_of, settings):
    for origin, allowed in (
        (f"http://127.0.0.1:{settings.PORT}", True),
        (f"http://127.0.0.1:{settings.PORT + 7}", False),
        ("http://elsewhere.example", False),
    ):
        with watching(port, run, session_of(emil), headers={"Origin": origin}) as page:
            said = page.answer.headers["Access-Control-Allow-Origin"]
        assert said == (origin if allowed else None)


def test_what_cannot_be_read_is_polled(port, run, emil, session_of, monkeypatch):
    session = session_of(emil)
    with watching(port, run, session) as page:
        page.event("page")

        def broken(*_: object) -> None:
            raise RuntimeError("no template")

        monkeypatch.setattr(RunReader, "_render", broken)
        step_to(run, 5)
        assert page.ends()
    with watching(port, run, session) as page:
        assert page.status == 503  # it came without a state, so the whole had to be rendered


def test_however_many_watch_a_change_is_rendered_once(port, run, emil, session_of, monkeypatch):
    rendered = []
    render = RunReader._render
    monkeypatch.setattr(
        RunReader, "_render", lambda self, run: rendered.append(run.step) or render(self, run)
    )
    session = session_of(emil)
    with watching(port, run, session) as one, watching(port, run, session) as two:
        for page in (one, two):
            page.event("page")
        step_to(run, 5)
        assert all("step 5" in page.event("page")["html"] for page in (one, two))
    assert rendered.count(5) == 1


def test_a_slow_watcher_gets_the_newest_state_and_fetches_the_points_it_missed():
    watcher = machinery._Watcher("emil", "run", {})
    for n in (b"1", b"2"):
        watcher.push(machinery._Written("page", False, b"page" + n))
        watcher.push(machinery._Written("points", True, b"points" + n))
    watcher.push(machinery._Written("points", True, b"points3"))
    assert watcher.take() == b"page2" + machinery._STALE
    watcher.push(machinery._Written("points", True, b"points4"))
    assert watcher.take() == b"points4"
