"""The page of a run that is streamed: it moves without polling, and else it polls."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, Request, expect

from apps.accounts.models import Project, Role
from apps.common import streams as machinery
from apps.training.models import Run
from tests.people import person_make
from tests.training.streamed import streams
from tests.web.world import metrics_add, run_make

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

# Set before the page's scripts run: whether anybody looks is the browser's to say.
HIDING = """
let hidden = false;
Object.defineProperty(document, "hidden", {get: () => hidden});
window.hide = (value) => {
  hidden = value;
  document.dispatchEvent(new Event("visibilitychange"));
};
"""


@pytest.fixture
def project() -> Project:
    project = Project.objects.create(slug="arguments", name="Arguments")
    person_make("Emil", project, Role.ENGINEER)
    return project


@pytest.fixture
def run(project) -> Run:
    run = run_make(project, config={"steps": 100})
    metrics_add(run, 1, [1, 2, 3], drill__value=[0.1, 0.2, 0.3])
    return run


@pytest.fixture
def page_port(live_server, settings) -> None:
    settings.PORT = urlsplit(live_server.url).port


@pytest.fixture
def stream_port(page_port, settings, monkeypatch) -> Iterator[int]:
    monkeypatch.setattr(machinery, "LOOK_S", 0.1)
    monkeypatch.setattr(machinery, "PUSH_S", 0.1)
    with streams() as port:
        settings.STREAM_PORT = port
        yield port


class Asked:
    """What a page has asked for since it was loaded, and how often."""

    def __init__(self, page: Page) -> None:
        self.polls = self.curves = self.streams = 0
        page.on("request", self._count)

    def _count(self, request: Request) -> None:
        path = urlsplit(request.url).path
        self.polls += bool(request.headers.get("hx-request"))
        self.curves += path.endswith("/metrics.json")
        self.streams += path.endswith("/stream")


def opened(page: Page, live_server, run: Run, tab: str = "") -> None:
    with page.expect_request(lambda request: urlsplit(request.url).path.endswith("/stream")):
        page.goto(f"{live_server.url}/p/arguments/runs/{run.pk}/?tab={tab}")


def step_to(run: Run, step: int) -> None:
    run.step = step
    run.save()


def streaming(page: Page, *, by: str = "stream") -> None:
    expect(page.locator("body")).to_have_attribute("data-live", by, timeout=30_000)


def test_the_page_moves_by_the_stream_and_does_not_poll(
    live_server, stream_port, open_page, sign_in, run
) -> None:
    page = open_page()
    sign_in(page, "emil")
    opened(page, live_server, run)
    streaming(page)
    asked = Asked(page)
    head = page.locator("#run-head")
    for step in (50, 60):
        step_to(run, step)
        expect(head.get_by_text(f"step {step} of 100")).to_be_visible()
        expect(page).to_have_title(f"{step} % · warm-up · Concord")
    page.wait_for_timeout(4_500)  # two polls would have come
    assert (asked.polls, asked.streams) == (0, 0)
    # What was sent to everybody has this person's token: the button works.
    page.get_by_role("button", name="Stop and keep").click()
    expect(page.locator("#run-head").get_by_text("stopping")).to_be_visible()


def test_curves_grow_by_the_stream(live_server, stream_port, open_page, sign_in, run) -> None:
    page = open_page()
    sign_in(page, "emil")
    opened(page, live_server, run, "charts")
    streaming(page)
    figure = page.locator("figure", has_text="drill/value")
    expect(figure.locator("p")).to_contain_text("3 points")
    page.wait_for_timeout(2_500)  # a poll that was under way when the stream began
    asked = Asked(page)
    metrics_add(run, 2, [4, 5], drill__value=[0.4, 0.5])
    expect(figure.locator("p")).to_contain_text("5 points")
    page.wait_for_timeout(2_500)
    assert (asked.curves, asked.polls) == (0, 0)
    metrics_add(run, 3, [6], drill__value=[0.6], drill__other=[1.0])
    expect(page.locator("#chart-status")).to_have_text("2 metrics · live")  # so all are fetched
    expect(figure.locator("p")).to_contain_text("6 points")
    assert asked.curves > 0


def test_a_page_whose_stream_is_refused_polls(
    live_server, page_port, open_page, sign_in, run, settings
) -> None:
    with streams(most=0) as port:
        settings.STREAM_PORT = port
        page = open_page()
        sign_in(page, "emil")
        opened(page, live_server, run)
        asked = Asked(page)
        step_to(run, 70)
        expect(page.locator("#run-head").get_by_text("step 70 of 100")).to_be_visible()
        assert asked.polls > 0


def test_a_page_polls_after_its_stream_has_died_and_streams_again(
    live_server, page_port, open_page, sign_in, run, settings, monkeypatch
) -> None:
    monkeypatch.setattr(machinery, "LOOK_S", 0.1)
    page = open_page()
    head = page.locator("#run-head")
    with streams() as port:
        settings.STREAM_PORT = port
        sign_in(page, "emil")
        opened(page, live_server, run)
        streaming(page)
    streaming(page, by="polls")
    step_to(run, 80)
    expect(head.get_by_text("step 80 of 100")).to_be_visible()
    with streams(port=port):
        streaming(page)
        asked = Asked(page)
        step_to(run, 81)
        expect(head.get_by_text("step 81 of 100")).to_be_visible()
        assert asked.polls == 0


def test_a_hidden_page_closes_its_stream_and_catches_up(
    live_server, stream_port, open_page, sign_in, run
) -> None:
    page = open_page()
    page.add_init_script(HIDING)
    sign_in(page, "emil")
    opened(page, live_server, run)
    streaming(page)
    page.evaluate("hide(true)")
    streaming(page, by="polls")
    step_to(run, 90)
    page.wait_for_timeout(1_000)
    asked = Asked(page)
    page.evaluate("hide(false)")
    expect(page.locator("#run-head").get_by_text("step 90 of 100")).to_be_visible()
    streaming(page)
    assert asked.streams == 1


def test_the_end_of_the_run_ends_the_stream(
    live_server, stream_port, open_page, sign_in, run
) -> None:
    from django.utils import timezone

    page = open_page()
    sign_in(page, "emil")
    opened(page, live_server, run)
    streaming(page)
    asked = Asked(page)
    run.state, run.ended_at, run.step = Run.State.FINISHED, timezone.now(), 100
    run.save()
    expect(page.locator("#run-head").get_by_text("finished", exact=True)).to_be_visible()
    streaming(page, by="polls")
    page.wait_for_timeout(3_000)
    assert (asked.polls, asked.streams) == (0, 0)
