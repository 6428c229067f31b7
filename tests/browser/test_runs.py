"""A run as Emil sees it: launched, watched until it has finished, cancelled, resumed."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from apps.accounts.models import Project, Role
from apps.training.models import Run
from tests.browser.readable import readable
from tests.people import person_make
from tests.training.stack import Stack
from tests.web.world import event_add, metrics_add, run_make

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def shot(page: Page, name: str) -> None:
    """Keep a picture where SCREENSHOTS says, for people to look at."""
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"run-{name}.png", full_page=True)


@pytest.fixture
def project() -> Project:
    project = Project.objects.create(slug="arguments", name="Arguments")
    person_make("Emil", project, Role.ENGINEER)
    return project


@pytest.fixture
def stack(transactional_db, tmp_path, settings) -> Iterator[Stack]:
    """A real event worker and a real training worker over the real broker."""
    with Stack(tmp_path).running() as stack:
        settings.ARTIFACTS_URL = str(stack.artifacts)
        yield stack


@pytest.mark.stack
def test_emil_launches_a_run_and_watches_it_finish(
    live_server, open_page, sign_in, project, stack
) -> None:
    page = open_page()
    sign_in(page, "emil")
    page.get_by_role("link", name="All runs").click()
    page.get_by_role("link", name="New run").first.click()
    page.get_by_role("link", name="Test run").click()
    page.get_by_label("Name").fill("watched")
    page.get_by_label("steps", exact=True).fill("40")
    page.get_by_label("step_seconds").fill("0.25")
    page.get_by_label("sample_every").fill("10")
    page.get_by_role("button", name="Launch").click()

    head = page.locator("#run-head")
    expect(head.locator("h1")).to_have_text("watched")
    expect(head.get_by_text("running")).to_be_visible(timeout=90_000)
    expect(page).to_have_title(re.compile(r"^\d+ % · watched"))
    page.get_by_role("link", name="Charts").click()
    figure = page.locator("figure", has_text="drill/value")
    expect(figure.locator("canvas")).to_be_visible()
    shot(page, "charts-live")

    # nothing is reloaded from here on: the page itself must notice the end
    expect(head.get_by_text("finished")).to_be_visible(timeout=90_000)
    expect(page).to_have_title(re.compile("^finished · watched"))
    assert "favicon-good" in page.locator("#favicon").get_attribute("href")
    expect(figure.locator("p")).to_contain_text("drill/value: 40 points")
    # Beside it those of the machine, which a run of less than 15 seconds ends before.
    expect(page.locator("#chart-status")).to_have_text(
        re.compile(r"^(1 metric|([2-9]|1\d) metrics)$")
    )
    assert "hx-trigger" not in head.evaluate("node => node.outerHTML")
    shot(page, "charts-finished")

    page.reload()  # everything is in the database
    expect(figure.locator("p")).to_contain_text("drill/value: 40 points")
    page.get_by_role("link", name="Samples").click()
    expect(page.get_by_text("What is the value at step 40?")).to_be_visible()
    page.get_by_role("link", name="Models", exact=True).click()
    expect(page.get_by_role("link", name="watched, step 40")).to_be_visible()


@pytest.mark.stack
def test_a_run_is_cancelled_after_a_question_and_resumed(
    live_server, open_page, sign_in, project, stack
) -> None:
    from apps.training.services import run_launch

    config = {"steps": 100_000, "step_seconds": 0.05, "checkpoint_every": 5}
    run = run_launch(project=project, kind="drill", name="long", config=config, inputs={})
    page = open_page()
    sign_in(page, "emil")
    page.goto(f"{live_server.url}/p/arguments/runs/{run.pk}/")
    head = page.locator("#run-head")
    expect(head.get_by_text("running")).to_be_visible(timeout=90_000)
    page.get_by_role("link", name="Cancel").click()
    dialog = page.get_by_role("dialog", name="Cancel long?")
    shot(page, "cancel")
    dialog.get_by_role("button", name="Keep running").click()
    expect(dialog).not_to_be_visible()
    page.get_by_role("link", name="Cancel").click()
    dialog.get_by_role("button", name="Cancel the run").click()
    expect(head.get_by_text("cancelled")).to_be_visible(timeout=90_000)
    page.get_by_role("button", name="Resume").click()
    expect(head.get_by_text(re.compile("attempt 2, from step"))).to_be_visible(timeout=90_000)
    page.get_by_role("link", name="Cancel").click()
    dialog.get_by_role("button", name="Cancel the run").click()
    expect(head.get_by_text("cancelled")).to_be_visible(timeout=90_000)
    assert Run.objects.get().attempt == 2


def test_zoom_and_smoothing_stay_when_new_points_arrive(
    live_server, open_page, sign_in, project
) -> None:
    run = run_make(project, config={"steps": 100})
    metrics_add(run, 1, list(range(1, 61)), drill__value=[i % 7 / 7 for i in range(60)])
    page = open_page()
    sign_in(page, "emil")
    page.goto(f"{live_server.url}/p/arguments/runs/{run.pk}/?tab=charts")
    plot = page.locator("figure .u-over")
    expect(plot).to_be_visible()
    page.get_by_label("Smoothing").fill("0.9")
    page.wait_for_timeout(500)  # drawn with it
    width = plot.evaluate("node => node.clientWidth")
    image = "document.querySelector('figure canvas').toDataURL()"
    whole = page.evaluate(image)
    for _ in range(5):  # a drag over a plot that is drawn again just then is lost
        plot.hover(position={"x": width * 0.25, "y": 40})
        page.mouse.down()
        plot.hover(position={"x": width * 0.5, "y": 40})
        page.mouse.up()
        page.wait_for_timeout(500)
        if page.evaluate(image) != whole:
            break
    before = page.locator("figure canvas").evaluate("c => c.toDataURL()")
    metrics_add(run, 2, list(range(61, 91)), drill__value=[0.5] * 30)
    event_add(run, 3, "Progress", {"step": 90, "total_steps": 100})
    expect(page.locator("figure p")).to_contain_text("90 points", timeout=10_000)
    page.mouse.move(5, 5)
    zoomed = page.locator("figure canvas").evaluate("c => c.toDataURL()")
    page.get_by_role("button", name="Reset zoom").click()
    assert before[:64] == zoomed[:64]
    page.wait_for_function(  # drawn again, however long that takes
        "before => document.querySelector('figure canvas').toDataURL() !== before", arg=zoomed
    )
    shot(page, "charts-smoothed")


@pytest.mark.parametrize("phone", [False, True], ids=["desk", "phone"])
def test_the_charts_are_drawn_as_a_person_likes_them_and_stay_so(
    live_server, open_page, sign_in, project, phone
) -> None:
    run = run_make(project, config={"steps": 60})
    steps = list(range(1, 61))
    walk = [i % 7 / 7 for i in steps]
    walk[30] = 900.0  # one wild value
    metrics_add(run, 1, steps, drill__value=walk)
    at = [1_800_000_000 + 60 * i for i in steps]
    metrics_add(run, 2, at, machine__step=steps, machine__cpu=[2.0] * 60)
    page = open_page(phone=phone, dark=phone)
    sign_in(page, "emil")
    page.goto(f"{live_server.url}/p/arguments/runs/{run.pk}/?tab=charts")
    value = page.locator("figure", has_text="drill/value")
    expect(value.locator("canvas")).to_be_visible()
    axis = page.get_by_label("Horizontal axis")
    expect(axis.locator("option[value=epochs]")).to_be_disabled()  # not measured
    expect(value.locator(".reading")).to_contain_text("at 60")
    axis.select_option("time")
    expect(value.locator(".reading")).to_contain_text(" h")
    page.get_by_label("Clip outliers").check()
    expect(value).to_contain_text("1 outlier clipped.")
    page.get_by_label("Log scale").check()
    expect(value).to_contain_text("8 values of 0 or less: not on a log scale.")
    page.get_by_label("Smoothing").focus()
    page.keyboard.press("End")
    expect(page.locator("#chart-smooth-value")).to_have_text("0.99")
    pin = value.get_by_role("button", name="Keep the chart of")
    pin.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#chart-pinned figure")).to_have_count(1)
    with page.expect_download() as download:
        value.get_by_role("button", name="as SVG").click()
    assert "<path" in download.value.path().read_text()
    readable(page, "run-chart-options")
    shot(page, f"charts-options-{'phone' if phone else 'desk'}")

    page.reload()
    expect(page.locator("#chart-pinned figure")).to_contain_text("drill/value")
    expect(axis).to_have_value("time")
    expect(page.get_by_label("Log scale")).to_be_checked()


def test_marks_are_reached_by_keyboard_and_what_is_folded_is_fetched_when_opened(
    live_server, open_page, sign_in, project
) -> None:
    run = run_make(project, kind="ppo", state="finished", config={}, name="longer")
    steps = list(range(1, 31))
    names = ("objective__scores", "objective__kl", "response__length_ratio", "loss__policy_avg")
    metrics_add(run, 1, steps, **{name: [i / 10 for i in steps] for name in names})
    event_add(run, 2, "Evidence", {"link": "reward", "rule": "length", "step": 25, "onset": 18})
    page = open_page()
    sign_in(page, "emil")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{live_server.url}/p/arguments/runs/{run.pk}/?tab=charts")
    ratio = page.locator("figure", has_text="response/length_ratio")
    expect(ratio.locator("canvas")).to_be_visible()
    ratio.locator("button.mark").focus()
    expect(ratio.get_by_text("Step 25, began about step 18")).to_be_visible()
    expect(ratio.get_by_role("link", name="Samples at this step")).to_be_visible()
    readable(page, "run-charts")
    page.keyboard.press("Escape")
    expect(ratio.get_by_text("Step 25, began")).not_to_be_visible()

    assert not any("policy_avg" in url for url in asked)  # folded: not asked for
    page.locator("[data-panel=training] summary").click()
    folded = page.locator("figure", has_text="loss/policy_avg")
    folded.scroll_into_view_if_needed()
    expect(folded.locator("canvas")).to_be_visible()
    assert any("policy_avg" in url for url in asked)


def test_runs_are_ticked_in_the_list_and_drawn_in_one_chart(
    live_server, open_page, sign_in, project
) -> None:
    for name in ("slow", "fast"):
        run = run_make(project, state="finished", name=name)
        metrics_add(run, 1, [1, 2, 3], drill__value=[0.1, 0.2, 0.3])
    page = open_page(dark=True)
    sign_in(page, "emil")
    page.get_by_role("link", name="All runs").click()
    page.get_by_label("Compare slow").check()
    page.get_by_label("Compare fast").check()
    page.get_by_role("button", name="Compare selected runs").click()
    figure = page.locator("figure", has_text="drill/value")
    expect(figure.locator("p")).to_contain_text("slow: 3 points")
    readable(page, "run-compare")
    page.get_by_role("button", name="slow").click()
    expect(page.get_by_role("button", name="slow")).to_have_attribute("aria-pressed", "false")
    expect(figure.locator("p")).not_to_contain_text("slow")


LAST = 40  # step


def counted(project: Project, name: str, tokens: dict[int, float], **fields: object) -> Run:
    """A run whose value is its step, and that has read so many tokens at some of its steps."""
    run = run_make(project, state="finished", name=name, **fields)
    steps = list(range(1, LAST + 1))
    metrics_add(run, 1, steps, drill__value=[float(step) for step in steps])
    if tokens:
        metrics_add(run, 2, list(tokens), num_tokens=list(tokens.values()))
    return run


def read_at(page: Page, figure: Locator, share: float) -> tuple[float, list[float]]:
    """(tokens, the value of each run) that the chart says under the pointer."""
    plot = figure.locator(".u-over")
    plot.scroll_into_view_if_needed()
    width = plot.evaluate("node => node.clientWidth")
    plot.hover(position={"x": share * width, "y": 40})
    said = figure.locator(".reading")
    expect(said).to_contain_text("tokens")
    count, unit = re.search(r"after ([\d.]+)([KMB]?) tokens", said.inner_text()).groups()
    values = [float(text) for text in said.locator("span").all_inner_texts() if text != "—"]
    return float(count) * {"": 1, "K": 1e3, "M": 1e6, "B": 1e9}[unit], values


def x_ticks(figure: Locator, page: Page) -> list[str]:
    """The labels under a chart, from its SVG; on the canvas nobody can read them."""
    with page.expect_download() as download:
        figure.get_by_role("button", name="as SVG").click()
    return re.findall(r'text-anchor="middle">([^<]*)<', download.value.path().read_text())


@pytest.mark.parametrize("phone", [False, True], ids=["desk", "phone"])
def test_curves_are_drawn_over_tokens_with_all_that_a_chart_can_do(
    live_server, open_page, sign_in, project, phone
) -> None:
    # counted at every fourth step up to 36: the last four steps have no count
    run = counted(project, "counted", {step: 1000.0 * step**2 for step in range(4, 37, 4)})
    page = open_page(phone=phone, dark=phone)
    sign_in(page, "emil")
    page.goto(f"{live_server.url}/p/arguments/runs/{run.pk}/?tab=charts")
    value = page.locator("figure", has_text="drill/value")
    axis = page.get_by_label("Horizontal axis")
    expect(axis.locator("option[value=epochs]")).to_have_text("passes over the data (not known)")
    axis.select_option("tokens")
    expect(value.locator(".reading")).to_have_text("36after 1.296M tokens")
    expect(value).to_contain_text("4 points of counted without a count of tokens: not drawn.")
    assert x_ticks(value, page) == ["500K", "1M"]
    tokens, (step,) = read_at(page, value, 0.5)
    before = step // 4 * 4
    low, high = 1000 * before**2, 1000 * (before + 4) ** 2
    assert tokens == pytest.approx(low + (step - before) / 4 * (high - low), rel=1e-3)

    page.get_by_label("Clip outliers").check()
    page.get_by_label("Log scale").check()
    page.get_by_label("Smoothing").fill("0.9")
    value.get_by_role("button", name="Keep the chart of").click()
    pinned = page.locator("#chart-pinned figure")
    expect(pinned).to_contain_text("drill/value")
    assert x_ticks(pinned, page) == ["500K", "1M"]
    page.get_by_role("button", name="Zoom in").click()
    page.wait_for_timeout(500)  # finer points come
    labels = x_ticks(pinned, page)
    assert labels[0] == "400K"
    assert labels[-1] == "800K"
    readable(page, "run-chart-tokens")
    shot(page, f"charts-tokens-{'phone' if phone else 'desk'}")
    page.reload()
    expect(pinned.locator(".reading")).to_contain_text("after 1.296M tokens")


@pytest.mark.parametrize("phone", [False, True], ids=["desk", "phone"])
def test_runs_are_compared_by_the_tokens_of_each_and_one_without_a_count_says_so(
    live_server, open_page, sign_in, project, phone
) -> None:
    few = counted(project, "few", {step: 1000.0 * step for step in range(1, LAST + 1)})
    many = counted(project, "many", {1: 4000.0, 21: 84_000.0, LAST: 160_000.0})
    older = counted(project, "older", {})
    again = counted(project, "again", {10: 50_000.0, 20: 10_000.0, LAST: 30_000.0})
    page = open_page(phone=phone, dark=not phone)
    sign_in(page, "emil")
    runs = "&".join(f"run={run.pk}" for run in (few, many, older, again))
    page.goto(f"{live_server.url}/p/arguments/runs/compare/?{runs}")
    figure = page.locator("figure", has_text="drill/value")
    page.get_by_label("Horizontal axis").select_option("tokens")
    figure.scroll_into_view_if_needed()
    expect(figure).to_contain_text("older has no count of tokens: not drawn.")
    expect(figure).to_contain_text("The count of tokens of again begins again: not drawn.")
    expect(figure.locator(".reading")).to_contain_text("at their ends")
    expect(figure).not_to_contain_text("many has no count")
    for share in (0.1, 0.2, 0.6):
        tokens, values = read_at(page, figure, share)
        wanted = [min(LAST, tokens // 1000), tokens // 4000]
        assert values == pytest.approx(wanted, abs=0.01), tokens
    assert x_ticks(figure, page)[-1] == "150K"
    shot(page, f"compare-tokens-{'phone' if phone else 'desk'}")
    page.goto(f"{live_server.url}/p/arguments/runs/{again.pk}/?tab=charts")
    axis = page.get_by_label("Horizontal axis")
    expect(axis.locator("option[value=tokens]")).to_have_text("tokens (not known)")
    expect(axis).to_have_value("step")
    expect(page.locator("figure", has_text="drill/value").locator(".reading")).to_contain_text(
        "at 40"
    )


def test_points_of_a_long_run_that_were_left_out_move_none_of_the_others_over_tokens(
    live_server, open_page, sign_in, project
) -> None:
    run = run_make(project, state="finished", config={"steps": 6000})
    steps = list(range(1, 6001))  # 1000 of them are sent
    spiky = [step + (0.5 if step % 7 else -0.4) for step in steps]
    metrics_add(run, 1, steps, drill__value=spiky, num_tokens=[100.0 * s * s for s in steps])
    page = open_page()
    sign_in(page, "emil")
    page.goto(f"{live_server.url}/p/arguments/runs/{run.pk}/?tab=charts")
    page.get_by_label("Horizontal axis").select_option("tokens")
    figure = page.locator("figure", has_text="drill/value")
    for zoomed in (False, True):
        if zoomed:
            with page.expect_response(lambda answer: "from=" in answer.url):
                page.get_by_role("button", name="Zoom in").click()
            page.wait_for_timeout(300)
        tokens, (value,) = read_at(page, figure, 0.3)
        assert value == pytest.approx((tokens / 100) ** 0.5, abs=2.0)
