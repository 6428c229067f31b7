"""Pages of people's work at 200 % and 400 % zoom of 1400 × 900: nothing sideways, no text cut off.

With SCREENSHOTS they are kept on a phone and a desktop too, in both themes, for people to look at.
"""

import json
import os
from datetime import timedelta
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.utils import timezone

from apps.accounts.models import Membership, Project, Role, User
from apps.accounts.services import invitation_create
from apps.agreement.services.annotators import annotator_reports_refresh
from apps.agreement.services.reports import report_refresh
from apps.agreement.services.rulings import dispute_adjudicate
from apps.evaluation.services.dialogues import (
    CampaignAsked,
    conversation_start,
    dialogue_open,
    message_send,
)
from apps.labeling import services
from apps.labeling.models import Annotator, Comparison, LabelingSettings
from apps.labeling.services.comments import comment_add, question_ask
from apps.training.models import Run
from tests.browser.readable import readable
from tests.browser.test_run_pairs import picture, run
from tests.evaluation.assessed import model_make
from tests.labeling.pairs import annotators_make, answer_all, leased, practice_make, vote
from tests.labeling.writing import batch_make
from tests.people import person_make

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

ZOOMS = {"200": (700, 450), "400": (350, 225)}
LOOKS = {"desktop": (1400, 900), "phone": (390, 844)}
ADMIN = (
    "overview",
    "notifications",
    "comparisons",
    "comparisons?choice=tie",
    "comparisons/{pair}",
    "comparisons/ambiguous",
    "results",
    "agreement",
    "agreement/slices",
    "agreement/matrix",
    "agreement/decisions",
    "agreement/annotators",
    "agreement/annotators/{ana}",
    "annotators/{ana}",
    "annotators/{ana}/votes",
    "disputes",
    "disputes/{pair}",
    "audits",
    "annotators",
    "hours",
    "questions",
    "people",
    "project",
    "settings",
    "audit-log",
    "imports",
    "imports/{job}",
    "datasets",
    "datasets/new",
    "guidelines/edit",
    "images",
    "writing",
    "writing/new",
    "writing/{batch}",
    "dialogues",
    "dialogues/new",
    "dialogues/{campaign}",
    "/projects/",
    "/projects/new/",
)
ANNOTATOR = ("overview", "notifications", "label", "progress", "hours", "questions", "answers")
ANNOTATOR += ("opt-outs", "guidelines", "qualification", "/account/", "write")
ANNOTATOR += ("conversations", "conversations/{talk}", "/p/agents/label/", "/p/pictures/label/")

# Texts that stick out of the window or of a box that hides them, without an ellipsis or scrolling.
CUT = """() => {
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    const parent = node.parentElement;
    if (!node.data.trim() || !parent.checkVisibility({visibilityProperty: true})) continue;
    range.selectNodeContents(node);
    const box = range.getBoundingClientRect();
    if (box.width < 2 || box.height < 2) continue;
    let held = innerWidth, scrolls = false;
    for (let at = parent; at && !scrolls; at = at.parentElement) {
      const style = getComputedStyle(at), x = style.overflowX;
      scrolls = style.textOverflow === "ellipsis" || style.webkitLineClamp !== "none"
        || x === "auto" || x === "scroll" || at.clientWidth === 1 || at.closest("svg");
      if (x === "hidden" || x === "clip")
        held = Math.min(held, at.getBoundingClientRect().right);
    }
    if (!scrolls && (box.right > held + 1 || box.left < -1))
      found.push([node.data.trim().slice(0, 60), Math.round(box.right - held)]);
  }
  return found;
}"""

# Links, buttons and fields that, scrolled to, have something else on top of them.
COVERED = """() => [...document.querySelectorAll("main :is(a, button, input, select, summary)")]
  .filter((one) => one.checkVisibility({visibilityProperty: true, opacityProperty: true}))
  .filter((one) => {
    one.scrollIntoView({block: "center"});
    const box = one.getBoundingClientRect();
    if (box.width < 2 || box.height < 2) return false;
    const y = box.y + Math.min(box.height / 2, 20);
    const hit = document.elementFromPoint(box.x + box.width / 2, y);
    return hit && !one.contains(hit) && !hit.contains(one) && !hit.closest("label")?.contains(one);
  })
  .map((one) => [one.outerHTML.slice(0, 90), "covered"])"""


# What stays in place over the texts while one scrolls, and how high it is.
FIXED = """() => [...document.querySelectorAll("body *")]
  .filter((one) => getComputedStyle(one).position === "fixed" && one.checkVisibility())
  .map((one) => [one.className, Math.round(one.getBoundingClientRect().height)])
  .filter(([, high]) => high > 2)"""


