"""Who may use which address: every page and every API operation, one line each.

Add a line when you add a URL; the test fails until it is here. A line says which roles are
allowed and what they get (`ok`). From that follows what the others get: other roles 403, outsiders
404, and who is not signed in 302 (pages) or 401 (API). `expect` overrides single answers.

`args` and `data` may be functions of the `World` (tests/web/world.py), for addresses with ids.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.urls import reverse
from django.urls.exceptions import NoReverseMatch

from apps.labeling.models import Comment, Task, WrittenText
from apps.labeling.services.comments import comment_add
from apps.labeling.services.task_rows import tasks_import
from tests.labeling.writing import batch_make, submitted, taken
from tests.people import person_make
from tests.web.world import World

ANNOTATOR, REVIEWER, ENGINEER, ADMIN = "annotator", "reviewer", "engineer", "admin"
EVERYONE = frozenset({ANNOTATOR, REVIEWER, ENGINEER, ADMIN})
LABELERS = frozenset({ANNOTATOR, REVIEWER, ADMIN})
READERS = frozenset({REVIEWER, ENGINEER, ADMIN})
JUDGES = frozenset({REVIEWER, ADMIN})
STAFF = frozenset({ENGINEER, ADMIN})
ADMINS = frozenset({ADMIN})
SIGNED_IN = None  # no project in the address: any person who is signed in, outsiders too
API_ROOT = "/api/v1"
PERSONAS = (ANNOTATOR, REVIEWER, ENGINEER, ADMIN, "outsider", "anonymous")

Made = dict[str, Any] | Callable[[World], dict[str, Any]]


@dataclass(frozen=True)
class Line:
    """`name` is a URL name ("accounts:people"), or for the API "GET /projects/{slug}"."""

    name: str
    roles: frozenset[str] | None
    ok: int = 200
    method: str = "GET"
    args: Made = field(default_factory=dict)
    data: Made = field(default_factory=dict)
    expect: dict[str, int] = field(default_factory=dict)

    @property
    def is_api(self) -> bool:
        return " /" in self.name

    def expected(self, persona: str) -> int:
        if persona in self.expect:
            return self.expect[persona]
        if persona == "anonymous":
            return 401 if self.is_api else 302
        if self.roles is SIGNED_IN or persona in self.roles:
            return self.ok
        return 404 if persona == "outsider" else 403


def address(line: Line, world: World) -> str:
    """Where the line's page or operation is."""
    args = line.args(world) if callable(line.args) else dict(line.args)
    if line.is_api:
        path = line.name.split()[1]
        return API_ROOT + path.format(**({"slug": world.project.slug} | args))
    if line.name == "api:unknown":
        return f"{API_ROOT}/nothing/here"
    try:
        return reverse(line.name, kwargs=args)
    except NoReverseMatch:
        return reverse(line.name, kwargs={"slug": world.project.slug} | args)


def page(name: str, roles: frozenset[str] | None, **more: Any) -> Line:
    return Line(name, roles, **more)


def post(name: str, roles: frozenset[str] | None, **more: Any) -> Line:
    return Line(name, roles, method="POST", **({"ok": 302} | more))


def api(name: str, roles: frozenset[str] | None, **more: Any) -> Line:
    return Line(name, roles, method=name.split()[0], **more)


def anyone(status: int) -> dict[str, int]:
    return {"anonymous": status}


def person(world: World) -> dict[str, Any]:
    return {"user_id": world.ana.pk}


def api_person(world: World) -> dict[str, Any]:
    return {"user": world.ana.pk}


PROVIDER = {"provider_id": "oidc"}  # none is set

ACCOUNTS = [
    page("home", SIGNED_IN, ok=302),
    page("metrics", SIGNED_IN, ok=404, expect=anyone(404)),  # off until a token is set
    # of a project that one belongs to; everything else is not there
    page("image", SIGNED_IN, args={"sha256": "0" * 64}, ok=404),
    page("result", SIGNED_IN, args={"sha256": "0" * 64}, ok=404),
    page("words", SIGNED_IN, args={"language": "de"}, expect=anyone(200)),
    page("livez", SIGNED_IN, expect=anyone(200)),
    page("readyz", SIGNED_IN, expect=anyone(200)),
    page("healthz", SIGNED_IN, ok=503, expect=anyone(503)),  # no workers run beside this test
    page("accounts:sign_in", SIGNED_IN, ok=302, expect=anyone(200)),
    page("account_login", SIGNED_IN, ok=302, expect=anyone(200)),
    page("account_reset_password", SIGNED_IN, expect=anyone(200)),
    page("account_reset_password_done", SIGNED_IN, expect=anyone(200)),
    page(
        "account_reset_password_from_key",
        SIGNED_IN,
        args={"uidb36": "1", "key": "no-such-key"},
        expect=anyone(200),
    ),
    page("openid_connect_login", SIGNED_IN, ok=404, args=PROVIDER, expect=anyone(404)),
    page("openid_connect_callback", SIGNED_IN, ok=404, args=PROVIDER, expect=anyone(404)),
    page("mfa_authenticate", SIGNED_IN, ok=302),
    page("mfa_login_webauthn", SIGNED_IN, ok=302),
    page("mfa_index", SIGNED_IN),
    page("mfa_activate_totp", SIGNED_IN),
    page("mfa_deactivate_totp", SIGNED_IN, ok=404),  # they have none
    page("mfa_view_recovery_codes", SIGNED_IN, ok=404),
    page("mfa_generate_recovery_codes", SIGNED_IN),
    page("mfa_add_webauthn", SIGNED_IN),
    page("mfa_remove_webauthn", SIGNED_IN, ok=404, args={"pk": 1}),
    # Its own token opens it, which this site has not set.
    *(
        page(f"scim:{name}", SIGNED_IN, ok=404, expect=anyone(404))
        for name in ("users", "service-provider-config", "resource-types", "schemas")
    ),
    page("scim:users-search", SIGNED_IN, ok=404, expect=anyone(404)),
    page("accounts:sign_in_again", SIGNED_IN, ok=302),  # they have just signed in
    page("accounts:sent_form", SIGNED_IN, ok=302),  # nothing waits
    post("accounts:provider_connect", SIGNED_IN, ok=404),
    post("accounts:provider_disconnect", SIGNED_IN, ok=404),
    page("accounts:sessions", SIGNED_IN),
    post("accounts:session_end", SIGNED_IN),
    page("accounts:set_up", SIGNED_IN, ok=404, expect=anyone(404)),  # the site has people
    page("accounts:invitation", SIGNED_IN, ok=404, args={"token": "none"}, expect=anyone(404)),
    page("accounts:site_audit_log", frozenset(), expect=dict.fromkeys(PERSONAS[:-1], 403)),
    page("site_backups", frozenset(), expect=dict.fromkeys(PERSONAS[:-1], 403)),
    page("accounts:site_people", frozenset(), expect=dict.fromkeys(PERSONAS[:-1], 403)),
    post(
        "accounts:site_person", frozenset(), args=person, expect=dict.fromkeys(PERSONAS[:-1], 403)
    ),
    post("labeling:consent", LABELERS),
    post("accounts:own_data", SIGNED_IN, ok=200),
    post("accounts:erasure_ask", SIGNED_IN),
    post(
        "accounts:person_data", frozenset(), args=person, expect=dict.fromkeys(PERSONAS[:-1], 403)
    ),
    page(
        "accounts:person_erase", frozenset(), args=person, expect=dict.fromkeys(PERSONAS[:-1], 403)
    ),
    post(
        "accounts:person_erase", frozenset(), args=person, expect=dict.fromkeys(PERSONAS[:-1], 403)
    ),
    page("accounts:projects", SIGNED_IN),
    page("accounts:project_new", ADMINS, expect={"outsider": 200}),  # Olga administers another
    post(
        "accounts:project_new",
        ADMINS,
        data={"name": "One more", "description": "", "copy_of": ""},
        expect={"outsider": 302},
    ),
    post("accounts:project_restore", SIGNED_IN, ok=404),  # nothing is archived
    post("accounts:project_delete", SIGNED_IN, ok=404),
    page("accounts:project_export", SIGNED_IN, ok=404, args={"name": "results"}),
    page("accounts:project_settings", ADMINS),
    post("accounts:project_settings", ADMINS, data={"name": "Claims", "description": ""}),
    post("accounts:project_archive", ADMINS),
    post("accounts:set_up_done", ADMINS),
    post("accounts:sign_out", SIGNED_IN),
    page("accounts:account", SIGNED_IN),
    post("accounts:profile", SIGNED_IN, data={"display_name": "New"}),
    post("accounts:theme", SIGNED_IN, data={"theme": "dark"}),
    post("accounts:password", SIGNED_IN, ok=422),
    post("accounts:token_create", SIGNED_IN, ok=422),
    post("accounts:token_revoke", SIGNED_IN, ok=404, args={"token_id": "nobodys"}),
    page("accounts:project", EVERYONE, ok=302),
    page("accounts:people", ADMINS),
    post("accounts:invite", ADMINS, ok=422),
    post("accounts:invitation_change", ADMINS, ok=404, args={"invitation_id": "none"}),
    page("accounts:person", ADMINS, args=person),
    post("accounts:person_role", ADMINS, args=person, data={"role": "reviewer"}),
    post("accounts:person_remove", ADMINS, args=person),
    post("accounts:person_password", ADMINS, ok=200, args=person),
    page("accounts:audit_log", ADMINS),
    page("accounts:audit_csv", ADMINS),
    page("admin:index", SIGNED_IN, ok=302),  # Django's own: superusers only, none among them
    page("api:openapi-json", SIGNED_IN, expect=anyone(200)),
    page("api:openapi-view", SIGNED_IN),
    page("api:api-root", SIGNED_IN, ok=404, expect=anyone(404)),
    page("api:unknown", SIGNED_IN, ok=404, expect=anyone(404)),
]

