"""What annotators meet is in every language of the site, and the catalogues are whole."""

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core import mail
from django.test import Client, TestCase
from django.urls import URLResolver, get_resolver
from django.utils import timezone, translation
from django.utils.formats import date_format

from apps.accounts.models import Membership, Notice, Project, Role, User
from apps.accounts.services import invitation_create
from apps.accounts.services.mails import invitation_mail
from apps.common import front, numbers, registry
from apps.common.admission import Admission, Limits
from apps.common.templatetags.frame import ago
from apps.labeling import services
from apps.labeling.models import Comparison, LabelingSettings, QualificationAttempt, Slot, Vote
from apps.labeling.models.settings import reason_chips
from apps.labeling.screens.label import REASONS
from apps.labeling.services.comments import comment_add, question_ask
from apps.labeling.services.notices import ruling_tell, work_tell
from apps.labeling.services.writing import text_review
from tests.labeling.pairs import (
    answer_all,
    pairs_make,
    practice_make,
    rate,
    tasks_make,
    vote,
    votes_age,
)
from tests.labeling.writing import accepted, batch_make, submitted, taken
from tests.people import PASSWORD, person_make
from tests.translations import DOMAINS, GERMAN, MIRRORED, mirrored, mo_read, outside, po_read

PLACEHOLDER = re.compile(r"%\(\w+\)s|%[sd]|\{\w*\}|</?\w+[^>]*>")
# Letters and words that are the same in every language, and what the people of the tests wrote.
SAME = re.compile(
    r"Concord|Ada|(?:read|label|write|train|approve|admin):|UTC|English|Deutsch|API|Markdown|Prompt|Ana\b|ana\b|Arguments|Ben\b|Esc\b"
    r"|Question \d+: how long is a day\?|Practice \d+: what is 2 \+ 2\?|Because of \w+, says \d+"
    r"|Twenty-four hours, in answer \d+\.|It depends, says answer \d+\.|(Four|Five), in \w+ \d+\."
    r"|Answer \d to question \d+\.|Kindness|Read closely|Be fair|ana@example.org|Friendly"
    r"|Because of this\.|EUR|CSV|(?:[A-Z2-7]{4}-){2}[A-Z2-7]{4}|\d+ \w\b"
)


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_message_has_a_german_one_with_the_same_placeholders(domain: str) -> None:
    messages = po_read(GERMAN / f"{domain}.po")[1:]
    compiled = mo_read(GERMAN / f"{domain}.mo")
    assert len(messages) == len({message.key for message in messages}) > 50
    for message in messages:
        wanted = 1 if message.msgid_plural is None else 2
        assert not message.fuzzy, message.msgid
        assert len(message.msgstr) == wanted, message.msgid
        for source, text in zip(
            (message.msgid, message.msgid_plural), message.msgstr, strict=False
        ):
            assert text, message.msgid
            assert sorted(PLACEHOLDER.findall(text.replace("Strg", "Ctrl"))) == sorted(
                PLACEHOLDER.findall(source)
            ), text
            assert '"' not in text.replace('="', "").replace('">', ""), (
                text
            )  # it may be an attribute
        assert compiled[message.key] == "\0".join(message.msgstr), message.msgid
    assert compiled.keys() - {""} == {message.key for message in messages}


def test_numbers_and_times_have_the_signs_of_the_language() -> None:
    assert numbers.count(12_345) == "12,345"
    with translation.override("de"):
        assert numbers.count(12_345) == "12.345"
        assert (numbers.fixed(-1234.5, 1), numbers.percent(0.025)) == ("−1.234,5", "2,5 %")
        assert numbers.figure(0.7134) == "0,713"
        assert ">vor 3 Tagen<" in ago(timezone.now() - timedelta(days=3, minutes=1))
        assert ">vor 1 Tag<" in ago(timezone.now() - timedelta(days=1, minutes=1))


def test_what_is_stored_stays_english_and_its_words_do_not(
    project: Project, ana: User, signed_in: Callable[[User], Client]
) -> None:
    assert list(REASONS) == reason_chips()
    pairs_make(project, 2, show_rationale=True, reasons=["Clear", "Kindness"])
    client = signed_in(ana)
    page = client.get(f"/p/{project.slug}/label/", HTTP_ACCEPT_LANGUAGE="de")
    html = page.content.decode()
    assert 'value="Not my subject"' in html
    assert "Nicht mein Fachgebiet" in html
    assert re.search(r'value="Clear"[^>]*><span>Klar<', html)
    assert re.search(r'value="Kindness"[^>]*><span>Kindness<', html)
    english = client.get(f"/p/{project.slug}/label/", HTTP_ACCEPT_LANGUAGE="en").content.decode()
    assert "Nicht mein" not in english
    assert "A is better" in english


