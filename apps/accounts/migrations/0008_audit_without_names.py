"""What the audit log says of people: ids in the place of names, texts hashed with a salt each, and
the chain of hashes written again once over that (docs/adr/0020-what-the-chain-knows.md)."""

import hashlib
import json
import secrets
from itertools import islice

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

FORWARD = """
-- Whether nothing but these columns differs, in a transaction that erases a person's data.
create function concord_only_erased(was jsonb, now jsonb, columns text[])
returns boolean language sql stable as $$
  select coalesce(current_setting('concord.erasing', true), '') <> ''
    and (was - columns) = (now - columns)
$$;
create function concord_keep_audit_event() returns trigger language plpgsql as $$
begin
  if tg_op = 'UPDATE' and new.erased_by is not null and concord_only_erased(
    to_jsonb(old), to_jsonb(new), array['subject', 'details', 'salts', 'erased_by']
  ) then
    return new;
  end if;
  raise exception '% is append-only', tg_table_name using errcode = 'restrict_violation';
end $$;
drop trigger accounts_auditevent_append_only on accounts_auditevent;
drop trigger accounts_auditlink_append_only on accounts_auditlink;
"""
BACKWARD = """
create trigger accounts_auditlink_append_only before update or delete on accounts_auditlink
  for each row execute function concord_refuse_change();
create trigger accounts_auditevent_append_only before update or delete on accounts_auditevent
  for each row execute function concord_refuse_change();
drop function concord_keep_audit_event();
drop function concord_only_erased(jsonb, jsonb, text[]);
"""
KEPT_AGAIN = """
create trigger accounts_auditevent_append_only before update or delete on accounts_auditevent
  for each row execute function concord_keep_audit_event();
create trigger accounts_auditlink_append_only before update or delete on accounts_auditlink
  for each row execute function concord_refuse_change();
"""
KEPT_BACK = """
drop trigger accounts_auditlink_append_only on accounts_auditlink;
drop trigger accounts_auditevent_append_only on accounts_auditevent;
"""
ABOUT = ("annotator", "membership", "qualification", "user")  # their subjects are sign-in names
ABOUT_TOO = {
    *("site.set_up", "demo.person", "votes.discarded", "votes.discard_undone"),
    "guideline.acknowledged",
}
NAMED = {"snapshot.look_signed": "for", "comment.deleted": "author"}
PART = 2000


def compact(value):
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def digest(first, value):
    return hashlib.sha256(f"{first}\n{compact(value)}".encode("utf-8", "surrogatepass")).hexdigest()


def is_plain(value):
    if isinstance(value, list):
        return all(is_plain(one) for one in value)
    if isinstance(value, dict):
        return value.keys() == {"person"} and isinstance(value["person"], int)
    return value is None or value == "" or isinstance(value, int | float)


def said_before(event):
    return {
        "id": event.pk,
        "at": event.at.isoformat(),
        "project": event.project_id,
        "actor": event.actor_id,
        "action": event.action,
        "subject": event.subject,
        "details": event.details,
    }


def said_now(event):
    return {
        "id": event.pk,
        "at": event.at.isoformat(),
        "project": event.project_id,
        "actor": event.actor_id,
        "about": event.about_id,
        "action": event.action,
        "sealed": event.sealed,
    }


def without_names(event, ids):
    """Ids in the place of sign-in names; what nobody has any more stays, as a text with a salt."""
    if event.action.partition(".")[0] in ABOUT or event.action in ABOUT_TOO:
        if (found := ids.get(event.subject)) is not None:
            event.about_id, event.subject = found, str(found)
    name = NAMED.get(event.action)
    if name and (found := ids.get(event.details.get(name))) is not None:
        event.details[name] = {"person": found}
    if event.action == "import.people_set":
        people = [ids.get(one) for one in event.details.get("people", "").split(", ")]
        if all(people):
            event.details["people"] = [{"person": one} for one in people]
    values = {f"details.{key}": value for key, value in event.details.items()}
    values["subject"] = event.subject
    event.salts = {key: secrets.token_hex(16) for key, v in values.items() if not is_plain(v)}
    event.sealed = {
        key: digest(event.salts[key], value) if key in event.salts else value
        for key, value in values.items()
    }