@pytest.fixture
def names() -> dict[str, int]:
    """A project in which every page has something to show; what addresses name in it."""
    project = Project.objects.create(
        slug="arguments", name="Arguments on councils and their decisions", description="Judge."
    )
    ada, rita = (
        person_make(name, project, role)
        for name, role in (("Ada", Role.ADMIN), ("Rita", Role.REVIEWER))
    )
    ana = person_make("Ana", project, Role.ANNOTATOR)
    User.objects.update(may_create_projects=True)
    practice_make(project, 3, qualification_pass=0.9, qualification_attempts=1)
    subjects = ("the economy", "plastic bottles", "school uniforms", "night trains")
    rows = [
        {
            "id": f"council-decision-number-{n:03}",
            "prompt": f"What should a council decide about {subjects[n % 4]}, case {n}?",
            "response_a": f"It should ask people first. Costs come second in case {n}.",
            "response_b": f"Nothing: markets find a recession sooner than councils do, {n}.",
            "topic": subjects[n % 4],
            "model_a": "a-model-with-a-rather-long-name-7b-instruct",
            "model_b": "our-sft",
        }
        for n in range(1, 31)
    ]
    services.comparisons_import(project=project, rows=rows, batch="march-of-the-councils.jsonl")
    LabelingSettings.objects.update(
        acknowledge_guidelines=False,
        overlap=3,
        max_overlap=3,
        random_share=1.0,
        show_rulings=True,
        show_gold=True,
        vote_price=0.1,
        due_on=timezone.now().date() + timedelta(days=3),
        criteria=[{"key": "correct", "label": "Correctness of what is claimed"}],
        show_rationale=True,
    )
    answer_all(project, ana, [True, True, False])
    LabelingSettings.objects.update(qualification_pairs=0)
    people = [ana, *annotators_make(project, 2)]
    for place, person in enumerate(people):
        for n in range(20):
            vote(project, person, ("ab", "ba", "tab")[place][n % 2].replace("t", "tie"))
    contested = Comparison.objects.filter(state="contested").order_by("pk")
    dispute_adjudicate(
        comparison=contested[1], choice="a", cause="taste", note="Clearer.", by=rita, seen=0
    )
    question = question_ask(
        project=project, annotator=ana, slot=leased(project, ana).slot, text="Is a draw allowed?"
    )
    comment_add(comparison=contested[0], author=rita, text="@ada, is this a gap in the guidelines?")
    comment_add(comparison=question.comparison, author=rita, text="Yes.", answers=question.pk)
    invitation_create(
        project=project,
        role="annotator",
        email="a.rather.long.address@department.example.org",
        by=ada,
    )
    Annotator.objects.filter(user=rita).update(topics=["the economy"])
    report_refresh(project=project)
    annotator_reports_refresh(project=project)
    job = services.import_job_create(
        project=project, by=ada, file_name="april.jsonl", chunks=[json.dumps(rows[0]).encode()]
    )
    batch = batch_make(project, instruction="Be *brief*, and name where you know it from.")
    models = [model_make(project, by=ada, name=name).pk for name in ("a-rather-long-name", "sft")]
    Run.objects.filter(checkpoints__in=models).update(kind=Run.Kind.SFT)
    asked = CampaignAsked(name="Talks about councils", models=models, topics=["night trains"])
    campaign = dialogue_open(project=project, user=ada, asked=asked)
    talk = conversation_start(campaign=campaign, user=ana, key="k", topic="night trains")
    message_send(conversation=talk, user=ana, text="Should a council run trains?", key="one")
    other_kinds(ana)
    return {
        "pair": contested[0].pk,
        "ana": ana.pk,
        "job": job.pk,
        "batch": batch.pk,
        "campaign": campaign.pk,
        "talk": talk.key,
    }


def other_kinds(ana: User) -> None:
    """A pair of runs of agents, and one with images."""
    image = f"![a red field]({picture()})"
    rows = {
        "agents": {
            "prompt": "Which file?",
            "response_a": run("a", "A"),
            "response_b": run("b", "B"),
        },
        "pictures": {
            "prompt": f"What is it? {image}",
            "response_a": "A field.",
            "response_b": "Red.",
        },
    }
    for slug, row in rows.items():
        project = Project.objects.create(slug=slug, name=slug.capitalize())
        Membership.objects.create(project=project, user=ana, role=Role.ANNOTATOR)
        LabelingSettings.objects.create(
            project=project, overlap=1, ask_steps=True, acknowledge_guidelines=False
        )
        services.comparisons_import(project=project, rows=[row])


def address(name: str, names: dict[str, int]) -> str:
    if name.startswith("/"):
        return name.format(**names)
    path, _, query = name.format(**names).partition("?")
    return f"/p/arguments/{path}/" + (f"?{query}" if query else "")


@pytest.mark.parametrize(("who", "pages"), [("ada", ADMIN), ("ana", ANNOTATOR)])
def test_nothing_is_lost_at_200_and_400_percent(
    live_server, open_page, sign_in, names: dict[str, int], who: str, pages: tuple[str, ...]
) -> None:
    page = open_page()
    sign_in(page, who)
    folder, lost = os.environ.get("SCREENSHOTS"), {}
    for name in pages:
        page.goto(live_server.url + address(name, names))
        plain = f"zoom-{who}-" + "".join(c if c.isalnum() else "-" for c in name)
        for zoom, (width, height) in ZOOMS.items():
            page.set_viewport_size({"width": width, "height": height})
            if folder:
                page.screenshot(path=Path(folder) / f"{plain}-{zoom}.png")
            over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            faults = [*page.evaluate(CUT), *page.evaluate(COVERED), *page.evaluate(FIXED)]
            if over > 0 or faults:
                lost[name, zoom] = (over, faults[:4])
        found = Axe().run(page).response["violations"]  # of any impact, best practice included
        if found:
            lost[name, "axe"] = [(v["id"], v["nodes"][0]["html"][:90]) for v in found]
        for look, (width, height) in LOOKS.items() if folder else ():
            page.set_viewport_size({"width": width, "height": height})
            readable(page, f"{plain}-{look}")
    assert lost == {}