OVERVIEW = [
    page("loop:overview", EVERYONE),
    page("loop:demo_results", READERS),
    page("loop:progress", LABELERS),
    page("loop:notifications", EVERYONE),
    api("GET /projects/{slug}/overview", EVERYONE),
    api("GET /projects/{slug}/notifications", EVERYONE),
    api("GET /projects/{slug}/progress", LABELERS),
]

ACCOUNTS_API = [
    api("GET /me", SIGNED_IN),
    api("GET /projects", SIGNED_IN),
    api("GET /audit-log", frozenset(), expect=dict.fromkeys(PERSONAS[:-1], 403)),
    api(
        "POST /projects",
        ADMINS,
        ok=201,
        data={"name": "Another"},
        expect={"outsider": 201},  # Olga administers a project of her own
    ),
    api("GET /projects/{slug}", EVERYONE),
    api("GET /projects/{slug}/consent", EVERYONE),
    api("POST /projects/{slug}/consent", LABELERS, ok=409, data={"version": 7}),
    api("PATCH /projects/{slug}", ADMINS, data={"name": "Claims"}),
    api("POST /projects/{slug}/archive", ADMINS, ok=204),
    api("POST /projects/{slug}/restore", SIGNED_IN, ok=404),
    api("POST /projects/{slug}/delete", SIGNED_IN, ok=404, data={"name": "Arguments"}),
    api("GET /projects/{slug}/invitations", ADMINS),
    api("POST /projects/{slug}/invitations", ADMINS, ok=201, data={"role": "annotator"}),
    api(
        "DELETE /projects/{slug}/invitations/{invitation_id}",
        ADMINS,
        ok=404,
        args={"invitation_id": "none"},
    ),
    api("GET /projects/{slug}/people", READERS),
    api("GET /projects/{slug}/audit-log", ADMINS),
    api(
        "PUT /projects/{slug}/people/{username}",
        ADMINS,
        args={"username": "ana"},
        data={"role": "reviewer"},
    ),
    api("DELETE /projects/{slug}/people/{username}", ADMINS, ok=204, args={"username": "ana"}),
]

ANSWER = {"key": "k", "answer": "left"}
BALLOT = {"idempotency_key": "k", "side": "left"}


def comparison_link(world: World) -> dict[str, Any]:
    return {"comparison": world.comparison.pk}


def newest_ruling(world: World) -> int:
    return max(world.comparison.rulings.values_list("pk", flat=True), default=0)


def comparison_id(world: World) -> dict[str, Any]:
    return {"comparison_id": world.comparison.pk}


def slot_id(world: World) -> dict[str, Any]:
    return {"slot": world.comparison.slots.order_by("position")[0].pk}


def import_job_id(world: World) -> dict[str, Any]:
    return {"job_id": world.import_job.pk}


def import_job(world: World) -> dict[str, Any]:
    return {"job": world.import_job.pk}


LABELING = [
    page("labeling:label", LABELERS),
    post("labeling:vote", LABELERS, ok=400),  # an empty answer
    post("labeling:skip", LABELERS, ok=400),
    post("labeling:hold", LABELERS, ok=200),
    # of a pair that one holds
    page("labeling:part", LABELERS, args={"slot": 1, "side": "left", "number": 0}, ok=404),
    # says who is signed in, of the project nothing
    page("labeling:who", EVERYONE, expect={"outsider": 200, "anonymous": 200}),
    page("labeling:answers", LABELERS),
    # nobody here has answered anything, and an answer is its annotator's own
    post("labeling:revise", LABELERS, args={"vote_id": 1}, data=ANSWER, ok=404),
    post("labeling:withdraw", LABELERS, args={"vote_id": 1}, ok=404),
    page("labeling:guidelines", EVERYONE),
    page("labeling:guideline_edit", ADMINS),
    post("labeling:acknowledge", LABELERS, data={"version": "1"}),
    page("labeling:qualification", LABELERS),
    post("labeling:qualification_start", LABELERS),
    post("labeling:qualification_answer", LABELERS, data={"answer": "left"}, ok=404),  # no round
    page("work", SIGNED_IN),
    page("labeling:opt_outs", LABELERS),
    page("labeling:annotators", ADMINS),
    post("labeling:annotators_qualify", ADMINS),
    page("labeling:annotator", ADMINS, args=person),
    page("labeling:person_votes", ADMINS, args=person),
    page("labeling:hours", LABELERS),
    page("labeling:hours_csv", LABELERS),
    # nothing of theirs counts: back to the list
    page("labeling:person_votes_discard", ADMINS, args=person, ok=302),
    post("labeling:discard_undo", ADMINS, args=lambda world: person(world) | {"discard_id": 1}),
    post("labeling:annotator_limits", ADMINS, args=person),
    post("labeling:annotator_pause", ADMINS, args=person, data={"reason": "a holiday"}),
    post("labeling:annotator_qualification", ADMINS, args=person, data={"action": "qualify"}),
    page("labeling:ambiguous", READERS),
    page("labeling:comparisons", READERS),
    page("labeling:results_file", READERS),
    page("labeling:votes_file", READERS),
    page("labeling:trajectories_file", READERS),
    page("labeling:steps_file", READERS),
    page("labeling:images", STAFF),
    post("labeling:images", STAFF),  # no file was chosen, which the page says
    page("labeling:image_delete", ADMINS, args={"sha256": "0" * 64}, ok=404),
    post("labeling:image_delete", ADMINS, args={"sha256": "0" * 64}, ok=404),
    page("labeling:comparison", READERS, args=comparison_id),
    page("labeling:bulk", READERS, ok=302),  # nothing was chosen
    post("labeling:views", READERS, data={"name": "mine"}),
    post("labeling:comparison_state", ADMINS, args=comparison_id, data={"action": "drop"}),
    page("labeling:settings", ADMINS),
    page("labeling:imports", STAFF),
    page("labeling:import", STAFF, args=import_job_id),
    # nothing is chosen, nothing was checked, which the pages say
    post("labeling:imports", STAFF, ok=422),
    post("labeling:import_settings", STAFF, args=import_job_id, ok=422),
    post("labeling:import_action", STAFF, args=import_job_id, data={"action": "start"}),
    post("labeling:import_people", ADMINS, args=import_job_id),  # it is not in yet, which is said
    page("labeling:import_findings", STAFF, args=import_job_id),
]


def comment(world: World) -> Comment:
    """Ada's, made again for each try."""
    return comment_add(comparison=world.comparison, author=world.ada, text="Look.")


COMMENTS = "/projects/{slug}/comparisons/{comparison}/comments"
COMMENT = "/projects/{slug}/comments/{comment}"
COMMENTS_AND_QUESTIONS = [
    page("labeling:comments", JUDGES, args=comparison_id),
    post("labeling:comments", JUDGES, args=comparison_id, data={"text": "Look."}),
    page("labeling:comment", JUDGES, args=lambda w: {"comment_id": comment(w).pk}),
    # a comment is its author's own
    post(
        "labeling:comment",
        ADMINS,
        args=lambda w: {"comment_id": comment(w).pk},
        data={"text": "Look again."},
    ),
    page("labeling:questions", LABELERS),
    post("labeling:ask", LABELERS, data={"slot": 1, "text": "Why?"}),  # says that it is not theirs
    api(f"GET {COMMENTS}", JUDGES, args=comparison_link),
    api(
        f"POST {COMMENTS}",
        JUDGES,
        ok=201,
        args=comparison_link,
        data={"text": "Look."},
    ),
    api(
        f"PATCH {COMMENT}",
        ADMINS,
        args=lambda w: {"comment": comment(w).pk},
        data={"text": "Look again."},
    ),
    api(f"DELETE {COMMENT}", ADMINS, ok=204, args=lambda w: {"comment": comment(w).pk}),
    api("GET /projects/{slug}/questions", LABELERS),
    # a pair that is not in one's hands is nothing to ask about
    api("POST /projects/{slug}/questions", LABELERS, data={"slot": 1, "text": "Why?"}, ok=404),
]

