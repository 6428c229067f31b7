"""What is told arrives: signed, once, again after a failure, and never inside a private network."""

import hashlib
import hmac
import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core import mail
from django.db import connection
from django.utils import timezone
from pytest_django.fixtures import Settings
from standardwebhooks import Webhook, WebhookVerificationError

from apps.accounts.models import AuditEvent, Notice, Project, User
from apps.common.errors import Conflict, DomainError
from apps.monitoring.checks import mail_check
from apps.monitoring.models import Channel, Delivery, Incident
from apps.monitoring.services import channels, incidents, notifications, sending
from apps.monitoring.services.sending import SendError
from tests.monitoring.probed import Receiver, receiver


@pytest.fixture
def hears(settings: Settings) -> Iterator[Receiver]:
    settings.WEBHOOK_HOSTS = ["127.0.0.1"]
    with receiver() as kept:
        yield kept


@pytest.fixture
def hook(project: Project, emil: User, hears: Receiver) -> Channel:
    return channels.channel_create(project=project, user=emil, kind="webhook", address=hears.url)


@pytest.fixture
def opened(project: Project) -> Callable[..., Incident]:
    def make(key: str = "watch:1", severity: str = "warning", **more: Any) -> Incident:
        given = {"link": "reward", "rule": "drift", "title": "It drifts", "message": "0.7 → 0.4"}
        return incidents.incident_open(
            project=project, key=key, severity=severity, **(given | more)
        )

    return make


def due() -> None:
    Delivery.objects.update(next_at=timezone.now() - timedelta(seconds=1))


def test_a_message_is_signed_as_the_guide_says(
    hook: Channel, hears: Receiver, opened: Callable[..., Incident]
) -> None:
    incident = opened()
    assert notifications.deliveries_send() == 1
    ((headers, raw),) = hears.got
    mac = hmac.new(
        hook.secret.encode(), headers["x-concord-timestamp"].encode() + b"." + raw, hashlib.sha256
    )
    assert headers["x-concord-signature"] == f"v1={mac.hexdigest()}"
    assert abs(int(headers["x-concord-timestamp"]) - time.time()) < 60
    body = json.loads(raw)
    assert (body["event"], body["incident"]["id"]) == ("incident.opened", incident.pk)
    assert body["id"] == headers["x-concord-delivery"] == str(Delivery.objects.get().pk)
    assert body["incident"]["url"].endswith(f"/p/arguments/monitoring/incidents/{incident.pk}/")
    assert hook.secret.encode() not in raw


