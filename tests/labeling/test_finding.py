"""Comparisons are found by what is in them, listed in any order, and acted on many at once."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from apps.accounts.models import AuditEvent, Project, User
from apps.accounts.services import token_create
from apps.common.errors import Conflict, DomainError, Refused
from apps.labeling import services
from apps.labeling.models import BulkAction, Comparison, SavedView, SearchPending, Slot
from apps.labeling.selectors import finding
from apps.labeling.selectors.finding import SORTS, Wanted
from tests.labeling.pairs import annotators_make, pairs_make, rows_make, vote

SignIn = Callable[[User], Client]
PAGE = "/p/arguments/comparisons/"


def row(name: str, prompt: str, a: str, b: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "prompt": prompt, "response_a": a, "response_b": b} | more


@pytest.fixture
def texts(project: Project) -> Project:
    services.comparisons_import(
        project=project,
        batch="first",
        rows=[
            row("q001", "How does an ECONOMY grow?", "By trade.", "By war.", topic="money"),
            row("q002", "Who rules?", "The economist/banker.", "Nobody, said Zoë’s aunt."),
            row("q003", "経済について教えて", "税金の話です", "Steuern für alle", model_a="gpt-x"),
            row("q004", "War?", "It is a trade war.", "=p:elsewhere", topic="mo'ney\\"),
        ],
    )
    return project


def found(project: Project, **wanted: Any) -> list[str]:
    page = finding.comparisons_page(project=project, wanted=Wanted(**wanted), sort="id")
    assert page.n == len(page.rows)
    return [comparison.external_id for comparison in page.rows]


@pytest.mark.parametrize(
    ("search", "names"),
    [
        ("econ", ["q001", "q002"]),
        ("Economy TRADE", ["q001"]),
        ("economy nowhere", []),
        ("war", ["q001", "q004"]),
        ('"trade war"', ["q004"]),
        ('"war trade"', []),
        ("banker", ["q002"]),  # a slash ends a word
        ("ZOË", ["q002"]),
        ("経済", ["q003"]),
        ("済経", []),
        ("税金 steuer", ["q003"]),
        ("q002", ["q002"]),
        ("Q004", ["q004"]),
        ("q00", []),  # an id is found whole
        ("!?", []),
        ("' | '=p:arguments", []),
        ('"', []),
    ],
)
def test_a_search_finds_words_of_prompt_and_answers(
    texts: Project, search: str, names: list[str]
) -> None:
    assert found(texts, search=search) == names


def test_what_takes_long_to_count_is_shown_without_a_number(
    texts: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(**_: Any) -> int:
        with connection.cursor() as cursor:
            cursor.execute("select pg_sleep(60)")
        raise AssertionError("was not stopped")

    monkeypatch.setattr(finding, "COUNT_WITHIN", "20ms")
    monkeypatch.setattr(finding, "comparisons_count", slow)
    page = finding.comparisons_page(project=texts, wanted=Wanted(search='"trade war"'))
    assert (page.n, page.n_words, len(page.rows)) == (None, "1+", 1)
    with connection.cursor() as cursor:
        cursor.execute("show statement_timeout")
        assert cursor.fetchone() == ("0",)


def test_no_search_finds_what_another_project_has(texts: Project, olga: User) -> None:
    other = Project.objects.get(slug="elsewhere")
    assert found(other, search="economy") == found(other, topic="money") == []


def test_filters_narrow_together(texts: Project) -> None:
    services.comparisons_import(project=texts, batch="second", rows=rows_make(1))
    assert found(texts, batch="second") == ["pair-1"]
    assert found(texts, topic="money") == ["q001"]
    assert found(texts, topic="mo'ney\\") == ["q004"]
    assert found(texts, model="gpt-x") == ["q003"]
    assert found(texts, search="econ", topic="money") == ["q001"]
    assert found(texts, search="econ", model="gpt-x") == []
    (ana,) = annotators_make(texts, 1)
    cast = vote(texts, ana, flags=["unsafe"]).vote
    name = cast.comparison.external_id
    assert found(texts, annotator=ana.pk) == found(texts, flag="unsafe") == [name]
    assert found(texts, votes=1) == [name]
    assert found(texts, flag="personal_data") == found(texts, winner="tie") == []
    day = cast.comparison.created_at.date()
    assert len(found(texts, since=day, until=day)) == 5
    assert found(texts, until=day.replace(year=day.year - 1)) == []
    assert finding.facets_of(project=texts) == {
        "batch": ["first", "second"],
        "topic": ["mo'ney\\", "money"],
        "model": ["gpt-x"],
    }


def test_a_long_import_is_found_once_a_worker_came_by(project: Project) -> None:
    services.comparisons_import(project=project, rows=rows_make(600))
    assert finding.pending_count(project=project) == 600
    assert finding.comparisons_count(project=project, wanted=Wanted(search="twenty")) == 0
    assert services.comparisons_index() == 600
    assert finding.comparisons_count(project=project, wanted=Wanted(search="twenty")) == 600
    assert not SearchPending.objects.exists()


def test_words_go_with_their_comparison(texts: Project) -> None:
    Slot.objects.all().delete()
    Comparison.objects.filter(external_id="q001")._raw_delete("default")
    assert found(texts, search="econ") == ["q002"]


@pytest.mark.parametrize("sort", [f"{sign}{name}" for name in SORTS for sign in ("", "-")])
@pytest.mark.parametrize("wanted", [Wanted(), Wanted(search="question"), Wanted(state="open")])
def test_pages_forwards_and_backwards_hold_each_row_once(
    project: Project, monkeypatch: pytest.MonkeyPatch, sort: str, wanted: Wanted
) -> None:
    monkeypatch.setattr(finding, "_WALKED", 4)
    pairs = pairs_make(project, 11)
    for number, pair in enumerate(pairs):
        Comparison.objects.filter(pk=pair.pk).update(
            priority=number % 3 / 7,
            n_votes=number % 2,
            state="open" if number % 4 or wanted.search else "decided",
        )
    forwards, at, pages = [], "", []
    while True:
        page = finding.comparisons_page(project=project, wanted=wanted, sort=sort, at=at, size=3)
        pages.append(page)
        forwards += [comparison.pk for comparison in page.rows]
        if not page.after:
            break
        at = page.after
    values = [
        (getattr(Comparison.objects.get(pk=pk), SORTS[sort.strip("-")]), pk) for pk in forwards
    ]
    assert values == sorted(values, reverse=sort.startswith("-"))
    assert len(set(forwards)) == len(forwards) == page.n == (8 if wanted.state else 11)
    assert pages[0].before == ""
    assert page.before
    backwards, at = [], "end"
    while True:
        page = finding.comparisons_page(project=project, wanted=wanted, sort=sort, at=at, size=3)
        backwards = [comparison.pk for comparison in page.rows] + backwards
        if not page.before:
            break
        at = page.before
    assert backwards == forwards
    third = Comparison.objects.get(pk=forwards[2])
    beside = finding.comparisons_beside(project=project, wanted=wanted, sort=sort, comparison=third)
    assert beside == (forwards[1], forwards[3])


@pytest.mark.parametrize("at", [">", "<x~y", ">nonsense~1", "end~", ">1~-1", "~"])
def test_an_address_that_is_no_page_shows_the_first(
    texts: Project, rita: User, signed_in: SignIn, at: str
) -> None:
    for sort in ("-time", "votes", "nothing"):
        answer = signed_in(rita).get(PAGE, {"at": at, "sort": sort})
        assert answer.status_code == 200
        assert len(answer.context["page"].rows) == 4


def test_the_page_keeps_filter_and_order(texts: Project, rita: User, signed_in: SignIn) -> None:
    client = signed_in(rita)
    answer = client.get(PAGE, {"q": "econ", "topic": "money", "sort": "id"})
    body = answer.content.decode()
    assert 'data-chip="topic"' in body
    assert 'aria-sort="ascending"' in body
    assert answer.context["chips"][0]["without"] == "topic=money&sort=id"
    both = client.get(PAGE, {"q": "econ", "sort": "id"})
    first, second = both.context["page"].rows
    one = client.get(f"{PAGE}{first.pk}/", {"q": "econ", "sort": "id"})
    assert (one.context["before"], one.context["after"]) == (None, second.pk)
    assert f"{PAGE}{second.pk}/?q=econ&amp;sort=id" in one.content.decode()


def test_what_is_no_filter_is_marked_and_narrows_nothing(
    texts: Project, rita: User, signed_in: SignIn
) -> None:
    answer = signed_in(rita).get(PAGE, {"votes": "many", "since": "2026-99-01", "state": "odd"})
    assert answer.context["page"].n == 4
    assert set(answer.context["form"].errors) == {"votes", "since", "state"}


# Many at once.


def ids(project: Project) -> list[int]:
    return list(
        Comparison.objects.filter(project=project).order_by("pk").values_list("pk", flat=True)
    )


def act(project: Project, by: User, action: str, **more: Any) -> BulkAction:
    given = {"ids": ids(project), "key": action} | more
    return services.comparisons_bulk(project=project, action=action, by=by, **given)


def test_a_priority_moves_comparisons_and_their_places(project: Project, emil: User) -> None:
    pairs = pairs_make(project, 3)
    Slot.objects.filter(task=pairs[0], position=1).update(priority=1.0)  # an extra one
    done = act(project, emil, "priority", value=2.5)
    assert (done.n_selected, done.n_changed) == (3, 3)
    assert set(Comparison.objects.values_list("priority", flat=True)) == {2.5}
    assert sorted(set(Slot.objects.values_list("priority", flat=True))) == [2.5, 3.5]
    again = act(project, emil, "priority", value=2.5, key="other")
    assert (again.n_changed, again.left_out) == (0, {"has this priority already": 3})


def test_the_same_submit_twice_acts_once(project: Project, ada: User) -> None:
    pairs_make(project, 2)
    first = act(project, ada, "votes", value=2)
    assert act(project, ada, "votes", value=2).pk == first.pk
    assert set(Comparison.objects.values_list("overlap", flat=True)) == {5}
    assert Slot.objects.filter(state="free").count() == 10
    assert AuditEvent.objects.filter(action="comparisons.votes").count() == 1


def test_more_votes_open_what_was_contested(project: Project, ada: User) -> None:
    pairs_make(project, 1, overlap=2, max_overlap=2, least_votes=2, least_agreeing=2)
    people = annotators_make(project, 3)
    vote(project, people[0], "a")
    vote(project, people[1], "b")
    pair = Comparison.objects.get()
    assert pair.state == "contested"
    done = act(project, ada, "votes", value=1)
    pair.refresh_from_db()
    assert (done.n_changed, pair.state, pair.overlap) == (1, "open", 3)
    vote(project, people[2], "a")
    pair.refresh_from_db()
    assert pair.state == "decided"
    assert act(project, ada, "votes", value=1, key="k").left_out == {"is decided": 1}


def test_drop_and_review_take_comparisons_out_of_the_queue(project: Project, ada: User) -> None:
    pairs_make(project, 3)
    one, *others = ids(project)
    assert act(project, ada, "review", ids=[one], reason="odd").n_changed == 1
    with pytest.raises(Conflict) as changed:
        act(project, ada, "drop", expected=2)
    assert changed.value.code == "changed"
    assert act(project, ada, "drop", ids=others, expected=2).n_changed == 2
    states = dict(Comparison.objects.values_list("pk", "state"))
    assert states == {one: "review", others[0]: "dropped", others[1]: "dropped"}
    assert not Slot.objects.exclude(state="withdrawn").exists()
    outcomes = Comparison.objects.order_by("pk").values_list("decision__outcome", flat=True)
    assert list(outcomes) == ["needs_review", "dropped", "dropped"]


@pytest.mark.parametrize(
    ("person", "allowed"),
    [("rita", {"review"}), ("emil", {"priority"}), ("ana", set()), ("olga", set())],
)
def test_each_role_may_do_its_own(
    project: Project, request: pytest.FixtureRequest, person: str, allowed: set[str]
) -> None:
    pairs_make(project, 1)
    user = request.getfixturevalue(person)
    for action in services.BULK_ROLES:
        if action in allowed:
            act(project, user, action, value=1, reason="so")
        else:
            with pytest.raises(Refused):
                act(project, user, action, value=1, reason="so")


@pytest.mark.parametrize(
    ("action", "more", "field"),
    [
        ("priority", {}, "value"),
        ("priority", {"value": float("nan")}, "value"),
        ("votes", {"value": 1.5}, "value"),
        ("votes", {"value": 0}, "value"),
        ("review", {"reason": " "}, "reason"),
        ("drop", {"reason": "x" * 251}, "reason"),
        ("drop", {"key": ""}, "key"),
        ("explode", {}, "action"),
    ],
)
def test_what_is_wrong_changes_nothing(
    project: Project, ada: User, action: str, more: dict[str, Any], field: str
) -> None:
    pairs_make(project, 1)
    with pytest.raises(DomainError) as wrong:
        act(project, ada, action, **more)
    assert wrong.value.field == field
    assert not BulkAction.objects.exists()


def test_the_page_says_what_it_would_do_then_does_it(
    project: Project, ada: User, signed_in: SignIn
) -> None:
    pairs_make(project, 4)
    client = signed_in(ada)
    look = client.get(f"{PAGE}bulk/", {"action": "drop", "all": 1, "q": "question"})
    assert 'data-selected="4" data-changed="4"' in look.content.decode()
    sent = {"action": "drop", "all": 1, "key": look.context["key"], "expected": 4}
    for _ in range(2):
        done = client.post(f"{PAGE}bulk/?q=question", sent)
        assert done.status_code == 302
        assert done["Location"].endswith("?q=question")
    assert Comparison.objects.filter(state="dropped").count() == 4
    assert AuditEvent.objects.filter(action="comparisons.drop").count() == 1
    none = client.get(f"{PAGE}bulk/", {"action": "drop"})
    assert none.status_code == 302


def test_a_missing_reason_is_marked_at_its_field(
    project: Project, rita: User, signed_in: SignIn
) -> None:
    (pair,) = pairs_make(project, 1)
    sent = {"action": "review", "id": pair.pk, "key": "k", "reason": ""}
    answer = signed_in(rita).post(f"{PAGE}bulk/", sent)
    assert answer.status_code == 400
    assert 'aria-invalid="true"' in answer.content.decode()
    refused = signed_in(rita).post(f"{PAGE}bulk/", sent | {"action": "drop"})
    assert refused.status_code == 403
    pair.refresh_from_db()
    assert pair.state == "open"


def test_checked_comparisons_are_exported_alone(
    project: Project, rita: User, signed_in: SignIn
) -> None:
    pairs = pairs_make(project, 3)
    answer = signed_in(rita).get(
        f"{PAGE}results/", {"format": "jsonl", "id": [pairs[0].pk, pairs[2].pk]}
    )
    sent = [json.loads(line) for line in b"".join(answer.streaming_content).splitlines()]
    assert {one["comparison"] for one in sent} == {pairs[0].pk, pairs[2].pk}


def test_views_are_ones_own_or_shared(
    project: Project, rita: User, emil: User, ada: User, signed_in: SignIn
) -> None:
    rita_s = signed_in(rita)
    for name, more in (("mine", {}), ("ours", {"is_shared": "on"})):
        rita_s.post(f"{PAGE}views/?state=contested&at=end&sort=votes", {"name": name} | more)
    assert set(SavedView.objects.values_list("query", flat=True)) == {"state=contested&sort=votes"}
    seen = [view.name for view in finding.views_of(project=project, user=emil)]
    assert seen == ["ours"]
    ours, mine = SavedView.objects.get(name="ours"), SavedView.objects.get(name="mine")
    assert signed_in(emil).post(f"{PAGE}views/", {"delete": ours.pk}).status_code == 403
    signed_in(emil).post(f"{PAGE}views/", {"delete": mine.pk})
    signed_in(ada).post(f"{PAGE}views/", {"delete": ours.pk})
    assert SavedView.objects.get() == mine


def test_everything_goes_by_api_too(project: Project, ada: User, client: Client) -> None:
    pairs_make(project, 5)
    _, token = token_create(user=ada, name="t", scopes=["read", "write"], days=1)
    client.defaults["HTTP_AUTHORIZATION"] = f"Bearer {token}"
    root = f"/api/v1/projects/{project.slug}/comparisons"

    def send(address: str, **data: Any) -> Any:
        return client.post(root + address, data, content_type="application/json").json()

    page = client.get(root, {"q": "twenty", "limit": 2, "sort": "id"}).json()
    assert (page["count"], len(page["items"]), page["before"]) == (5, 2, "")
    more = client.get(root, {"q": "twenty", "limit": 2, "sort": "id", "at": page["after"]}).json()
    assert more["items"][0]["id"] > page["items"][1]["id"]
    assert client.get(root, {"sort": "odd"}).status_code == 400
    assert client.get(root, {"state": "odd"}).status_code == 400
    asked = {"action": "drop", "filters": {"q": "twenty"}, "key": "1"}
    assert send("/bulk", **asked, dry_run=True)["n_changed"] == 5
    assert send("/bulk", **asked)["n_changed"] == send("/bulk", **asked)["n_changed"] == 5
    assert send("/bulk", action="drop", key="2")["code"] == "invalid"
    assert send("/bulk", action="drop", key="3", comparisons=[10**9])["code"] == "not_found"
    view = send("/views", name="v", filters={"state": "dropped"})
    assert view["query"] == "state=dropped"
    assert [one["name"] for one in client.get(f"{root}/views").json()] == ["v"]
    assert client.delete(f"{root}/views/{view['id']}").status_code == 204


def test_the_words_are_cut_before_they_are_too_many(project: Project) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "select length(concord_said(%s))", [json.dumps([{"content": "é x " * 50_000}])]
        )
        assert cursor.fetchone()[0] <= 80_000
    long = " ".join(f"w{number}" for number in range(50_000))
    services.comparisons_import(project=project, rows=[row("q", long, long + "a", long + "b")])
    assert found(project, search="w77") == ["q"]