LABELING_API = [
    api("POST /projects/{slug}/comparisons/import", STAFF, data={"rows": []}, ok=201),
    api("POST /projects/{slug}/votes/import", ADMINS, data={"rows": []}, ok=201),
    api("GET /projects/{slug}/imports", STAFF),
    api("POST /projects/{slug}/imports", STAFF, ok=400),  # no file
    api("GET /projects/{slug}/imports/{job}", STAFF, args=import_job),
    api("GET /projects/{slug}/imports/{job}/findings", STAFF, args=import_job),
    api("POST /projects/{slug}/imports/{job}/settings", STAFF, args=import_job, data={}),
    # its worker has taken nothing yet, and nothing was checked
    api("POST /projects/{slug}/imports/{job}/check", STAFF, args=import_job, ok=202),
    api("POST /projects/{slug}/imports/{job}/start", STAFF, args=import_job, data={}, ok=409),
    # no such import: cancelling the world's would delete its file for good
    api("POST /projects/{slug}/imports/{job}/cancel", STAFF, args={"job": "none"}, ok=404),
    api("POST /projects/{slug}/imports/{job}/due", STAFF, args=import_job, data={}),
    api(
        "POST /projects/{slug}/imports/{job}/people",
        ADMINS,
        args=import_job,
        data={"people": []},
        ok=409,
    ),
    api("POST /projects/{slug}/imports/{job}/undo", STAFF, args={"job": "none"}, ok=404),
    api("GET /projects/{slug}/annotators/{user}/votes", ADMINS, args=api_person),
    api(
        "POST /projects/{slug}/annotators/{user}/votes/discard",
        ADMINS,
        args=api_person,
        data={"dry_run": True, "choice": "tie", "since": "2100-01-01"},
        ok=409,
    ),
    api("GET /projects/{slug}/discards", ADMINS),
    api("GET /projects/{slug}/hours", LABELERS),
    api("GET /projects/{slug}/completion", LABELERS),
    api("GET /projects/{slug}/completion/{code}", ADMINS, args={"code": "none"}, ok=404),
    api("POST /projects/{slug}/discards/{discard}/undo", ADMINS, args={"discard": 1}, ok=404),
    api("POST /projects/{slug}/next", LABELERS),
    # a pair that is not in one's hands cannot be voted on
    api("POST /slots/{slot}/vote", LABELERS, args=slot_id, data=BALLOT, ok=409),
    api("POST /slots/{slot}/skip", LABELERS, args=slot_id),
    api(
        "POST /votes/{vote}/revise",
        LABELERS,
        args={"vote": 1},
        data=BALLOT,
        ok=404,
        expect={ENGINEER: 404},  # not theirs comes before not allowed
    ),
    # a comparison of the world was imported, so there are guidelines
    api("GET /projects/{slug}/guidelines", EVERYONE),
    api("POST /projects/{slug}/guidelines", ADMINS, data={"body": "Judge facts."}),
    api("POST /projects/{slug}/guidelines/acknowledge", LABELERS, data={"version": 1}),
    api("GET /projects/{slug}/opt-outs", LABELERS),
    api("PUT /projects/{slug}/opt-outs", LABELERS, data={}),
    api("GET /projects/{slug}/comparisons", READERS),
    api(
        "POST /projects/{slug}/comparisons/bulk",
        STAFF,
        data={"action": "priority", "value": 1, "filters": {}, "key": "world"},
    ),
    api("GET /projects/{slug}/comparisons/views", READERS),
    api("POST /projects/{slug}/comparisons/views", READERS, data={"name": "mine"}, ok=201),
    api("DELETE /projects/{slug}/comparisons/views/{view}", READERS, args={"view": 1}, ok=404),
    api("GET /projects/{slug}/decisions", READERS),
    api("GET /projects/{slug}/results", READERS),
    api("GET /projects/{slug}/results/votes", READERS),
    api("GET /projects/{slug}/results/trajectories", READERS),
    api("GET /projects/{slug}/results/steps", READERS),
    api("GET /projects/{slug}/images", READERS),
    api("POST /projects/{slug}/images", STAFF, ok=400),  # no file
    api("DELETE /projects/{slug}/images/{sha256}", ADMINS, ok=404, args={"sha256": "0" * 64}),
    api("GET /projects/{slug}/labeling", READERS),
    api("PATCH /projects/{slug}/labeling", ADMINS, data={"overlap": 2}),
]


def rating_task(world: World) -> Task:
    """A task nobody holds or has rated; made again for each try."""
    row = {"prompt": "Which?", "responses": ["This.", "That."]}
    tasks_import(project=world.project, rows=[row])
    return Task.objects.exclude(kind="pair").get(project=world.project)


def rating_task_id(world: World) -> dict[str, Any]:
    return {"task_id": rating_task(world).pk}


def rating_slot_id(world: World) -> dict[str, Any]:
    return {"slot": rating_task(world).slots.order_by("position")[0].pk}


RATED = {"idempotency_key": "k", "values": [1, 2]}
RATINGS = [
    page("labeling:rate", LABELERS),
    post("labeling:rate_submit", LABELERS, ok=400),  # nothing rated
    post("labeling:rate_skip", LABELERS, ok=400),
    page("labeling:ratings_mine", LABELERS),
    # nobody here has rated anything, and a rating is its annotator's own
    page("labeling:rating_change", LABELERS, args={"rating_id": 1}, ok=404),
    page("labeling:rating_tasks", READERS),
    page("labeling:rating_task", READERS, args=rating_task_id),
    post("labeling:rating_task_state", ADMINS, args=rating_task_id, data={"action": "drop"}),
    post("labeling:rating_pairs", STAFF),
    api("POST /projects/{slug}/ratings/pairs", STAFF, ok=201),
    api("POST /projects/{slug}/ratings/import", STAFF, data={"rows": []}, ok=201),
    api("POST /projects/{slug}/ratings/next", LABELERS),
    # a task that is not in one's hands cannot be rated
    api("POST /rating-slots/{slot}/rating", LABELERS, args=rating_slot_id, data=RATED, ok=409),
    api("POST /rating-slots/{slot}/skip", LABELERS, args=rating_slot_id),
    api(
        "POST /ratings/{rating}/revise",
        LABELERS,
        args={"rating": 1},
        data=RATED,
        ok=404,
        expect={ENGINEER: 404},  # not theirs comes before not allowed
    ),
    api("GET /projects/{slug}/ratings", READERS),
]


def waiting_text(world: World) -> WrittenText:
    """A text of somebody else's that waits for a review."""
    writer = person_make("Writer", world.project, ANNOTATOR)
    batch_make(world.project)
    text = taken(world.project, writer)
    submitted(text, writer)
    return text


def text_id(world: World) -> dict[str, Any]:
    return {"text_id": waiting_text(world).pk}


def batch_id(world: World) -> dict[str, Any]:
    return {"batch_id": batch_make(world.project).pk}


def api_text(world: World) -> dict[str, Any]:
    return {"text": waiting_text(world).pk}


def api_batch(world: World) -> dict[str, Any]:
    return {"batch": batch_make(world.project).pk}


