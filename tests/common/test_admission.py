"""Who is served, who waits and who is refused in one web process."""

import threading

import pytest

from apps.common.admission import (
    FILE,
    HEAVY,
    PAGE,
    STRANGERS,
    VOTE,
    Admission,
    Floods,
    Limits,
    Place,
)
from apps.common.errors import TooMany, Unavailable

FEW = Limits(served=3, others=2, per_person=1, waiting=1, waiting_per_person=1, patience=30.0)
NOW = Limits(served=3, others=2, per_person=1, waiting=4, waiting_per_person=1, patience=0.0)


def test_a_vote_is_served_while_pages_fill_their_places():
    admission = Admission(NOW)
    for person in ("rita", "emil"):
        admission.enter(Place(person))
    with pytest.raises(Unavailable):
        admission.enter(Place("ada"))
    admission.enter(Place("ana", VOTE))


def test_one_person_gets_no_more_than_their_places():
    admission = Admission(NOW)
    place = admission.enter(Place("rita"))
    with pytest.raises(TooMany):
        admission.enter(Place("rita"))
    admission.leave(place)
    admission.enter(Place("rita"))


def waiting(admission: Admission, person: str, kind: str = PAGE) -> tuple[threading.Thread, list]:
    """A request that waits; returns once it does. The list holds its place when it has one."""
    stands, got = threading.Event(), []
    thread = threading.Thread(
        target=lambda: got.append(admission.enter(Place(person, kind), before_waiting=stands.set)),
        daemon=True,
    )
    thread.start()
    assert stands.wait(30)
    return thread, got


def test_who_waits_is_served_when_a_place_is_left():
    admission = Admission(FEW)
    first = admission.enter(Place("rita"))
    thread, got = waiting(admission, "rita")
    with pytest.raises(TooMany):  # one of hers waits already
        admission.enter(Place("rita"))
    admission.leave(first)
    thread.join(30)
    assert [place.person for place in got] == ["rita"]


def test_a_full_line_refuses_pages_and_takes_votes():
    admission = Admission(FEW)
    places = [admission.enter(Place(person)) for person in ("rita", "emil")]
    places.append(admission.enter(Place("ana", VOTE)))
    page, page_got = waiting(admission, "ada")
    with pytest.raises(Unavailable):
        admission.enter(Place("olga"))
    vote, vote_got = waiting(admission, "ben", VOTE)
    for place in places:
        admission.leave(place)
    page.join(30)
    vote.join(30)
    assert len(page_got) == len(vote_got) == 1


def test_more_strangers_than_one_person_may_wait_and_none_is_told_it_is_their_fault():
    admission = Admission(Limits(per_person=1, waiting_per_person=0, waiting_strangers=1))
    place = admission.enter(Place(STRANGERS))
    thread, got = waiting(admission, STRANGERS)
    with pytest.raises(Unavailable):
        admission.enter(Place(STRANGERS))
    admission.leave(place)
    thread.join(30)
    assert len(got) == 1


def test_one_project_gets_no_more_than_its_places_and_its_votes_are_not_counted():
    admission = Admission(Limits(others=9, served=9, per_project=2, patience=0.0))
    places = [admission.enter(Place(person, project="noisy")) for person in ("ben", "bea")]
    with pytest.raises(TooMany, match="project"):
        admission.enter(Place("bob", project="noisy"))
    admission.enter(Place("ana", project="quiet"))
    admission.enter(Place("bob", VOTE, "noisy"))
    admission.leave(places[0])
    admission.enter(Place("bob", project="noisy"))


def test_of_what_is_heavy_a_project_has_one_at_a_time_and_pages_beside_it():
    limits = Limits(others=9, served=9, per_project=9, heavy=2, heavy_per_project=1, patience=0.0)
    admission = Admission(limits)
    download = admission.enter(Place("ben", HEAVY, "noisy"))
    with pytest.raises(TooMany):
        admission.enter(Place("bea", HEAVY, "noisy"))
    admission.enter(Place("bea", PAGE, "noisy"))
    admission.enter(Place("ana", HEAVY, "quiet"))
    with pytest.raises(Unavailable):  # two in all
        admission.enter(Place("ada", HEAVY, "third"))
    admission.leave(download)
    admission.enter(Place("ada", HEAVY, "third"))


def test_a_project_has_a_line_of_its_own_length():
    limits = Limits(served=1, others=1, per_person=9, waiting_per_project=1, patience=30.0)
    admission = Admission(limits)
    held = admission.enter(Place("ana", project="quiet"))
    stands = threading.Event()
    thread = threading.Thread(
        target=lambda: admission.enter(Place("ben", project="noisy"), before_waiting=stands.set),
        daemon=True,
    )
    thread.start()
    assert stands.wait(30)
    with pytest.raises(TooMany):
        admission.enter(Place("bea", project="noisy"))
    admission.leave(held)
    thread.join(30)