def test_mails_are_in_the_language_of_the_person_or_of_who_invites(
    project: Project, ana: User, ada: User, client: Client
) -> None:
    User.objects.filter(pk__in=(ana.pk, ada.pk)).update(language="de")
    ada.refresh_from_db()
    client.post("/password/forgotten/", {"email": ana.email}, HTTP_ACCEPT_LANGUAGE="en")
    invitation, _ = invitation_create(project=project, role="annotator", email="b@x.org", by=ada)
    assert invitation_mail(invitation, "/invitation/x/")
    reset, invited = mail.outbox
    assert "Passwort" in reset.subject
    assert "Passwort" in reset.body
    assert "lädt Sie" in invited.body
    with translation.override("de"):
        assert date_format(invitation.expires_at, "DATE_FORMAT") in invited.body


# --- every page in a language that is not there, from right to left -------------------------------


class Seen(HTMLParser):
    """What a page says: its texts, and the attributes that people see or hear."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.attributes: list[str] = []
        self.root: dict[str, str | None] = {}
        self._quiet = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "html":
            self.root = given
        self._quiet += tag in ("script", "style", "kbd", "template", "textarea")
        for name in ("aria-label", "title", "placeholder", "alt", "data-page-title"):
            if given.get(name):
                self.attributes.append(given[name] or "")

    def handle_endtag(self, tag: str) -> None:
        self._quiet -= tag in ("script", "style", "kbd", "template", "textarea")

    def handle_data(self, data: str) -> None:
        if not self._quiet:
            self.texts.append(data)


def unmarked(html: str) -> list[str]:
    """Words that no catalogue has."""
    seen = Seen()
    seen.feed(
        re.sub(
            r'<div class="(prose|changes)".*?</div>|<span class="mono">.*?</span>',
            "",
            html,
            flags=re.DOTALL,
        )
    )
    assert seen.root["dir"] == "rtl"
    assert seen.root["lang"] == MIRRORED
    texts = [outside(" ".join(seen.texts)), *map(outside, seen.attributes)]
    return [word for text in texts for word in re.findall(r"[A-Za-z]{2,}.*", SAME.sub("", text))]


@pytest.fixture
def hebrew(tmp_path: Path) -> Iterator[dict[str, str]]:
    with mirrored(tmp_path):
        yield {"HTTP_ACCEPT_LANGUAGE": MIRRORED}


WHOLE = {
    "criteria": [{"key": "friendly", "label": "Friendly"}],
    "show_rationale": True,
    "show_strength": True,
    "show_improve": True,
}


def texts_written(
    project: Project, ana: User, ada: User, look: Callable[..., None], root: str
) -> None:
    """Every page of writing work, with texts of digits, which are in every language."""
    look(f"{root}/write/mine/", "no texts")
    look(f"{root}/write/", "nothing to write")
    batch_make(project, name="1", prompts=[{"prompt": f"{n} + {n}?"} for n in range(3)])
    look("/my-work/", "work, texts")
    look(f"{root}/write/", "a text")
    text = taken(project, ana)
    look(f"{root}/write/{text.pk}/submit/", "too short", body="", key="k")
    look(f"{root}/write/{text.pk}/submit/", "personal", body="4 @ 192.0.2.1, 8.8.8.8", key="k")
    version = submitted(text, ana, "8.8.8.8", confirmed=True)
    look(f"{root}/write/{text.pk}/", "a text that waits")
    given = {"text": text.pk, "reviewer": ada, "version": version.number}
    text_review(**given, verdict="rejected", reason="1!")
    look(f"{root}/write/", "sent back")
    look(f"{root}/write/{text.pk}/skip/", "passed on", reason="1")
    accepted(project, ana, ada, "2.")
    look(f"{root}/write/mine/", "texts")
    look(f"{root}/write/review/", "nothing to review")
    batch_make(project, name="2", prompts=[{"prompt": "5 + 5?"}], review="peers")
    taken(project, ana)  # the last of the first batch, so that Ada gets the next one
    theirs = taken(project, ada)
    submitted(theirs, ada, "10.")
    look(f"{root}/write/review/", "one to review")
    look(f"{root}/write/{theirs.pk}/", "a review")
    look("/my-work/", "work, reviews")


def test_every_page_of_an_annotator_is_translated(
    project: Project,
    ana: User,
    ada: User,
    signed_in: Callable[[User], Client],
    hebrew: dict[str, str],
) -> None:
    left: dict[str, list[str]] = {}
    client = signed_in(ana)
    root = f"/p/{project.slug}"

    def look(path: str, name: str = "", to: Client = client, **post: str) -> None:
        send = to.post if post else to.get
        answer = send(path, post, follow=True, **hebrew)
        assert b"<html" in answer.content, (path, answer.status_code, answer.redirect_chain)
        if words := unmarked(answer.content.decode()):
            left[name or path] = words

    pairs_make(project, 4, **WHOLE)
    look(f"{root}/label/")
    look(f"{root}/label/vote/", "refused", answer="left", key="x", slot="999999")
    look("/my-work/")
    look(f"{root}/overview/")
    look(f"{root}/notifications/", "nothing new")
    look(f"{root}/questions/")
    look(f"{root}/opt-outs/")
    look(f"{root}/opt-outs/", "opted out", avoids_sensitive="on")
    look(f"{root}/answers/", "no answers")
    vote(project, ana, strength=2, rationale="Kindness")
    stored = Vote.objects.get()
    look(f"{root}/label/?answer={stored.pk}", "an answer")
    look(f"{root}/answers/")
    look(f"{root}/answers/?choice=tie", "answers, none")
    look(f"{root}/answers/{stored.pk}/withdraw/", "withdrawn", back_to="answers")
    texts_written(project, ana, ada, look, root)
    while isinstance(services.slot_lease_next(project=project, annotator=ana), services.Lease):
        vote(project, ana)
    look(f"{root}/label/", "nothing left")
    tasks_make(project, 2)
    look(f"{root}/label/", "to rate")
    look(f"{root}/rate/mine/", "no ratings")
    rate(project, ana, [1, 2, 3])
    look(f"{root}/rate/mine/")
    rate(project, ana, [1, 2, 3])
    look(f"{root}/label/", "nothing to rate")
    look(f"{root}/guidelines/", "no guidelines")
    for body in ("Be fair.", "Be fair.\n\nRead closely."):
        services.guideline_publish(project=project, by=ada, body=body, is_major=True)
    look(f"{root}/guidelines/")
    look(f"{root}/label/", "guidelines to read")
    look("/my-work/", "work, guidelines")
    look(f"{root}/guidelines/acknowledge/", "read", version="2")
    practice_make(project)
    look(f"{root}/label/", "qualification first")
    look(f"{root}/qualification/")
    look(f"{root}/qualification/start/", "a practice pair", x="1")
    QualificationAttempt.objects.all().delete()
    answer_all(project, ana, [False, False, True])
    look(f"{root}/qualification/?answered=1", "judged")
    look(f"{root}/qualification/", "not passed")
    look("/account/")
    look("/projects/")
    look("/account/profile/", "profile", language="xx", display_name="Ana")
    look("/account/password/", "password", old_password="x", new_password1="y", new_password2="z")
    look(f"{root}/label/?answer=99999", "no such answer")
    look(f"{root}/progress/", "practice")
    gold_seen(project, ana)
    look(f"{root}/progress/", "gold")
    look(f"{root}/answers/{stored.pk}/withdraw/", "withdrawn too late", back_to="answers")
    look(f"{root}/hours/")
    look(f"{root}/hours/?month=2020-01", "no hours")
    LabelingSettings.objects.filter(project=project).update(completion_votes=1, vote_price=0.1)
    look(f"{root}/hours/", "completed, priced")
    LabelingSettings.objects.filter(project=project).update(completion_votes=99)
    look(f"{root}/hours/", "not completed")
    rulings(project, ana, ada)
    look(f"{root}/notifications/", "news of every kind")
    look(f"{root}/settings/", "a page of admins")
    look("/p/nowhere/label/", "no such project")
    look("/nowhere/", "no such page")
    look(f"{root}/label/?a=%00", "a NUL character")
    look(f"{root}/label/vote/", "too large", key="x" * settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
    Membership.objects.filter(user=ana).update(role=Role.ENGINEER)
    look(f"{root}/label/", "not allowed")
    look("/my-work/", "nowhere to label")
    assert left == {}


def gold_seen(project: Project, ana: User) -> None:
    """All that she answered were gold pairs, a day ago, and may be shown."""
    LabelingSettings.objects.filter(project=project).update(show_gold=True)
    Comparison.objects.update(gold="a", gold_explanation="Because of this.")
    Slot.objects.filter(annotator=ana, state="done").update(kind=Slot.Kind.GOLD)
    votes_age(days=2)


def rulings(project: Project, ana: User, ada: User) -> None:
    """Every kind of news that an annotator gets and the visits before have not made."""
    LabelingSettings.objects.filter(project=project).update(show_rulings=True)
    mine = Vote.objects.filter(annotator=ana, is_current=True).order_by("pk")
    for stored, choice in zip(
        mine, (*mine.values_list("choice", flat=True)[:1], "tie"), strict=False
    ):
        ruling_tell(stored.comparison, choice, ada)
    question = question_ask(project=project, annotator=ana, slot=mine[0].slot_id, text="42?")
    comment_add(comparison=question.comparison, author=ada, text="42.", answers=question.pk)
    work_tell(project, 1, again=True)
    Notice.objects.filter(kind="work").update(at=timezone.now() - timedelta(days=1))
    work_tell(project, 7)


def test_news_are_told_in_the_language_of_whoever_reads_them(
    project: Project, ana: User, ada: User, signed_in: Callable[[User], Client], settings: Any
) -> None:
    settings.EMAIL_URL = "memory://"
    pairs_make(project, 1)
    Notice.objects.all().delete()  # made by the import just now
    work_tell(project, 12_345)
    path = f"/p/{project.slug}/notifications/"
    assert "12.345 neue" in signed_in(ana).get(path, HTTP_ACCEPT_LANGUAGE="de").content.decode()
    told = signed_in(ana).get(f"/api/v1{path.replace('/p/', '/projects/')[:-1]}").json()
    assert any("12,345 tasks" in one["text"] for one in told)
    rita = person_make("Rita", project, Role.REVIEWER)
    User.objects.filter(pk=rita.pk).update(language="de", email="rita@example.org")
    with TestCase.captureOnCommitCallbacks(execute=True):
        comment_add(comparison=Comparison.objects.get(), author=ada, text="See @rita 100 %")
    assert "erwähnt" in mail.outbox[-1].subject
    assert "erwähnt" in mail.outbox[-1].body


def views(resolver: Any = None, space: str = "") -> Iterator[tuple[str, Any]]:
    """Every address that a name leads to, with its view."""
    for one in (resolver or get_resolver()).url_patterns:
        if isinstance(one, URLResolver):
            yield from views(one, f"{space}{one.namespace}:" if one.namespace else space)
        else:
            yield f"{space}{one.name}", one.callback


def test_every_page_that_an_annotator_may_open_is_a_translated_one() -> None:
    """By role; of a page that is translated the words are read above."""
    files = {"labeling:hours_csv"}
    theirs = {name for name, view in views() if Role.ANNOTATOR in getattr(view, "roles", ())}
    assert len(theirs) > 20
    assert {name for name in theirs - files if not registry.is_translated(name)} == set()


@pytest.mark.usefixtures("fresh_sign_in_counts")
def test_every_page_before_signing_in_is_translated(
    project: Project,
    ana: User,
    ada: User,
    client: Client,
    hebrew: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, token = invitation_create(project=project, role="annotator", by=None)
    left = {}
    for path, post in (
        ("/sign-in/", {}),
        ("/sign-in/", {"login": "ana", "password": "wrong"}),
        ("/password/forgotten/", {}),
        ("/password/sent/", {}),
        ("/password/new/x/y/", {}),
        (f"/invitation/{token}/", {}),
        (f"/invitation/{token}/", {"username": "ana", "password": PASSWORD}),
        (f"/invitation/{token}/", {"username": "", "password": "ana"}),
        ("/invitation/x/", {}),
    ):
        answer = client.post(path, post, **hebrew) if post else client.get(path, **hebrew)
        if words := unmarked(answer.content.decode()):
            left[path, str(post)] = words
    strict = Client(enforce_csrf_checks=True)
    for path in ("/sign-in/", f"/p/{project.slug}/settings/"):
        if words := unmarked(strict.post(path, {"x": "1"}, **hebrew).content.decode()):
            left["csrf", path] = words
    for _ in range(5):
        answer = client.post("/sign-in/", {"login": "ana", "password": "wrong"}, **hebrew)
    assert "errorlist" in answer.content.decode() or 'role="alert"' in answer.content.decode()
    if words := unmarked(answer.content.decode()):
        left["sign-in limit", ""] = words
    monkeypatch.setattr(front.floods, "enter", lambda _: False)
    client.cookies[settings.SESSION_COOKIE_NAME] = "x"
    flooded = client.get("/sign-in/", **hebrew).content.decode()
    assert outside(re.sub("<.*?>", "", flooded)) == ""
    assert MIRRORED in flooded
    monkeypatch.undo()
    # Who waits in vain reads why, before anything else is known of the request.
    monkeypatch.setattr(front, "admission", Admission(Limits(served=0, patience=0)))
    if words := unmarked(client.get("/sign-in/", **hebrew).content.decode()):
        left["busy", ""] = words
    assert left == {}


def test_the_check_finds_a_word_that_nobody_has_marked() -> None:
    page = f'<html dir="rtl" lang="{MIRRORED}"><p>⟦ש Save⟧ {{}}</p>'
    assert unmarked(page.format("12")) == []
    assert unmarked(page.format("Send")) == ["Send"]
    assert unmarked(page.format('<i title="Send"></i>')) == ["Send"]