API_TEXT = "/projects/{slug}/writing/texts/{text}"
ASKED = {"name": "Answers", "prompts": [{"prompt": "Why?"}]}
SUBMITTED = {"body": "x", "idempotency_key": "k"}
VERDICT = {"version": 1, "verdict": "accepted"}
NOT_THEIRS = {ANNOTATOR: 404}  # another's text is as unknown to them as one that there is not
WRITING = [
    page("labeling:write", LABELERS),
    page("labeling:write_mine", LABELERS),
    page("labeling:write_review", EVERYONE),
    post("labeling:write_preview", EVERYONE, data={"body": "x"}, ok=200),
    page("labeling:write_text", READERS, args=text_id, expect=NOT_THEIRS),
    post("labeling:write_draft", LABELERS, args=text_id, data={"body": "x"}, ok=200),  # said there
    post("labeling:write_submit", LABELERS, args=text_id, data={"body": "x", "key": "k"}),
    post("labeling:write_skip", LABELERS, args=text_id),
    post("labeling:write_verdict", READERS, args=text_id, data=VERDICT, expect=NOT_THEIRS),
    page("labeling:writing", READERS),
    page("labeling:writing_new", STAFF),
    page("labeling:writing_batch", READERS, args=batch_id),
    post("labeling:writing_state", STAFF, args=batch_id, data={"action": "close"}),
    api("GET /projects/{slug}/writing", READERS),
    api("POST /projects/{slug}/writing", STAFF, data=ASKED, ok=201),
    api("GET /projects/{slug}/writing/batches/{batch}", READERS, args=api_batch),
    api(
        "PATCH /projects/{slug}/writing/batches/{batch}",
        STAFF,
        args=api_batch,
        data={"is_open": False},
    ),
    api("GET /projects/{slug}/writing/texts", READERS),
    api("POST /projects/{slug}/writing/next", LABELERS),
    # a text that is not in one's hands is neither drafted nor submitted
    api(f"PUT {API_TEXT}/draft", LABELERS, args=api_text, data={"body": "x"}, ok=409),
    api(f"POST {API_TEXT}/submit", LABELERS, args=api_text, data=SUBMITTED, ok=409),
    api(f"POST {API_TEXT}/skip", LABELERS, args=api_text, ok=204),
    api(f"POST {API_TEXT}/review", READERS, args=api_text, data=VERDICT),
]

AGREEMENT = [
    page("agreement:overview", READERS),
    post("agreement:refresh", READERS),
    page("agreement:splits_csv", READERS),
    page("agreement:statistics_csv", READERS),
    page("agreement:runs", READERS),
    page("agreement:slices", READERS),
    page("agreement:slices_csv", READERS),
    page("agreement:matrix", READERS),
    page("agreement:matrix_csv", READERS),
    # nobody has voted in the world
    page("agreement:disagreements", READERS, args={"first": 1, "second": 2}, ok=404),
    page("agreement:annotators", READERS),
    page("agreement:annotators_csv", READERS),
    post("agreement:annotators_refresh", READERS),
    page("agreement:annotator", READERS, args=person),
    page("agreement:annotator_csv", READERS, args=person),
    post("agreement:annotator_datasets", ADMINS, args=person, data={"reason": "clicks left"}),
    page("agreement:results", READERS),
    page("agreement:pairs_csv", READERS),
    page("agreement:ranking_csv", READERS),
    page("agreement:decisions", READERS),
    page("agreement:decisions_preview", READERS),
    page("agreement:decisions_csv", READERS),
    post("agreement:decisions_apply", READERS, data={"action": "look"}),
    post("agreement:decisions_apply", ADMINS, data={"action": "apply"}, ok=422),
    post("agreement:decisions_compare", STAFF),
    page("agreement:disputes", READERS),
    page("agreement:dispute_causes", READERS),
    page("agreement:dispute_causes_csv", READERS),
    page("agreement:rulings_csv", READERS),
    page("agreement:reannotation", READERS),
    page("agreement:reannotation_csv", READERS),
    post("agreement:dispute_votes", JUDGES, args=comparison_id),
    page("agreement:dispute", READERS, args=comparison_id),
    post(
        "agreement:dispute_rule",
        JUDGES,
        args=comparison_id,
        data={"action": "drop", "seen": 0},
    ),
    page("agreement:disputes_again", ADMINS),
    page("agreement:audits", READERS),
    page("agreement:audits_csv", READERS),
]

AGREEMENT_API = [
    api("GET /projects/{slug}/agreement", READERS),
    api("GET /projects/{slug}/ranking", READERS),
    api("POST /projects/{slug}/decisions/preview", READERS, data={}),
    api("POST /projects/{slug}/decisions/rule", ADMINS, data={}),
    api("GET /projects/{slug}/decisions/ways", READERS, ok=404),  # nothing was compared here
    api("POST /projects/{slug}/decisions/ways", STAFF, ok=404),  # there are no votes
    api("GET /projects/{slug}/disputes", READERS),
    api("GET /projects/{slug}/disputes/{comparison}", READERS, args=comparison_link),
    api("POST /projects/{slug}/disputes/{comparison}/votes", JUDGES, args=comparison_link),
    api(
        "POST /projects/{slug}/disputes/{comparison}/rulings",
        JUDGES,
        ok=201,
        args=comparison_link,
        data=lambda w: {"action": "drop", "seen": newest_ruling(w)},
    ),
]


def snapshot(world: World) -> dict[str, Any]:
    return {"snapshot": world.snapshot.pk}


def snapshot_id(world: World) -> dict[str, Any]:
    return {"snapshot_id": world.snapshot.pk}


SNAPSHOTS = [
    page("snapshots:list", READERS),
    page("snapshots:create", STAFF),
    page("snapshots:import", STAFF),
    post("snapshots:import", STAFF, ok=422),
    page("snapshots:detail", READERS, args=snapshot),
    page("snapshots:compare", READERS),
    page("snapshots:compare_csv", READERS, ok=404),  # it names no datasets
    page("snapshots:comparison_lineage", READERS, args=comparison_link),
    page("snapshots:mix", STAFF),
    page("snapshots:rows", READERS, args=snapshot),
    page("snapshots:lineage", READERS, args=snapshot),
    page("snapshots:report", READERS, args=snapshot),
    page("snapshots:report_csv", READERS, args=snapshot),
    post("snapshots:report_preview", STAFF, ok=200),
    page("snapshots:ready", READERS),
    page("snapshots:selection", READERS),
    post("snapshots:selection_start", STAFF),
    page("snapshots:budget", STAFF),
    post("snapshots:depth_start", STAFF),
    page("snapshots:exports", STAFF, args=snapshot),
    page("snapshots:export_file", STAFF, args=snapshot, data={"format": "zip"}, ok=409),
    post("snapshots:verify", READERS, args=snapshot),
    post("snapshots:action", STAFF, args=snapshot, data={"action": "cancel"}),
    page("snapshots:looks", READERS, args=snapshot),
    post("snapshots:look_sign", STAFF, args=snapshot),
    post("snapshots:look_budget", ADMINS, args=snapshot),
    # the world's dataset has no private rows
    post("snapshots:private", ADMINS, args=snapshot, data={"split": "private_test"}, ok=404),
    # the world's dataset has no files, which a download says
    page("snapshots:download", STAFF, args=snapshot, data={"format": "zip"}, ok=409),
]

SNAPSHOTS_API = [
    api("GET /projects/{slug}/snapshots", READERS),
    api("GET /projects/{slug}/advice", READERS),
    api("GET /projects/{slug}/label-budget", STAFF),
    api("GET /projects/{slug}/selection-replays", READERS),
    api("POST /projects/{slug}/selection-replays", STAFF, data={}, ok=400),  # too few votes
    api("POST /projects/{slug}/snapshots", STAFF, data={"name": "x"}, ok=400),  # nothing to freeze
    api("POST /projects/{slug}/snapshots/preview", STAFF, data={}),
    api("POST /projects/{slug}/snapshots/mixtures", STAFF, data={"name": "x", "parts": []}, ok=422),
    api("GET /projects/{slug}/snapshots/{snapshot_id}", READERS, args=snapshot_id),
    api("POST /projects/{slug}/snapshots/{snapshot_id}/verify", READERS, args=snapshot_id),
    api("GET /projects/{slug}/snapshots/{snapshot_id}/looks", READERS, args=snapshot_id),
    api(
        "POST /projects/{slug}/snapshots/{snapshot_id}/looks/sign",
        STAFF,
        args=snapshot_id,
        data={"split": "none", "look": 1, "person": "ana", "reason": "Why not"},
        ok=404,
    ),
    api(
        "PUT /projects/{slug}/snapshots/{snapshot_id}/looks/budget",
        ADMINS,
        args=snapshot_id,
        data={"split": "none", "looks": 5},
        ok=404,
    ),
    api(
        "GET /projects/{slug}/snapshots/{snapshot_id}/export",
        STAFF,
        args=snapshot_id,
        data={"format": "zip"},
        ok=409,
    ),
    api(
        "GET /projects/{slug}/snapshots/{snapshot_id}/changes",
        READERS,
        args=snapshot_id,
        data={"since": "nothing"},
        ok=404,
    ),
    api("GET /projects/{slug}/votes/{vote_id}/lineage", READERS, args={"vote_id": 0}, ok=404),
]


def run_id(world: World) -> dict[str, Any]:
    return {"run_id": world.run.pk}


def group_id(world: World) -> dict[str, Any]:
    return {"group": world.seed.group}


def alert_id(world: World) -> dict[str, Any]:
    return run_id(world) | {"alert_id": world.alert.pk}


