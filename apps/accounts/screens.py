"""The audit log in sentences: what each action says, and the things that it names, as links."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.urls import reverse

from apps.accounts.models import AuditEvent, Invitation, Membership, Project, Role, User
from apps.common import registry
from apps.common.registry import Named

# What follows the person's name, by action. {subject} becomes a link where its app knows one; other
# names are of `AuditEvent.details`. {changes} says each changed field with both values.
SENTENCES: dict[str, str] = {
    "audit.resealed": "wrote the chain of the audit log again, over {links} events",
    "access.refused": "was refused {what} ({status} {reason}), {times} times in a quarter of an "
    "hour",
    "audit.exported": "exported {events} events of the audit log",
    "adversarial.opened": "opened an adversarial round on {subject} with {pairs} pairs",
    "alert.acknowledged": "acknowledged the alert {rule} at step {step} of {subject}",
    "annotator.disqualified": "asked {subject} to qualify again",
    "annotator.left_out": "left the votes of {subject} out of new datasets: {reason}",
    "annotator.limited": "changed what {subject} gets: {changes}",
    "annotator.opted_out": "chose which pairs not to get",
    "annotator.qualified": "let {subject} label without the qualification",
    "annotator.taken_in": "took the votes of {subject} into new datasets again: {reason}",
    "backup.made": "backed the site up to {target} as {subject}",
    "backup.restored": "restored the site from {target} as of {subject}",
    "channel.changed": "changed the notification channel {address} ({kind})",
    "channel.created": "added the notification channel {address} ({kind})",
    "channel.deleted": "removed the notification channel {address} ({kind})",
    "channel.gone": "the receiver of {address} wants no more, so its channel was switched off",
    "channel.secret_rotated": "made a new secret for the notification channel {address}",
    "comment.deleted": "deleted a {kind} of {author} on {subject}",
    "comparison.adjudicated": "ruled on {subject}: {choice}",
    "comparison.dropped": "dropped {subject}: {reason}",
    "comparison.made_gold": "made {subject} gold, with the answer {choice}",
    "comparison.reopened": "put {subject} back: {to}",
    "comparisons.drop": "dropped {subject}: {reason}",
    "comparisons.imported": "imported {file}: {n_created} new, {n_unchanged} known, "
    "{n_refused} refused",
    "comparisons.priority": "set the priority of {subject} to {value}",
    "comparisons.review": "sent {subject} to review: {reason}",
    "comparisons.sent_again": "sent {comparisons} comparisons with {votes} votes to "
    "re-annotation under {subject}",
    "comparisons.votes": "asked for {value} more votes on {subject}",
    "demo.person": "made the demo's account {subject}",
    "demo.stage": "finished the demo's stage {subject}",
    "dialogue.closed": "closed the dialogue campaign {subject}",
    "dialogue.opened": "opened the dialogue campaign {subject} with {systems} systems",
    "dialogue.problem": "reported a problem with a conversation of {subject}",
    "dialogue.reopened": "opened the dialogue campaign {subject} again",
    "dispute.votes_shown": "had the votes on {subject} shown before ruling",
    "file.downloaded": "downloaded {subject}",
    "head_to_head.ended": "ended the head-to-head {subject} after {votes} votes: {verdict}",
    "head_to_head.opened": "opened the head-to-head {subject} on {pairs} pairs, {votes} votes",
    "head_to_head.shared": "made a link to read {subject}, until {until}",
    "head_to_head.unshared": "ended the link to read {subject}",
    "guideline.acknowledged": "read version {version} of the guidelines",
    "guideline.published": "published {subject} of the guidelines",
    "import.cancelled": "cancelled the import {subject}",
    "import.due_set": "set the day that {file} is due to {due_on}",
    "import.people_set": "had {file} labeled by {people}",
    "import.undone": "undid the import of {file}: {comparisons} comparisons and {votes} votes",
    "import.uploaded": "uploaded {file}",
    "image.deleted": "deleted the image {name}",
    "incident.acknowledged": "acknowledged the incident {subject}",
    "incident.resolved": "resolved the incident {subject}",
    "inbox.closed": "closed {answers} flagged answers of {subject} without a verdict",
    "consent.given": "agreed to version {version} of what answers are used for",
    "constitution.saved": "saved version {version} of the constitution: {note}",
    "invitation.accepted": "joined by the invitation {subject}, as {role}",
    "invitation.created": "invited {subject} as {role}",
    "invitation.renewed": "renewed the invitation of {subject}",
    "invitation.revoked": "withdrew the invitation of {subject}",
    "labeling.overlap_applied": "applied {votes} votes per comparison to {comparisons} open "
    "comparisons",
    "labeling.settings_changed": "changed {changes}",
    "membership.added": "added {subject} as {role}",
    "membership.changed": "changed the role of {subject} from {before} to {role}",
    "membership.paused": "paused {subject}: {reason}",
    "membership.removed": "removed {subject}, who was {role}",
    "membership.resumed": "resumed {subject}",
    "model.approved": "approved the model {model} ({subject})",
    "model.copied": "copied the model {subject} into the project {project}",
    "model.downloaded": "downloaded the model {subject} ({part})",
    "model.rejected": "rejected the model {model} ({subject}): {reason}",
    "model.retired": "retired the model {model} ({subject}): {reason}",
    "alarms.changed": "changed the alarms about people and data",
    "mute.created": "muted incidents until {until}",
    "mute.lifted": "lifted a mute",
    "outcomes.recorded": "recorded {created} outcomes of {subject}",
    "outputs.sent": "sent {outputs} outputs of {subject} to people",
    "pairs.made": "made {subject} of gradings and rankings",
    "pairs.queued": "put {pairs} generated pairs of {subject} into the label queue",
    "pairs.refused": "could not queue the generated pairs of {subject}: {error}",
    "pairs.selected": "chose {pairs} of {candidates} generated pairs of {subject} for the label "
    "queue",
    "pairs.taken_back": "took {pairs} generated pairs of {subject} out of the label queue",
    "person.erased": "erased {subject}: votes {votes}, remarks {remarks}",
    "person.erased_again": "erased {subject} again after a restore: votes {votes}, "
    "remarks {remarks}",
    "person.erasure_asked": "asked to be erased",
    "person.erasure_done": "finished the erasure of {subject}: {discarded} votes discarded, "
    "{remarks} remarks, {texts} texts and {events} events cleared",
    "person.erasure_not_asked": "no longer asked to be erased",
    "person.exported": "exported the data of {subject}: {rows} rows",
    "playground.sent": "sent a pair of the playground to people ({subject})",
    "playground.taken_back": "took a pair of the playground out of the label queue ({subject})",
    "project.archived": "archived the project",
    "project.changed": "changed the project's name or description: {name}",
    "project.created": "created the project",
    "project.deleted": "deleted the project {subject}",
    "project.quota_set": "set {changes}",
    "project.restored": "restored the project",
    "promotion.approved": "approved {model} for {stage}",
    "promotion.overridden": "approved {model} for {stage} by override, with {second}: {reason}",
    "promotion.override_signed": "signed an override for {model}, {stage}: {reason}",
    "promotion.rejected": "rejected {model} for {stage}: {reason}",
    "promotion.requested": "asked that {stage} names {model}",
    "promotion.withdrawn": "withdrew the request that {stage} names {model}",
    "pipeline.changed": "saved version {version} of the pipeline {subject}",
    "pipeline.made": "made the pipeline {name} of the run {run}",
    "qualification.failed": "failed the qualification: {right} of {of} right",
    "qualification.granted": "granted {subject} another attempt at the qualification",
    "qualification.passed": "passed the qualification: {right} of {of} right",
    "rating_task.dropped": "dropped the rating task {subject}",  # as written until 0.2
    "rating_task.reopened": "put the rating task {subject} back: {to}",
    "round.finished": "round {round} of {pipeline} finished",
    "round.paused": "paused round {round} of {pipeline}",
    "round.resumed": "resumed round {round} of {pipeline}",
    "round.started": "started round {round} of {pipeline} {trigger}",
    "round.step_redone": "did {step} of round {round} of {pipeline} again",
    "round.step_skipped": "skipped {step} of round {round} of {pipeline}: {reason}",
    "round.stopped": "stopped round {round} of {pipeline}: {reason}",
    "run.archived": "archived {subject}",
    "run.cancelled": "cancelled {subject}",
    "run.checked": "started the check {experiment} of {subject}",
    "run.deleted": "deleted the run {name}",
    "run.described": "changed {fields} of {subject}",
    "run.imported": "imported the run {subject} from {file}",
    "run.intermediates_removed": "removed {models} intermediate checkpoints and "
    "{states} trainer states of {subject}",
    "run.launched": "launched {subject}",
    "run.moved": "moved {subject} in the queue: {to}",
    "run.prioritised": "changed the priority of {subject} from {from} to {to}",
    "run.reproduced": "started {subject} again to reproduce it",
    "run.resumed": "resumed {subject}",
    "run.rolled_back": "rolled {subject} back to step {step}",
    "run.stopped": "stopped {subject} and kept its model",
    "run.unarchived": "took {subject} out of the archive",
    "judge.archived": "archived the judge {name}",
    "judge.certificate_stopped": "stopped the certificate {certificate} of labels by {name}: "
    "{because}",
    "judge.certified": "looked whether labels by {name} can be certified, look {look}: certificate "
    "{certificate}",
    "judge.made": "made the judge {name}",
    "judge.presorted": "put first the {moved} pairs of which {name} is least sure; {measuring} "
    "more measure",
    "judge.tuned": "tried {prompts} prompts of the judge {name}, trial {trial}",
    "judge.version_made": "made version {version} of the judge {name}",
    "second_factor.added": "added a second factor ({kind}) to {subject}",
    "second_factor.code_used": "used a recovery code of {subject}",
    "second_factor.codes_made": "made new recovery codes for {subject}",
    "second_factor.failed": "failed to show the second factor of {subject}",
    "second_factor.removed": "removed a second factor ({kind}) of {subject}",
    "session.ended": "ended a session of {subject} at {address}",
    "sheet.finished": "finished the audit sheet {subject}",
    "sheet.made": "drew the audit sheet {subject} with {answers} answers",
    "sheet.withdrawn": "withdrew the audit sheet {subject}: {reason}",
    "outside_result.deleted": "deleted the result of {task} on {subject}, from {file}",
    "outside_result.imported": "imported {tasks} results measured elsewhere of {subject}, "
    "from {file}",
    "site.closed": "closed the site for maintenance until {until}",
    "site.opened": "opened the site again after maintenance",
    "site.set_up": "set the site up",
    "suite.automatic_set": "had every policy evaluated on {dataset} when its training ends, "
    "against {baseline}",
    "suite.automatic_stopped": "had no further policy evaluated on a suite by itself",
    "suite.refused": "was refused the suite after {subject}: {reason}",
    "snapshot.suite_added": "added the regression suite {subject}, {checks} checks",
    "snapshot.cancelled": "cancelled the dataset {name}",
    "snapshot.frozen": "froze the dataset {subject}",
    "snapshot.look_signed": "let {for} take look {look} at {split} of {subject}: {reason}",
    "depth.replay_started": "started a replay of one vote each on more pairs against several on "
    "fewer",
    "selection.replay_started": "started a replay of how votes are saved by choosing pairs",
    "snapshot.looks_limited": "set how many looks at {split} of {subject} are free: {looks}",
    "snapshot.split_read": "read the private split {split} of {subject} ({purpose})",
    "user.changed": "changed {fields} of the account {subject}",
    "person.provisioned": "made the account {subject} for the directory",
    "person.deprovisioned": "took the account {subject} out of use for the directory",
    "user.profile_changed": "changed their own {fields}",
    "snapshot.private_read": "downloaded the private split {split} of {subject}",
    "stage.promoted": "made {subject} name {model}, {share} % of the traffic",
    "stage.reverted": "reverted {subject} to {model}: {reason}",
    "stage.shared": "gave {model} {share} % of the traffic of {subject}: {reason}",
    "task.dropped": "dropped the task {subject}",
    "task.reopened": "put the task {subject} back: {to}",
    "token.created": "made the API token {subject}…",
    "token.revoked": "revoked the API token {subject}…",
    "user.created": "created the account {subject}",
    "user.deactivated": "deactivated the account {subject}",
    "user.provider_connected": "connected {subject} with the sign-in provider",
    "user.provider_disconnected": "disconnected {subject} from the sign-in provider",
    "user.password_changed": "changed the password of {subject}",
    "user.password_link_made": "made {subject} a link for a new password",
    "user.reactivated": "reactivated the account {subject}",
    "user.rights_changed": "changed the site rights of {subject}: {changes}",
    "user.sign_in_failed": "failed to sign in as {subject}",
    "user.sign_in_refused": "was refused the sign-in by the provider: {reason}",
    "user.signed_in": "signed in: {by}",
    "user.signed_in_again": "showed again who they are: {by}",
    "user.signed_out": "signed out",
    "verdict.given": "judged an answer of {subject} at step {step}: {verdict}",
    "verdict.withdrawn": "took back a verdict on an answer of {subject} at step {step}",
    "view.deleted": "deleted the saved view {subject}",
    "vote.withdrawn": "withdrew an answer on {comparison}",
    "votes.discard_undone": "counted {votes} discarded votes of {subject} again",
    "votes.discarded": "discarded {votes} votes of {subject}: {reason}",
    "writing.batch_created": "asked for {texts} texts to be written: {subject}",
    "writing.batch_closed": "closed the writing work {subject}",
    "writing.batch_opened": "opened the writing work {subject} again",
    "writing.reviewed": "reviewed text {text} of {subject}: {verdict}",
    "worker.drained": "told the worker {subject} to take no new runs",
    "worker.resumed": "told the worker {subject} to take runs again",
    "watch.changed": "changed the monitored model {name}",
    "watch.created": "began to monitor {name}",
    "watch.disabled": "paused monitoring {name}",
    "watch.enabled": "resumed monitoring {name}",
    "watch.rebased": "reset the baseline of {name}",
    "watch.retargeted": "changed the model of {name}: {reason}",
    "watch.traffic": "set what is taken of the traffic of {name}",
    "watch.traffic_deleted": "deleted conversations of {name} ({deleted})",
}
# What a changed setting is called on the pages; others by their name.
FIELDS = {
    "overlap": "votes per comparison",
    "max_overlap": "maximum votes per comparison",
    "least_votes": "minimum votes",
    "least_agreeing": "minimum agreeing votes",
    "least_share": "minimum share",
    "least_posterior": "minimum probability",
    "decide_by": "decision rule",
    "stop_early": "stop early when decided",
    "lease_seconds": "seconds a pair is reserved",
    "fast_ms": "milliseconds under which an answer is flagged",
    "daily_cap": "answers a day",
    "runs_at_once": "the quota of runs at once",
    "space_bytes": "the quota of disk space in bytes",
    "gpu_hours": "the quota of GPU hours in 30 days",
    "votes_quota": "answers that the project takes in 30 days",
    "keep_days": "the days for which intermediate files of runs are kept",
    "skips_to_review": "skips that send a pair to review",
}
GONE = "a person who is gone"
_SHORT = 80  # characters of a value in a sentence; the details hold it whole
_NAMES = {name: str(label) for name, label in Role.choices}


@dataclass(frozen=True, slots=True)
class AuditLine:
    """One event as the log shows it: `who` did `before` `subject` `after`. `words`: as one text.
    `details` is left for events whose sentence is not known."""

    at: datetime
    who: str
    before: str
    subject: str
    url: str
    after: str
    action: str
    details: Mapping[str, Any]

    @property
    def words(self) -> str:
        return f"{self.who} {self.before}{self.subject}{self.after}"


def audit_lines(project: Project | None, events: Iterable[AuditEvent]) -> list[AuditLine]:
    """The events as sentences. What they name is looked up once for each kind of thing."""
    found = list(events)
    wanted: dict[str, set[str]] = defaultdict(set)
    for event in found:
        if event.subject and event.about_id is None:
            wanted[event.action.partition(".")[0]].add(event.subject)
    named = {
        (kind, subject): name
        for kind, subjects in wanted.items()
        for subject, name in registry.audit_subjects(kind, project, subjects).items()
    }
    people = _people(project, found)
    return [
        _line(
            event,
            people.get(event.about_id)
            if event.about_id
            else named.get((event.action.partition(".")[0], event.subject)),
            people,
        )
        for event in found
    ]


def _people(project: Project | None, events: Iterable[AuditEvent]) -> dict[int, Named]:
    """The people that events are about or that their details name; members as links."""
    ids = {event.about_id for event in events if event.about_id}
    ids |= {one for event in events for value in event.details.values() for one in _ids(value)}
    members = set(
        Membership.objects.filter(project=project, user__in=ids).values_list("user_id", flat=True)
        if project and ids
        else ()
    )
    return {
        user.pk: Named(
            str(user),
            reverse("accounts:person", args=[project.slug, user.pk])
            if project and user.pk in members
            else "",
        )
        for user in (User.objects.filter(pk__in=ids) if ids else ())
    }


def _ids(value: Any) -> list[int]:
    """Of the people in a value of the details, which stand there as `{"person": id}`."""
    if isinstance(value, list):
        return [one for part in value for one in _ids(part)]
    is_person = isinstance(value, dict) and value.keys() == {"person"}
    return [value["person"]] if is_person and isinstance(value["person"], int) else []


def _shown(value: Any, people: Mapping[int, Named]) -> Any:
    """People by their present names; texts that an erasure took away as that."""
    if ids := _ids(value):
        names = [people[one].name if one in people else GONE for one in ids]
        return names if isinstance(value, list) else names[0]
    return value


def _line(event: AuditEvent, named: Named | None, people: Mapping[int, Named]) -> AuditLine:
    sentence = SENTENCES.get(event.action)
    values = _Values({name: _shown(value, people) for name, value in event.details.items()})
    before, _, after = (sentence or f"{event.action} {{subject}}").partition("{subject}")
    asks = sentence is None or "{subject}" in sentence
    return AuditLine(
        at=event.at,
        who=str(event.actor) if event.actor else "The system",
        before=before.format_map(values),
        subject=(named.name if named else GONE if event.about_id else event.subject)
        if asks
        else "",
        url=named.url if named and asks else "",
        after=after.format_map(values).removesuffix(": "),
        action=event.action,
        details={} if sentence else values.copy(),
    )


class _Values(dict[str, Any]):
    """The details of an event as its sentence writes them; nothing where it has none."""

    def __getitem__(self, name: str) -> str:
        if name in self:
            value = super().__getitem__(name)
            return "" if value == "" else _said(value)
        return ", ".join(_change(*item) for item in self.items()) if name == "changes" else ""


def _change(name: str, value: Any) -> str:
    label = FIELDS.get(name, name.replace("_", " "))
    if isinstance(value, list | tuple) and len(value) == 2:
        return f"{label} from {_said(value[0])} to {_said(value[1])}"
    return f"{label} to {_said(value)}"


def _said(value: Any) -> str:
    if value is None or value == "" or value == []:
        return "nothing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,}"
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    text = _NAMES.get(str(value), str(value))
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}…"


def invitations_named(project: Project, ids: Iterable[str]) -> dict[str, Named]:
    """Invitations by their addresses, for the log's sentences."""
    rows = Invitation.objects.filter(project=project, pk__in=ids)
    url = reverse("accounts:people", args=[project.slug])
    return {row.pk: Named(row.email or row.pk, url) for row in rows}


# Whose User-Agent says what: the first that fits. Chrome says Safari too, Edge says Chrome too.
_BROWSERS = (
    *(("Edg/", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome")),
    *(("Safari/", "Safari"), ("python-", "Python"), ("curl/", "curl")),
)
_SYSTEMS = (
    *(("iPhone", "iPhone"), ("iPad", "iPad"), ("Android", "Android"), ("Windows", "Windows")),
    *(("Mac OS X", "macOS"), ("CrOS", "ChromeOS"), ("Linux", "Linux")),
)


def browser_named(agent: str) -> str:
    """A User-Agent as people call it, such as `Firefox, Windows`; its beginning where it is none
    of the known ones."""
    found = [
        next((name for part, name in known if part in agent), "") for known in (_BROWSERS, _SYSTEMS)
    ]
    return ", ".join(filter(None, found)) or agent[:60]
