"""Who is served, who waits and who is refused in one web process."""

import threading

import pytest

from apps.common.admission import STRANGERS, Admission, Floods, Limits
from apps.common.errors import TooMany, Unavailable

FEW = Limits(served=3, others=2, per_person=1, waiting=1, waiting_per_person=1, patience=30.0)
NOW = Limits(served=3, others=2, per_person=1, waiting=4, waiting_per_person=1, patience=0.0)


def test_a_vote_is_served_while_pages_fill_their_places():
    admission = Admission(NOW)
    for person in ("rita", "emil"):
        admission.enter(person, is_vote=False)
    with pytest.raises(Unavailable):
        admission.enter("ada", is_vote=False)
    admission.enter("ana", is_vote=True)


def test_one_person_gets_no_more_than_their_places():
    admission = Admission(NOW)
    place = admission.enter("rita", is_vote=False)
    with pytest.raises(TooMany):
        admission.enter("rita", is_vote=False)
    admission.leave(place)
    admission.enter("rita", is_vote=False)


def waiting(admission: Admission, person: str, *, is_vote: bool) -> tuple[threading.Thread, list]:
    """A request that waits; returns once it does. The list holds its place when it has one."""
    stands, got = threading.Event(), []
    thread = threading.Thread(
        target=lambda: got.append(
            admission.enter(person, is_vote=is_vote, before_waiting=stands.set)
        ),
        daemon=True,
    )
    thread.start()
    assert stands.wait(30)
    return thread, got


def test_who_waits_is_served_when_a_place_is_left():
    admission = Admission(FEW)
    first = admission.enter("rita", is_vote=False)
    thread, got = waiting(admission, "rita", is_vote=False)
    with pytest.raises(TooMany):  # one of hers waits already
        admission.enter("rita", is_vote=False)
    admission.leave(first)
    thread.join(30)
    assert [place.person for place in got] == ["rita"]


def test_a_full_line_refuses_pages_and_takes_votes():
    admission = Admission(FEW)
    places = [admission.enter(person, is_vote=False) for person in ("rita", "emil")]
    places.append(admission.enter("ana", is_vote=True))
    page, page_got = waiting(admission, "ada", is_vote=False)
    with pytest.raises(Unavailable):
        admission.enter("olga", is_vote=False)
    vote, vote_got = waiting(admission, "ben", is_vote=True)
    for place in places:
        admission.leave(place)
    page.join(30)
    vote.join(30)
    assert len(page_got) == len(vote_got) == 1


def test_more_strangers_than_one_person_may_wait_and_none_is_told_it_is_their_fault():
    admission = Admission(Limits(per_person=1, waiting_per_person=0, waiting_strangers=1))
    place = admission.enter(STRANGERS, is_vote=False)
    thread, got = waiting(admission, STRANGERS, is_vote=False)
    with pytest.raises(Unavailable):
        admission.enter(STRANGERS, is_vote=False)
    admission.leave(place)
    thread.join(30)
    assert len(got) == 1


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