RUN = "/projects/{slug}/runs/{run_id}"
TRAINING = [
    page("training:runs", STAFF),
    page("training:fleet", STAFF),
    page("training:constitution", STAFF),
    post("training:constitution", STAFF, ok=422),
    page("training:revisions", STAFF, args=run_id),
    post("training:revisions", STAFF, args=run_id, ok=422),  # the run rewrote nothing
    page("training:space", STAFF),
    page("training:space_csv", STAFF),
    post("training:space_limits", ADMINS, data={"space_gb": "500", "keep_days": "90"}),
    page("training:intermediates", STAFF, args=run_id),
    post("training:intermediates", STAFF, args=run_id),
    post("training:quota", ADMINS, data={"runs_at_once": "2"}),
    post("training:drain", STAFF, data={"worker": "train@none", "drain": "no"}),
    # the world's run has finished, so it has no place any more
    post("training:run_move", STAFF, args=run_id, data={"to": "up"}, ok=409),
    post("training:run_priority", STAFF, args=run_id, data={"priority": "2"}, ok=409),
    page("training:run_kinds", STAFF),
    page("training:run_new", STAFF, args={"kind": "drill"}),
    post("training:run_new", STAFF, args={"kind": "drill"}, ok=422),
    post("training:reward_try", STAFF, args={"kind": "ppo"}, ok=422),
    page("training:reward_tried", STAFF, args=run_id),
    post("training:run_estimate", STAFF, args={"kind": "drill"}, ok=200),
    page("training:run", STAFF, args=run_id),
    page("training:run_stream", STAFF, args=run_id, ok=204),  # the world's run has finished
    page("loop:pairs", STAFF, args=run_id),
    post("loop:pairs", STAFF, args=run_id, data={"action": "take_back"}),
    page("training:run_compare", STAFF),
    page("training:group", STAFF, args=group_id),
    page("training:group_csv", STAFF, args=group_id),
    post("training:group_add", STAFF, args=group_id, data={"seeds": "1"}),
    post("training:group_stop", STAFF, args=group_id),
    page("training:run_metrics", STAFF, args=run_id),
    page("training:run_metrics_csv", STAFF, args=run_id),
    page("training:run_band", STAFF, args=run_id),
    page("training:run_histograms_csv", STAFF, args=run_id),
    page("training:run_artifact", STAFF, args=lambda w: run_id(w) | {"artifact_id": 1}, ok=404),
    # the world's run has finished, which the buttons say
    post("training:run_stop", STAFF, args=run_id, ok=409),
    page("training:run_edit", STAFF, args=run_id),
    post("training:run_edit", STAFF, args=run_id, data={"name": "other", "tags": "", "note": ""}),
    page("training:run_cancel", STAFF, args=run_id),
    post("training:run_cancel", STAFF, args=run_id, ok=409),
    post("training:run_resume", STAFF, args=run_id, ok=409),
    page("training:run_roll_back", STAFF, args=run_id),
    post("training:run_roll_back", STAFF, args=run_id),
    post("training:run_minimal", STAFF, args=run_id, ok=409),  # a drill is small as it is
    post("training:alert_acknowledge", STAFF, args=alert_id),
    page("training:models", STAFF),
    page("training:model", STAFF, args=lambda w: {"checkpoint_id": w.checkpoint.pk}),
    # a drill leaves no model to take out
    page(
        "training:model_download",
        STAFF,
        args=lambda w: {"checkpoint_id": w.checkpoint.pk},
        ok=404,
    ),
    post("training:model_copy", STAFF, args=lambda w: {"checkpoint_id": w.checkpoint.pk}),
    post("training:model_push", STAFF, args=lambda w: {"checkpoint_id": w.checkpoint.pk}),
    # a drill's checkpoint answers no prompts
    post(
        "training:model_evaluate",
        STAFF,
        args=lambda w: {"checkpoint_id": w.checkpoint.pk},
        ok=409,
    ),
]

A_MODEL = "/projects/{slug}/models/{checkpoint_id}"
TRAINING_API = [
    api("GET /projects/{slug}/runs", STAFF),
    api("POST /projects/{slug}/runs/estimate", STAFF, data={"kind": "drill", "name": "d"}),
    api("POST /projects/{slug}/runs", STAFF, data={"kind": "drill", "name": "d"}, ok=201),
    api(f"GET {RUN}", STAFF, args=run_id),
    api(f"GET {RUN}/events", STAFF, args=run_id),
    api(f"GET {RUN}/metrics", STAFF, args=run_id),
    api(f"GET {RUN}/samples", READERS, args=run_id),
    api(f"PATCH {RUN}", STAFF, args=run_id, data={"note": "so far so good"}),
    api(f"DELETE {RUN}", STAFF, args=run_id, ok=400),  # without its name
    api(f"GET {RUN}/log", STAFF, args=run_id),
    api(f"GET {RUN}/lineage", STAFF, args=run_id),
    api(f"GET {RUN}/pairs", STAFF, args=run_id),
    api(f"POST {RUN}/pairs", STAFF, args=run_id, data={}, ok=409),
    api(f"DELETE {RUN}/pairs", STAFF, args=run_id),
    api(f"POST {RUN}/pairs/selection", STAFF, args=run_id, data={"pairs": 1}, ok=409),
    api("POST /projects/{slug}/groups/{group}/stop", STAFF, args=group_id),
    api("GET /projects/{slug}/models", STAFF),
    api(f"GET {A_MODEL}", STAFF, args=lambda w: {"checkpoint_id": w.checkpoint.pk}),
    api(
        f"GET {A_MODEL}/download", STAFF, args=lambda w: {"checkpoint_id": w.checkpoint.pk}, ok=404
    ),
    api(
        f"POST {A_MODEL}/copy",
        STAFF,
        args=lambda w: {"checkpoint_id": w.checkpoint.pk},
        data={"project": "nowhere"},
        ok=404,
    ),
    api(
        f"POST {A_MODEL}/push",
        STAFF,
        args=lambda w: {"checkpoint_id": w.checkpoint.pk},
        data={"repo": "org/name"},
        ok=404,
    ),
    api("GET /projects/{slug}/fleet", STAFF),
    api(
        "POST /projects/{slug}/fleet/drain", STAFF, data={"worker": "train@none", "draining": False}
    ),
    api("GET /projects/{slug}/constitution", STAFF),
    api(
        "POST /projects/{slug}/constitution",
        STAFF,
        data={"principles": [{"name": "short", "text": "An answer is short."}]},
        ok=201,
    ),
    api(f"POST {RUN}/freeze-revisions", STAFF, args=run_id, data={}, ok=409),
    api("GET /projects/{slug}/space", STAFF),
    api("PATCH /projects/{slug}/limits", ADMINS, data={"keep_days": 90}),
    api(f"POST {RUN}/remove-intermediates", STAFF, args=run_id),
    api(f"POST {RUN}/move", STAFF, args=run_id, data={"to": "up"}, ok=409),
    api(f"POST {RUN}/priority", STAFF, args=run_id, data={"priority": "low"}, ok=409),
    api(f"POST {RUN}/cancel", STAFF, args=run_id, ok=409),
    api(f"POST {RUN}/stop", STAFF, args=run_id, ok=409),
    api(f"POST {RUN}/resume", STAFF, args=run_id, ok=409),
]


def model_id(world: World) -> dict[str, Any]:
    return {"checkpoint_id": world.reward_model.pk}


EVALUATION = [
    page("evaluation:reward_models", STAFF),
    page("evaluation:compare", STAFF),
    page("evaluation:reward_model", STAFF, args=model_id),
    page("evaluation:assess", STAFF, args=model_id),
    post("evaluation:assess", STAFF, args=model_id, ok=422),  # an empty form
    page("evaluation:approve", STAFF, args=model_id),
    post("evaluation:approve", STAFF, args=model_id, ok=422),
    page("evaluation:reject", STAFF, args=model_id),
    post("evaluation:reject", STAFF, args=model_id, ok=422),
    page("evaluation:retire", STAFF, args=model_id),
    post("evaluation:retire", STAFF, args=model_id, ok=422),
    # nobody has decided anything
    page("evaluation:review", STAFF, args=lambda w: model_id(w) | {"review_id": 1}, ok=404),
    page("evaluation:line_csv", STAFF, args=lambda w: model_id(w) | {"line": "accuracy"}),
]