def test_standard_webhooks_verifies_what_is_sent_and_refuses_the_rest(
    hook: Channel, hears: Receiver, opened: Callable[..., Incident]
) -> None:
    hears.answers = [500]
    opened()
    notifications.deliveries_send()
    due()
    notifications.deliveries_send()
    assert len(hears.got) == 2
    for headers, raw in hears.got:  # a later try as well
        assert Webhook(hook.secret).verify(raw, headers)["event"] == "incident.opened"
    assert len({headers["webhook-id"] for headers, _ in hears.got}) == 1
    with pytest.raises(WebhookVerificationError):
        Webhook(sending.secret_make()).verify(raw, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(hook.secret).verify(raw + b" ", headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(hook.secret).verify(raw, headers | {"webhook-id": "msg_0"})
    old, late = sending.signed(
        [hook.secret], delivery="1", event="t", body={}, timestamp=int(time.time()) - 400
    )
    with pytest.raises(WebhookVerificationError, match="too old"):
        Webhook(hook.secret).verify(old, late)


def test_every_secret_is_the_key_that_a_library_reads() -> None:
    for _ in range(50):
        secret = sending.secret_make()
        raw, headers = sending.signed(
            [secret], delivery="1", event="t", body={"a": 1}, timestamp=int(time.time())
        )
        assert Webhook(secret).verify(raw, headers) == {"a": 1}
        old = f"whsec_{secrets.token_hex(16)}-_"  # as some made before 0.3
        raw, headers = sending.signed(
            [old], delivery="1", event="t", body={"a": 1}, timestamp=int(time.time())
        )
        assert Webhook(old).verify(raw, headers) == {"a": 1}


def test_the_secret_before_a_new_one_counts_for_a_day(
    project: Project,
    emil: User,
    hook: Channel,
    hears: Receiver,
    opened: Callable[..., Incident],
) -> None:
    channels.channel_secret_rotate(project=project, channel_id=hook.pk, user=emil)
    fresh = Channel.objects.get(pk=hook.pk).secret
    opened("watch:1")
    notifications.deliveries_send()
    headers, raw = hears.got[-1]
    assert Webhook(hook.secret).verify(raw, headers)
    assert Webhook(fresh).verify(raw, headers)
    Channel.objects.update(secret_before_until=timezone.now())
    opened("watch:2")
    notifications.deliveries_send()
    headers, raw = hears.got[-1]
    assert Webhook(fresh).verify(raw, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(hook.secret).verify(raw, headers)


def test_a_receiver_that_answers_410_is_sent_nothing_more(
    hook: Channel, hears: Receiver, opened: Callable[..., Incident]
) -> None:
    hears.answers = [410]
    opened("watch:1")
    opened("watch:2")
    notifications.deliveries_send()
    hook.refresh_from_db()
    assert not hook.enabled
    assert {one.state for one in Delivery.objects.all()} == {"failed"}
    assert len(hears.got) == 1
    assert Notice.objects.filter(kind="channel.gone").exists()
    assert AuditEvent.objects.filter(action="channel.gone").exists()


def test_after_a_failure_it_is_sent_again_with_the_same_id(
    hook: Channel, hears: Receiver, opened: Callable[..., Incident]
) -> None:
    hears.answers = [500, 503]
    opened()
    assert notifications.deliveries_send() == 0
    row = Delivery.objects.get()
    assert (row.state, row.tries, row.error) == ("pending", 1, "The receiver answered 500.")
    assert row.next_at > timezone.now() + timedelta(seconds=10)
    assert notifications.deliveries_send() == 0, "it is not due"
    for _ in range(2):
        due()
        notifications.deliveries_send()
    row.refresh_from_db()
    assert (row.state, row.tries, row.error) == ("sent", 3, "")
    assert len(set(hears.ids)) == 1
    assert len(hears.ids) == 3


def test_it_is_given_up_in_the_end_and_can_be_sent_again(
    hook: Channel, hears: Receiver, opened: Callable[..., Incident], emil: User
) -> None:
    tries = len(notifications.WAITS) + 1
    hears.answers = [500] * tries
    opened()
    for _ in range(tries + 2):
        due()
        notifications.deliveries_send()
    row = Delivery.objects.get()
    assert (row.state, row.tries) == ("failed", tries)
    notifications.delivery_again(channel=hook, delivery_id=row.pk, user=emil)
    assert notifications.deliveries_send() == 1


def test_killed_between_sending_and_marking_it_comes_twice_with_one_id_and_is_not_lost(
    hook: Channel,
    hears: Receiver,
    opened: Callable[..., Incident],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Killed(BaseException):
        pass

    def kill(*_: Any, **__: Any) -> None:
        send(*_, **__)
        raise Killed

    opened()
    send = notifications._send
    monkeypatch.setattr(notifications, "_send", kill)
    with pytest.raises(Killed):
        notifications.deliveries_send()
    monkeypatch.undo()
    assert Delivery.objects.get().state == "pending"
    due()
    assert notifications.deliveries_send() == 1
    assert hears.ids == [str(Delivery.objects.get().pk)] * 2
    due()
    assert notifications.deliveries_send() == 0


@pytest.mark.django_db(transaction=True)
def test_many_senders_send_each_message_once(
    hook: Channel, hears: Receiver, opened: Callable[..., Incident]
) -> None:
    for n in range(12):
        opened(f"watch:{n}")

    def send(_: int) -> int:
        try:
            return notifications.deliveries_send()
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        sent = sum(pool.map(send, range(4)))
    assert sent == 12
    assert len(set(hears.ids)) == len(hears.ids) == 12


def test_a_sender_that_came_too_late_for_one_message_looks_for_the_next(
    hook: Channel,
    hears: Receiver,
    opened: Callable[..., Incident],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its look at the channel was older than another's claim, and the other is gone by now."""
    for n in range(2):
        opened(f"watch:{n}")
    look = notifications._channel_due
    looks = 0

    def another_was_faster(now: datetime) -> Channel | None:
        nonlocal looks
        looks += 1
        if looks == 2:  # the other has sent one, and gone
            Delivery.objects.update(next_at=now)
        found = look(now)
        if looks == 1:
            Delivery.objects.update(next_at=now + timedelta(minutes=1))
        return found

    monkeypatch.setattr(notifications, "_channel_due", another_was_faster)
    assert notifications.deliveries_send() == 2


def test_a_dead_receiver_costs_one_try_and_holds_up_nobody(
    project: Project, emil: User, hook: Channel, hears: Receiver, opened: Callable[..., Incident]
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{free.getsockname()[1]}/"
    first = channels.channel_create(project=project, user=emil, kind="webhook", address=dead)
    Channel.objects.filter(pk=hook.pk).update(id=first.pk + 1)
    hook.pk = first.pk + 1
    for n in range(5):
        opened(f"watch:{n}")
    assert notifications.deliveries_send() == 5
    tries = Delivery.objects.filter(channel=first).order_by("pk").values_list("tries", flat=True)
    assert list(tries) == [1, 0, 0, 0, 0]
    opened("watch:5")
    assert Delivery.objects.filter(channel=first).latest("pk").next_at > timezone.now()
    hears.got.clear()
    opened("watch:6")
    due()
    row = notifications._claim()
    assert row is not None
    assert row.channel_id == hook.pk, "who answers goes first, although the other was added before"


# --- where nothing is sent to ---


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "192.168.0.9",
        "172.16.5.4",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.1",
        "224.0.0.1",
        "::1",
        "fe80::1",
        "fd00::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
    ],
)
def test_private_addresses_are_refused_whatever_name_leads_there(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(*_: Any, **__: Any) -> list[Any]:
        return [(0, 0, 0, "", ("93.184.216.34", 443)), (0, 0, 0, "", (address, 443))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(SendError, match="private network") as refused:
        sending.checked_address(sending.address_of("https://innocent.example.org/"))
    assert refused.value.final


def test_a_public_address_passes_and_the_connection_goes_to_the_one_that_was_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda *a, **k: [(0, 0, 0, "", ("93.184.216.34", 80))]
    )

    def connect(where: Any, *_: Any) -> None:
        asked.append(where)
        raise OSError

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(SendError, match="connection failed"):
        sending.post("http://example.org/hook", b"{}", {})
    assert asked == [("93.184.216.34", 80)], "no second look-up that could say something else"


def test_the_guard_refuses_a_real_receiver_on_this_machine_unless_the_setting_names_it(
    hears: Receiver,
    settings: Settings,
    project: Project,
    emil: User,
    opened: Callable[..., Incident],
) -> None:
    channels.channel_create(project=project, user=emil, kind="webhook", address=hears.url)
    settings.WEBHOOK_HOSTS = []
    opened()
    assert notifications.deliveries_send() == 0
    row = Delivery.objects.get()
    assert (row.state, row.tries) == ("failed", 1)
    assert "WEBHOOK_HOSTS" in row.error
    assert hears.got == []


def test_redirects_are_not_followed(hears: Receiver) -> None:
    hears.answers, hears.headers = [302], {"Location": hears.url}
    with pytest.raises(SendError, match="redirects"):
        sending.post(hears.url, b"{}", {})
    assert len(hears.got) == 1


def test_a_receiver_that_never_ends_its_answer_is_left(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.WEBHOOK_HOSTS = ["127.0.0.1"]
    monkeypatch.setattr(sending, "TOTAL_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            peer, _ = server.accept()
            try:
                for letter in "HTTP/1.1 200 OK\r\nX: " + "x" * 2000:
                    peer.sendall(letter.encode())
                    time.sleep(0.05)
            except OSError:
                peer.close()

        threading.Thread(target=drip, daemon=True).start()
        began = time.monotonic()
        with pytest.raises(SendError):
            sending.post(f"http://127.0.0.1:{server.getsockname()[1]}/", b"{}", {})
        assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    "address",
    [
        "ftp://example.org/",
        "file:///etc/passwd",
        "https://",
        "https://a:b@example.org/",
        "https://example.org:99999/",
        "https://example.org/a b",
        "javascript:alert(1)",
        "x",
    ],
)
def test_addresses_that_are_none_are_refused_when_they_are_typed(
    address: str, project: Project, emil: User
) -> None:
    with pytest.raises(DomainError) as refused:
        channels.channel_create(project=project, user=emil, kind="webhook", address=address)
    assert refused.value.field == "address"


# --- e-mail, tests, switches ---


def test_an_email_says_what_broke_and_where_to_look(
    project: Project, emil: User, settings: Settings
) -> None:
    settings.EMAIL_URL = "smtp://mail.example.org"
    channels.channel_create(project=project, user=emil, kind="email", address="oncall@example.org")
    incident = incidents.incident_open(
        project=project,
        key="k",
        link="reward",
        rule="r",
        severity="critical",
        title="The reward points\nthe wrong way",
        message="Canaries: 31 % right.",
    )
    assert notifications.deliveries_send() == 1
    (sent,) = mail.outbox
    assert sent.subject == f"[Arguments] {incident.title}".replace("\n", " ")
    assert sent.to == ["oncall@example.org"]
    assert "Canaries: 31 % right." in sent.body
    assert f"/p/arguments/monitoring/incidents/{incident.pk}/" in sent.body
    assert sent.message()["Message-ID"].startswith(f"<delivery-{Delivery.objects.get().pk}@")


def test_without_a_mail_server_in_production_the_message_says_what_is_missing(
    project: Project, emil: User, settings: Settings, opened: Callable[..., Incident]
) -> None:
    channels.channel_create(project=project, user=emil, kind="email", address="a@example.org")
    assert [one.id for one in mail_check(databases=["default"])] == ["monitoring.W001"]
    settings.MAIL_READY = False
    opened()
    assert notifications.deliveries_send() == 0
    assert "EMAIL_URL" in Delivery.objects.get().error
    settings.EMAIL_URL = "smtp://mail.example.org"
    assert mail_check(databases=["default"]) == []


def test_a_channel_hears_only_of_what_is_severe_enough_and_of_the_end_of_what_it_heard(
    project: Project,
    hook: Channel,
    hears: Receiver,
    emil: User,
    opened: Callable[..., Incident],
) -> None:
    channels.channel_update(
        project=project, channel_id=hook.pk, user=emil, least_severity="critical"
    )
    quiet, loud = opened("watch:1"), opened("watch:2", "critical")
    done = {"root_cause": "It was moved.", "fix": "Moved back."}
    for one in (quiet, loud):
        incidents.incident_resolve(project=project, incident_id=one.pk, user=emil, learned=done)
    notifications.deliveries_send()
    told = [(json.loads(raw)["event"], json.loads(raw)["incident"]["id"]) for _, raw in hears.got]
    assert told == [("incident.opened", loud.pk), ("incident.resolved", loud.pk)]
    assert json.loads(hears.got[-1][1])["incident"]["fix"] == "Moved back."


def test_a_test_goes_the_way_incidents_go_and_a_double_click_sends_one(
    project: Project, hook: Channel, hears: Receiver, emil: User
) -> None:
    for _ in range(2):
        channels.channel_test(project=project, channel_id=hook.pk, user=emil)
    assert notifications.deliveries_send() == 1
    assert json.loads(hears.got[0][1])["event"] == "test"


def test_a_new_secret_signs_what_comes_after(
    project: Project, hook: Channel, hears: Receiver, emil: User, opened: Callable[..., Incident]
) -> None:
    opened()
    fresh = channels.channel_secret_rotate(project=project, channel_id=hook.pk, user=emil)
    assert fresh.secret != hook.secret
    notifications.deliveries_send()
    ((headers, raw),) = hears.got
    expected = sending._signature_before(fresh.secret, int(headers["x-concord-timestamp"]), raw)
    assert headers["x-concord-signature"] == expected
    assert Webhook(fresh.secret).verify(raw, headers)


def test_a_channel_that_is_switched_off_is_told_nothing_and_keeps_nothing_waiting(
    project: Project, hook: Channel, hears: Receiver, emil: User, opened: Callable[..., Incident]
) -> None:
    opened()
    channels.channel_update(project=project, channel_id=hook.pk, user=emil, enabled=False)
    opened("watch:2")
    due()
    assert notifications.deliveries_send() == 0
    assert list(Delivery.objects.values_list("state", flat=True)) == ["failed"]
    with pytest.raises(Conflict):
        channels.channel_test(project=project, channel_id=hook.pk, user=emil)


def test_the_same_address_twice_is_one_channel(
    project: Project, hook: Channel, hears: Receiver, emil: User
) -> None:
    with pytest.raises(Conflict):
        channels.channel_create(project=project, user=emil, kind="webhook", address=hears.url)