def reseal(apps, schema_editor):
    Event, Link, User = (
        apps.get_model("accounts", name) for name in ("AuditEvent", "AuditLink", "User")
    )
    ids = dict(User.objects.values_list("username", "pk"))
    broken, was, now = [], "0" * 64, "0" * 64
    formers, n = hashlib.sha256(), 0
    rows = Link.objects.order_by("position").iterator(chunk_size=PART)
    while part := list(islice(rows, PART)):
        events = Event.objects.in_bulk([link.event for link in part])
        for link in part:
            event, n = events.get(link.event), n + 1
            if event is None or digest(was, said_before(event)) != link.sha256:
                broken.append(link.event)
            was = link.former = link.sha256
            formers.update(was.encode())
            if event is not None:
                without_names(event, ids)
                now = digest(now, said_now(event))
            link.sha256 = now
        Event.objects.bulk_update(
            events.values(), ["about", "subject", "details", "sealed", "salts"]
        )
        Link.objects.bulk_update(part, ["former", "sha256"])
    later = Event.objects.filter(sealed={}).order_by("pk").iterator(chunk_size=PART)
    while part := list(islice(later, PART)):
        for event in part:
            without_names(event, ids)
        Event.objects.bulk_update(part, ["about", "subject", "details", "sealed", "salts"])
    if n:
        event = Event(
            action="audit.resealed",
            details={
                "links": n,
                "head": was,
                "former_sha256": formers.hexdigest(),
                "broken": broken,
            },
        )
        without_names(event, {})
        event.save()


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0007_audit_chain"),
    ]

    operations = [
        migrations.AddField(
            model_name="user",
            name="erasure_asked_at",
            field=models.DateTimeField(blank=True, help_text="by the person", null=True),
        ),
        migrations.AddField(
            model_name="user",
            name="erased_at",
            field=models.DateTimeField(blank=True, help_text="their data are gone", null=True),
        ),
        migrations.AddConstraint(
            model_name="user",
            constraint=models.CheckConstraint(
                condition=models.Q(("erased_at", None), ("is_active", False), _connector="OR"),
                name="user_erased_cannot_sign_in",
            ),
        ),
        migrations.AddField(
            model_name="auditevent",
            name="about",
            field=models.ForeignKey(
                blank=True,
                db_constraint=False,
                help_text="the person it was done to; the subject is their id then",
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="auditevent",
            name="sealed",
            field=models.JSONField(
                default=dict, db_default={}, help_text="what is hashed of subject and details"
            ),
        ),
        migrations.AddField(
            model_name="auditevent",
            name="salts",
            field=models.JSONField(
                default=dict, db_default={}, help_text="of the texts among them, by name"
            ),
        ),
        migrations.AddField(
            model_name="auditevent",
            name="erased_by",
            field=models.BigIntegerField(
                blank=True, help_text="the event of the erasure that took texts away", null=True
            ),
        ),
        migrations.AddIndex(
            model_name="auditevent",
            index=models.Index(
                condition=models.Q(("about__isnull", False)),
                fields=["about", "-id"],
                name="audit_about",
            ),
        ),
        migrations.AddIndex(
            model_name="auditevent",
            index=models.Index(
                condition=models.Q(("actor__isnull", False)),
                fields=["actor", "-id"],
                name="audit_by_actor",
            ),
        ),
        migrations.AddField(
            model_name="auditlink",
            name="former",
            field=models.CharField(
                blank=True,
                default="",
                db_default="",
                help_text="its hash before the chain was resealed",
                max_length=64,
            ),
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
        migrations.RunPython(reseal, migrations.RunPython.noop),
        migrations.RunSQL(KEPT_AGAIN, KEPT_BACK),
    ]