NO_REQUEST = {"request_id": "none"}
A_STAGE = {"stage": "production"}
# The world's checkpoint is of a drill, which is no policy; nobody has asked for a promotion.
PROMOTION = [
    page("evaluation:service", READERS),
    post(
        "evaluation:stage_change",
        READERS,
        args=A_STAGE,
        data={"action": "revert", "change": "1", "reason": "worse"},
        ok=409,
        expect={REVIEWER: 403, ENGINEER: 403},
    ),
    page(
        "evaluation:promotion_new",
        STAFF,
        args=lambda w: {"checkpoint_id": w.checkpoint.pk},
        ok=404,
    ),
    page("evaluation:promotion", READERS, args=NO_REQUEST, ok=404),
    post("evaluation:promotion_decide", READERS, args=NO_REQUEST, ok=404),
    page("evaluation:checklists", STAFF, args=run_id),
]
STAGE = "/projects/{slug}/stages/{stage}"
PROMOTION_API = [
    api("GET /projects/{slug}/stages", READERS),
    api("GET /projects/{slug}/stages/history", READERS),
    *(
        api(
            f"POST {STAGE}/{verb}",
            READERS,
            args=A_STAGE,
            data={"change": 1, "share": 50, "reason": "worse"},
            ok=409,
            expect={REVIEWER: 403, ENGINEER: 403},
        )
        for verb in ("revert", "share")
    ),
    api(
        "GET /projects/{slug}/models/{checkpoint_id}/evidence",
        READERS,
        args=lambda w: {"checkpoint_id": w.checkpoint.pk},
        ok=404,
    ),
    api("GET /projects/{slug}/promotions", READERS),
    api(
        "POST /projects/{slug}/promotions",
        STAFF,
        data=lambda w: {"checkpoint": w.checkpoint.pk, "stage": "candidate"},
        ok=404,
    ),
    api("GET /projects/{slug}/promotions/{request_id}", READERS, args=NO_REQUEST, ok=404),
    api(
        "POST /projects/{slug}/promotions/{request_id}/decision",
        READERS,
        args=NO_REQUEST,
        data={"decision": "withdraw"},
        ok=404,
    ),
    api("GET /projects/{slug}/runs/{run_id}/checklists", STAFF, args=run_id),
]

REWARD_MODEL = "/projects/{slug}/reward-models/{checkpoint_id}"
EVALUATION_API = [
    api("GET /projects/{slug}/reward-models", STAFF),
    api(f"GET {REWARD_MODEL}", STAFF, args=model_id),
    # the world's model was trained on nothing, so there is no dataset to judge it on
    api(f"POST {REWARD_MODEL}/assess", STAFF, args=model_id, ok=400),
    api(
        f"POST {REWARD_MODEL}/status",
        STAFF,
        args=model_id,
        data={"status": "approved", "seen_status": "rejected", "page_sha256": "0"},
        ok=409,
    ),
]

SCORES_API = [
    # no scorer runs beside this test
    api(
        "POST /models/{checkpoint_id}/score",
        STAFF,
        args=model_id,
        data={"items": [{"prompt": "Why?", "response": "So."}]},
        ok=503,
    ),
    api("GET /scores/{score_id}", SIGNED_IN, args={"score_id": "none"}, ok=404),
]

NO_PROTOCOL = {"sha256": "0" * 64}
NO_PROTOCOLS = NO_PROTOCOL | {"other": "1" * 64}
PROTOCOLS = [
    page("evaluation:protocols", STAFF),
    page("evaluation:protocol", STAFF, args=NO_PROTOCOL, ok=404),
    page("evaluation:protocol_diff", STAFF, args=NO_PROTOCOLS, ok=404),
    page("evaluation:run_protocol", STAFF, args=run_id),
    api("GET /projects/{slug}/evaluation-protocols", STAFF),
    api("GET /projects/{slug}/evaluation-protocols/{sha256}", STAFF, args=NO_PROTOCOL, ok=404),
    api(
        "GET /projects/{slug}/evaluation-protocols/{sha256}/differences/{other}",
        STAFF,
        args=NO_PROTOCOLS,
        ok=404,
    ),
]

DIALOGUE = "/projects/{slug}/dialogues/{dialogue}"
NO_DIALOGUE = {"dialogue_id": "none"}
NO_DIALOGUE_BY_API = {"dialogue": "none"}
NO_TALK = {"key": "0" * 32}
DIALOGUES = [
    page("evaluation:dialogues", STAFF),
    page("evaluation:dialogue_new", STAFF),
    post("evaluation:dialogue_new", STAFF, ok=422),
    page("evaluation:dialogue", STAFF, args=NO_DIALOGUE, ok=404),
    post("evaluation:dialogue_act", STAFF, args=NO_DIALOGUE, ok=404),
    page("evaluation:dialogue_file", STAFF, args=NO_DIALOGUE, ok=404),
    page("evaluation:dialogue_conversation", STAFF, args=NO_DIALOGUE | NO_TALK, ok=404),
    page("evaluation:conversations", LABELERS),
    post("evaluation:conversation_begin", LABELERS, args=NO_DIALOGUE, ok=404),
    page("evaluation:conversation", LABELERS, args=NO_TALK, ok=404),
    post("evaluation:conversation_act", LABELERS, args=NO_TALK, data={"action": "end"}, ok=404),
    api("GET /projects/{slug}/dialogues", STAFF),
    api("POST /projects/{slug}/dialogues", STAFF, data={"name": "n", "models": []}, ok=400),
    api(f"GET {DIALOGUE}", STAFF, args=NO_DIALOGUE_BY_API, ok=404),
    api(f"POST {DIALOGUE}/close", STAFF, args=NO_DIALOGUE_BY_API, ok=404),
    api(f"POST {DIALOGUE}/open", STAFF, args=NO_DIALOGUE_BY_API, ok=404),
    api(f"GET {DIALOGUE}/conversations", STAFF, args=NO_DIALOGUE_BY_API, ok=404),
]

QUESTION_ASKED = "/projects/{slug}/playground/{question_id}"
NO_QUESTION = {"question_id": "0" * 32}
# no answerer runs beside this test, and nothing was asked
PLAYGROUND = [
    page("evaluation:playground", STAFF),
    post("evaluation:playground", STAFF, ok=422),
    page("evaluation:question", STAFF, args=NO_QUESTION, ok=404),
    post("evaluation:question_act", STAFF, args=NO_QUESTION, data={"action": "stop"}, ok=404),
    api(
        "POST /projects/{slug}/playground",
        STAFF,
        data={"models": ["none"], "messages": "Why?"},
        ok=404,
    ),
    api(f"GET {QUESTION_ASKED}", STAFF, args=NO_QUESTION, ok=404),
    api(f"POST {QUESTION_ASKED}/stop", STAFF, args=NO_QUESTION, ok=404),
    api(f"POST {QUESTION_ASKED}/pair", STAFF, args=NO_QUESTION, ok=404),
    api(f"DELETE {QUESTION_ASKED}/pair", STAFF, args=NO_QUESTION),
]


SUITES = [
    post("snapshots:suite", STAFF, ok=302),
    api("POST /projects/{slug}/snapshots/suite", STAFF, ok=200),
    page("evaluation:run_checks", READERS, args=lambda w: {"run_id": w.run.pk}),
    api("GET /projects/{slug}/runs/{run_id}/prompt-overlap", READERS, args=run_id),
    page("evaluation:outside_all", READERS),
    page("evaluation:outside_results", READERS, args=model_id),
    post(
        "evaluation:outside_results",
        STAFF,
        args=model_id,
        ok=422,
    ),
    post("evaluation:outside_delete", STAFF, args={"result_id": "none"}, ok=404),
    api("GET /projects/{slug}/outside-results", READERS),
    api(
        "POST /projects/{slug}/models/{checkpoint_id}/outside-results", STAFF, args=model_id, ok=400
    ),
    api("DELETE /projects/{slug}/outside-results/{result}", STAFF, args={"result": "none"}, ok=404),
    api(
        "GET /projects/{slug}/outside-results/{result}/differences/{other}",
        READERS,
        args={"result": "none", "other": "none"},
        ok=404,
    ),
    page("evaluation:automatic_suite", STAFF),
    post("evaluation:automatic_suite", STAFF, data={"action": "stop"}),
    api("GET /projects/{slug}/automatic-suite", STAFF),
    api(
        "PUT /projects/{slug}/automatic-suite",
        STAFF,
        data={"dataset": "none", "baseline": "none"},
        ok=404,
    ),
    api("DELETE /projects/{slug}/automatic-suite", STAFF),
    api("POST /projects/{slug}/automatic-suite/{run_id}", STAFF, args=run_id, ok=404),
]
HEAD_TO_HEAD = "/projects/{slug}/head-to-heads/{head_to_head}"
NO_HEAD_TO_HEAD = {"head_to_head_id": "none"}
NONE_BY_API = {"head_to_head": "none"}
HEAD_TO_HEADS = [
    page("evaluation:head_to_heads", READERS),
    page("evaluation:head_to_head_new", STAFF),
    post("evaluation:head_to_head_new", STAFF, ok=422),
    page("evaluation:head_to_head", READERS, args=NO_HEAD_TO_HEAD, ok=404),
    post("evaluation:head_to_head_act", STAFF, args=NO_HEAD_TO_HEAD, ok=404),
    page("evaluation:head_to_head_csv", READERS, args=NO_HEAD_TO_HEAD, ok=404),
    page("evaluation:run_people", READERS, args=lambda w: {"run_id": w.run.pk}),
    page("evaluation:shared", SIGNED_IN, args={"key": "none"}, ok=404, expect={"anonymous": 404}),
    api("GET /projects/{slug}/head-to-heads", READERS),
    api(
        "POST /projects/{slug}/head-to-heads",
        STAFF,
        data={"name": "n", "first_name": "a", "second_name": "b"},
        ok=400,
    ),
    api(f"GET {HEAD_TO_HEAD}", READERS, args=NONE_BY_API, ok=404),
    api(f"POST {HEAD_TO_HEAD}/end", STAFF, args=NONE_BY_API, ok=404),
    api(f"POST {HEAD_TO_HEAD}/link", STAFF, args=NONE_BY_API, ok=404),
    api(f"DELETE {HEAD_TO_HEAD}/link", STAFF, args=NONE_BY_API, ok=404),
]


