"""One view with one statement: close a slot, add its vote, lease the next one with its texts.

Nobody is asked who they are, nothing is decided, nothing is rendered: the ceiling, not a design.
"""

from django.db import connection
from django.http import HttpRequest, JsonResponse
from django.urls import path

_CYCLE = """
with closed as (
  update labeling_slot set state = 'done', leased_until = null
  where id = %(slot)s and annotator_id = %(annotator)s and state = 'leased'
  returning id, project_id, task_id
), voted as (
  insert into labeling_vote (project_id, comparison_id, slot_id, annotator_id, choice, left_is,
    criteria, reasons, rationale, flags, idempotency_key, source, revision, is_current, cast_at)
  select project_id, task_id, id, %(annotator)s, 'tie', 'a', '{}', '{}', '', '{}', id, 'page',
    1, true, now() from closed
  returning id
), next as (
  update labeling_slot set state = 'leased', annotator_id = %(annotator)s, left_is = 'a',
    leased_at = now(), leased_until = now() + interval '15 minutes'
  where id = (
    select s.id from labeling_slot s
    where s.project_id = (select id from accounts_project where slug = 'bare') and s.state = 'free'
      and not exists (select from labeling_slot m where m.task_id = s.task_id
                      and m.annotator_id = %(annotator)s)
    order by s.shuffle limit 1 for no key update skip locked)
  returning id, task_id
)
select n.id, (select id from voted), p.messages, a.messages, b.messages
from next n join labeling_comparison c on c.id = n.task_id
join labeling_prompt p on p.id = c.prompt_id
join labeling_response a on a.id = c.response_a_id
join labeling_response b on b.id = c.response_b_id
"""


def cycle(request: HttpRequest) -> JsonResponse:
    sent = {name: int(request.POST[name]) for name in ("slot", "annotator")}
    with connection.cursor() as cursor:
        cursor.execute(_CYCLE, sent)
        slot, vote, prompt, left, right = cursor.fetchone()
    return JsonResponse(
        {"slot": slot, "vote": vote, "prompt": prompt, "left": left, "right": right}
    )


# The web process looks "home" up before it listens.
urlpatterns = [path("bare/", cycle, name="home")]