def test_a_file_that_is_sent_leaves_its_place_to_others_and_is_counted_among_files():
    limits = Limits(heavy=1, heavy_per_project=1, files=2, files_per_project=1, patience=0.0)
    admission = Admission(limits)
    sent = admission.turn_into_file(admission.enter(Place("ben", HEAVY, "noisy")))
    assert sent.kind == FILE
    with pytest.raises(TooMany):
        admission.turn_into_file(admission.enter(Place("bea", HEAVY, "noisy")))
    admission.turn_into_file(admission.enter(Place("ana", HEAVY, "quiet")))
    with pytest.raises(Unavailable):
        admission.turn_into_file(admission.enter(Place("ada", HEAVY, "third")))
    admission.leave(sent)
    admission.turn_into_file(admission.enter(Place("bea", HEAVY, "noisy")))


def test_hundreds_of_requests_with_one_credential_are_refused_before_anything_is_looked_up():
    floods = Floods(most=2)
    assert [floods.enter("c") for _ in range(3)] == [True, True, False]
    assert floods.enter("d")
    floods.leave("c")
    assert floods.enter("c")


@pytest.mark.django_db
def test_a_person_over_the_limit_gets_429_and_when_to_come_back(ana, signed_in, monkeypatch):
    from apps.common import front

    monkeypatch.setattr(front, "floods", Floods(most=0))
    client = signed_in(ana)
    page = client.get("/account/")
    assert (page.status_code, page.headers["Retry-After"]) == (429, "1")
    assert client.get("/api/v1/me").json()["code"] == "too_many_requests"
    monkeypatch.setattr(front, "floods", Floods(most=9))
    monkeypatch.setattr(front, "admission", Admission(Limits(served=0, patience=0.0)))
    busy = client.get("/account/")
    assert (busy.status_code, busy.headers["Retry-After"]) == (503, "5")


@pytest.mark.django_db
def test_a_place_is_given_back_also_after_an_error(ana, signed_in, monkeypatch):
    from apps.accounts.views import account
    from apps.common import front

    admission = Admission(Limits(served=1, others=1, per_person=1, patience=0.0))
    monkeypatch.setattr(front, "admission", admission)

    def broken(*_: object) -> None:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(account, "tokens_of", broken)
        client = signed_in(ana)
        client.raise_request_exception = False
        assert client.get("/account/").status_code == 500
    assert client.get("/account/").status_code == 200


@pytest.mark.django_db
def test_rows_keep_their_place_until_the_last_is_sent(ada, project, signed_in, monkeypatch):
    from apps.common import front

    limits = Limits(per_person=9, heavy_per_project=1, patience=0.0)
    monkeypatch.setattr(front, "admission", Admission(limits))
    client = signed_in(ada)
    first = client.get(f"/p/{project.slug}/disputes/rulings.csv")
    assert first.streaming
    assert client.get(f"/p/{project.slug}/disputes/rulings.csv").status_code == 429
    assert client.get(f"/p/{project.slug}/overview/").status_code == 200
    assert b"comparison" in b"".join(first.streaming_content)
    assert client.get(f"/p/{project.slug}/disputes/rulings.csv").status_code == 200


@pytest.mark.django_db(transaction=True)
def test_a_download_that_a_client_gives_up_leaves_its_place(ada, project, signed_in, monkeypatch):
    from apps.common import front

    limits = Limits(per_person=9, heavy_per_project=1, patience=0.0)
    monkeypatch.setattr(front, "admission", Admission(limits))
    client = signed_in(ada)
    client.get(f"/p/{project.slug}/disputes/rulings.csv").close()
    assert client.get(f"/p/{project.slug}/disputes/rulings.csv").status_code == 200


@pytest.mark.django_db(transaction=True)
def test_a_file_that_is_there_already_takes_no_place_of_what_is_heavy(
    ada, project, signed_in, monkeypatch
):
    from apps.common import front
    from apps.common.http import FileStream
    from apps.labeling.views import comparisons

    limits = Limits(per_person=9, heavy_per_project=1, files_per_project=1, patience=0.0)
    monkeypatch.setattr(front, "admission", Admission(limits))
    monkeypatch.setattr(comparisons, "download_response", lambda _: FileStream(iter([b"file"])))
    client, url = signed_in(ada), f"/p/{project.slug}/comparisons/results/?format=csv"
    first = client.get(url)
    assert first.status_code == 200
    assert client.get(f"/p/{project.slug}/comparisons/ambiguous/").status_code == 200  # heavy too
    assert client.get(url).status_code == 429  # one file of a project at a time
    first.close()
    assert client.get(url).status_code == 200