def judge_id(world: World) -> dict[str, Any]:
    return {"judge_id": world.judge.judge_id}


def judge_version(world: World) -> dict[str, Any]:
    return judge_id(world) | {"number": world.judge.number}


def certificate_id(world: World) -> dict[str, Any]:
    return {"certificate_id": world.certificate.pk}


JUDGE = "/projects/{slug}/judges/{judge_id}"
JUDGE_VERSION = f"{JUDGE}/versions/{{number}}"
CERTIFICATE = "/projects/{slug}/certificates/{certificate_id}"
# The world's judge was asked about nothing.
JUDGE_LINES = [
    page("evaluation:judges", READERS),
    page("evaluation:judge_new", STAFF),
    post("evaluation:judge_new", STAFF, ok=422),
    page("evaluation:judge", READERS, args=judge_id),
    page("evaluation:judge_differences", STAFF, args=judge_id),
    page("evaluation:judge_version_new", STAFF, args=judge_id),
    post("evaluation:judge_version_new", STAFF, args=judge_id, ok=422),
    post("evaluation:judge_act", STAFF, args=judge_id, data={"action": "measure"}, ok=422),
    page("evaluation:certificate", READERS, args=certificate_id),
    post("evaluation:certificate_act", STAFF, args=certificate_id, data={"action": "stop"}),
    post("evaluation:head_to_head_judge", STAFF, args=NO_HEAD_TO_HEAD, ok=404),
    api("GET /projects/{slug}/judges", READERS),
    api(
        "POST /projects/{slug}/judges",
        STAFF,
        data=lambda w: {"name": "Jules", "model": w.reward_model.pk},
        ok=201,
    ),
    api(f"GET {JUDGE}", READERS, args=judge_id),
    api(f"POST {JUDGE}/versions", STAFF, args=judge_id, data={"config": {"top_k": 3}}, ok=201),
    api(f"POST {JUDGE}/archive", STAFF, args=judge_id),
    api(f"GET {JUDGE}/trials", READERS, args=judge_id),
    api(f"POST {JUDGE_VERSION}/measurements", STAFF, args=judge_version, data={}, ok=201),
    api(f"GET {JUDGE_VERSION}/measurements", READERS, args=judge_version),
    api(
        f"GET {JUDGE_VERSION}/measurements/{{measurement_id}}",
        READERS,
        args=lambda w: judge_version(w) | {"measurement_id": 0},
        ok=404,
    ),
    api(f"GET {JUDGE_VERSION}/verdicts", READERS, args=judge_version),
    api(
        f"POST {JUDGE_VERSION}/trials",
        STAFF,
        args=judge_version,
        data={"prompts": ["a", "b"]},
        ok=409,  # a reward model has no prompt
    ),
    api(f"POST {JUDGE_VERSION}/presort", STAFF, args=judge_version, data={}, ok=409),
    api(f"POST {JUDGE_VERSION}/certificates", STAFF, args=judge_version, data={}, ok=201),
    api("GET /projects/{slug}/certificates", READERS),
    api(f"GET {CERTIFICATE}", READERS, args=certificate_id),
    api(f"POST {CERTIFICATE}/labels", STAFF, args=certificate_id, data={}, ok=201),
    api(f"POST {CERTIFICATE}/freeze", STAFF, args=certificate_id, data={}, ok=409),
    api(f"POST {CERTIFICATE}/stop", STAFF, args=certificate_id, data={}),
]


def round_id(world: World) -> dict[str, Any]:
    return model_id(world) | {"round_id": "none"}


# The world's run is no assessment of its reward model, so nothing can be sent to people.
PEOPLE_AND_MODELS = [
    page("evaluation:ranking", STAFF, args=model_id),
    page("evaluation:ranking_csv", STAFF, args=model_id),
    post(
        "evaluation:ranking_send",
        STAFF,
        args=model_id,
        data=lambda w: {"assessment": w.run.pk},
        ok=400,
    ),
    page("evaluation:adversarial", STAFF, args=model_id),
    post(
        "evaluation:adversarial_open",
        STAFF,
        args=model_id,
        data=lambda w: {"source": w.run.pk},
        ok=400,
    ),
    page("evaluation:adversarial_round", STAFF, args=round_id, ok=404),
    page("evaluation:adversarial_csv", STAFF, args=round_id, ok=404),
    post("evaluation:adversarial_freeze", STAFF, args=round_id, ok=404),
]

MODEL = "/projects/{slug}/reward-models/{checkpoint_id}"
PEOPLE_AND_MODELS_API = [
    api(f"GET {MODEL}/rankings", STAFF, args=model_id),
    api(
        f"POST {MODEL}/rankings",
        STAFF,
        args=model_id,
        data=lambda w: {"assessment": w.run.pk},
        ok=400,
    ),
    api(f"GET {MODEL}/adversarial-rounds", STAFF, args=model_id),
    api(
        f"POST {MODEL}/adversarial-rounds",
        STAFF,
        args=model_id,
        data=lambda w: {"source": w.run.pk},
        ok=400,
    ),
    api(f"POST {MODEL}/adversarial-rounds/{{round_id}}/hard-pairs", STAFF, args=round_id, ok=404),
]

MONITORING = [
    page("monitoring:playbook", STAFF),
    page("monitoring:playbook_entry", STAFF, args={"entry": "not-a-number"}),
    page("monitoring:diagnosis", STAFF, args=run_id),
    post("monitoring:check_launch", STAFF, args=run_id, ok=404),  # no check is named
    page("monitoring:run_import", STAFF),
    post("monitoring:run_import", STAFF, ok=422),
]


def incident_id(world: World) -> dict[str, Any]:
    return {"incident_id": world.incident.pk}


def channel_id(world: World) -> dict[str, Any]:
    return {"channel_id": world.channel.pk}


INCIDENTS = [
    page("monitoring:incidents", STAFF),
    post("monitoring:incidents_bulk", STAFF, ok=400),  # nothing is ticked
    page("monitoring:incident", STAFF, args=incident_id),
    post("monitoring:incident_acknowledge", STAFF, args=incident_id),
    post("monitoring:incident_note", STAFF, args=incident_id, data={"text": "Looking."}),
    post("monitoring:incident_resolve", STAFF, args=incident_id, data={"lesson": "Look first."}),
    post(
        "monitoring:incident_mute",
        STAFF,
        args=incident_id,
        data={"what": "rule", "until": "1h", "reason": "known"},
    ),
    page("monitoring:mutes", STAFF),
    post("monitoring:mutes", STAFF, data={"until": "1h", "reason": "a move"}),
    post("monitoring:mute_lift", STAFF, args=lambda w: {"mute_id": w.mute.pk}),
    page("monitoring:channels", STAFF),
    post("monitoring:channels", STAFF, ok=422),
    post("monitoring:channel_change", STAFF, args=channel_id, data={"enabled": "yes"}),
    post("monitoring:channel_rotate", STAFF, args=channel_id),
    post("monitoring:channel_test", STAFF, args=channel_id),
    page("monitoring:channel_delete", STAFF, args=channel_id),
    post("monitoring:channel_delete", STAFF, args=channel_id),
    post(
        "monitoring:channel_again",
        STAFF,
        args=lambda w: channel_id(w) | {"delivery_id": 1},
        ok=404,
    ),
]


def watch_id(world: World) -> dict[str, Any]:
    return {"watch_id": world.watch.pk}


IN_SERVICE = [
    page("monitoring:overview", STAFF),
    page("monitoring:people", STAFF),
    post("monitoring:people", STAFF, ok=422),
    page("monitoring:watch_new", STAFF),
    post("monitoring:watch_new", STAFF, ok=422),
    page("monitoring:watch", STAFF, args=watch_id),
    page("monitoring:watch_csv", STAFF, args=watch_id),
    page("monitoring:watch_traffic", STAFF, args=watch_id),
    post("monitoring:watch_traffic", STAFF, args=watch_id, ok=422),
    post("monitoring:watch_pause", STAFF, args=watch_id, data={"enabled": "no"}),
    post("monitoring:watch_probe", STAFF, args=watch_id),
    post("monitoring:watch_change", STAFF, args=watch_id, ok=422),
    post("monitoring:watch_rebase", STAFF, args=watch_id, ok=422),
    post("monitoring:watch_retarget", STAFF, args=watch_id, ok=422),
]
IN_SERVICE_API = [
    api("GET /projects/{slug}/outcomes", STAFF),
    api(
        "POST /projects/{slug}/outcomes",
        STAFF,
        ok=201,
        data={"name": "completion", "value": 0.85},
    ),
    api("GET /projects/{slug}/watches", STAFF),
    api(
        "POST /projects/{slug}/watches",
        STAFF,
        ok=404,  # no such model
        data={"name": "a", "checkpoint": "none", "prompts": "none"},
    ),
    api(
        "POST /projects/{slug}/traffic",
        STAFF,
        ok=404,  # no such watch
        data={"watch": "none", "conversations": [{"id": "a", "messages": []}]},
    ),
    api(
        "POST /projects/{slug}/traffic/delete",
        STAFF,
        ok=404,
        data={"watch": "none", "ids": ["a"]},
    ),
]

INCIDENT = "/projects/{slug}/incidents/{incident_id}"
INCIDENTS_API = [
    api("GET /projects/{slug}/incidents", STAFF),
    api("GET /projects/{slug}/alarms", STAFF),
    api("PATCH /projects/{slug}/alarms", STAFF, data={"alarms": {}}),
    api(f"GET {INCIDENT}", STAFF, args=incident_id),
    api(f"POST {INCIDENT}/acknowledge", STAFF, args=incident_id),
    api(f"POST {INCIDENT}/resolve", STAFF, args=incident_id, data={"lesson": "Look first."}),
]


def flagged_id(world: World) -> dict[str, Any]:
    return {"flagged_id": world.flagged.pk}


def sample_id(world: World) -> dict[str, Any]:
    return {"run_id": world.run.pk, "sample_id": world.flagged.sample_id}


def sheet_id(world: World) -> dict[str, Any]:
    return {"sheet_id": world.sheet.pk}


def item_id(world: World) -> dict[str, Any]:
    return sheet_id(world) | {"item_id": world.sheet.items.get().pk}


FINE = {"value": "fine"}
VERDICTS = [
    page("evaluation:inbox", READERS),
    post("evaluation:inbox_judge", READERS, args=flagged_id, data=FINE, ok=302),
    post("evaluation:inbox_undo", READERS, ok=302),
    post("evaluation:inbox_close", READERS, data=run_id, ok=302),
    page("evaluation:run_samples", READERS, args=run_id),
    post("evaluation:sample_judge", READERS, args=sample_id, data=FINE, ok=302),
    page("evaluation:sheets", READERS),
    page("evaluation:sheet_new", STAFF),
    post("evaluation:sheet_new", STAFF, ok=422),  # an empty form
    page("evaluation:sheet", READERS, args=sheet_id),
    post("evaluation:sheet_end", READERS, args=sheet_id, ok=302),
    page("evaluation:sheet_judge", JUDGES, args=sheet_id),
    post("evaluation:item_judge", JUDGES, args=item_id, data=FINE, ok=302),
    post("evaluation:item_undo", JUDGES, args=sheet_id, ok=302),
]
INBOX = "/projects/{slug}/inbox"
SHEET = "/projects/{slug}/audit-sheets/{sheet_id}"
VERDICTS_API = [
    api(f"GET {INBOX}", READERS),
    api(f"POST {INBOX}/next", READERS),
    api(f"POST {INBOX}/close", READERS, data=lambda w: {"run": w.run.pk}),
    api(f"POST {INBOX}/undo", READERS, ok=409),
    api(
        f"POST {INBOX}/{{answer_id}}/verdicts",
        READERS,
        args=lambda w: {"answer_id": w.flagged.pk},
        data=FINE,
    ),
    api(f"GET {RUN}/verdicts", READERS, args=run_id),
    api(f"POST {RUN}/samples/{{sample_id}}/verdicts", READERS, args=sample_id, data=FINE),
    api("GET /projects/{slug}/audit-sheets", READERS),
    # the world's run is a drill
    api("POST /projects/{slug}/audit-sheets", STAFF, data=lambda w: {"run": w.run.pk}, ok=400),
    api(f"GET {SHEET}", READERS, args=sheet_id),
    api(f"POST {SHEET}/next", JUDGES, args=sheet_id),
    api(f"POST {SHEET}/items/{{item_id}}/verdicts", JUDGES, args=item_id, data=FINE),
    api(f"POST {SHEET}/undo", JUDGES, args=sheet_id, ok=409),
    api(f"POST {SHEET}/finish", READERS, args=sheet_id, ok=409),
    api(f"POST {SHEET}/withdraw", READERS, args=sheet_id, data={"reason": "drawn by mistake"}),
]

NO_PIPELINE = {"pipeline_id": "none"}
NO_ROUND = {"pipeline_id": "none", "number": 1}
PIPELINE = "/projects/{slug}/pipelines/{pipeline_id}"
ROUNDS = [
    page("loop:pipelines", STAFF),
    page("loop:pipeline_new", STAFF),
    page("loop:pipeline_template", STAFF),
    post("loop:pipeline_template", STAFF, ok=422),
    post("loop:pipeline_new", STAFF, ok=422),
    page("loop:pipeline", STAFF, args=NO_PIPELINE, ok=404),
    page("loop:pipeline_edit", STAFF, args=NO_PIPELINE, ok=404),
    post("loop:pipeline_edit", STAFF, args=NO_PIPELINE, ok=404),
    post("loop:pipeline_start", STAFF, args=NO_PIPELINE, ok=404),
    page("loop:round", STAFF, args=NO_ROUND, ok=404),
    post("loop:round_act", STAFF, args=NO_ROUND, ok=404),
    api("GET /projects/{slug}/pipelines", STAFF),
    api(
        "POST /projects/{slug}/pipelines/from-template",
        STAFF,
        data={"template": "dpo", "size": "demo", "policy": "none", "prompts": "none", "name": "N"},
        ok=404,
    ),
    # the world's run is a drill
    api(
        "POST /projects/{slug}/pipelines",
        STAFF,
        data=lambda w: {"run": w.run.pk, "name": "Weekly"},
        ok=400,
    ),
    api(f"GET {PIPELINE}", STAFF, args=NO_PIPELINE, ok=404),
    api(f"PATCH {PIPELINE}", STAFF, args=NO_PIPELINE, data={"seen_version": 1}, ok=404),
    api(f"GET {PIPELINE}/rounds", STAFF, args=NO_PIPELINE, ok=404),
    api(f"POST {PIPELINE}/rounds", STAFF, args=NO_PIPELINE, ok=404),
    api(f"GET {PIPELINE}/rounds/{{number}}", STAFF, args=NO_ROUND, ok=404),
    api(
        f"POST {PIPELINE}/rounds/{{number}}",
        STAFF,
        args=NO_ROUND,
        data={"action": "pause"},
        ok=404,
    ),
]

TABLE: list[Line] = [
    *ACCOUNTS,
    *ACCOUNTS_API,
    *OVERVIEW,
    *ROUNDS,
    *LABELING,
    *LABELING_API,
    *COMMENTS_AND_QUESTIONS,
    *HEAD_TO_HEADS,
    *JUDGE_LINES,
    *SUITES,
    *RATINGS,
    *WRITING,
    *AGREEMENT,
    *AGREEMENT_API,
    *SNAPSHOTS,
    *SNAPSHOTS_API,
    *TRAINING,
    *TRAINING_API,
    *EVALUATION,
    *EVALUATION_API,
    *PROMOTION,
    *PROMOTION_API,
    *SCORES_API,
    *DIALOGUES,
    *PLAYGROUND,
    *PROTOCOLS,
    *PEOPLE_AND_MODELS,
    *PEOPLE_AND_MODELS_API,
    *VERDICTS,
    *VERDICTS_API,
    *MONITORING,
    *INCIDENTS,
    *INCIDENTS_API,
    *IN_SERVICE,
    *IN_SERVICE_API,
]
