"""What several statements share: who asks, what is theirs to do, what the screen shows."""
# ruff: noqa: S608

from apps.labeling.models import LabelingSettings
from apps.labeling.services.results import OFFER_COLUMNS

DEFAULTS = LabelingSettings()  # for projects without a settings row

POLICY = (
    "overlap", "max_overlap", "least_votes", "least_agreeing", "least_share",
    "decide_by", "least_posterior", "stop_early",
)  # fmt: skip
# What a fit has learned of the project's voters; nulls before the first.
CONSENSUS_COLUMNS = "f.method, f.priors, f.confusion"
MIX = ("lease_seconds", "random_share", "gold_share", "repeat_share", "audit_share", "audit_rate")
OFFER_COLUMNS = ", ".join(f"l.{name}" for name in OFFER_COLUMNS)
POLICY_COLUMNS = ", ".join(f"l.{name}" for name in POLICY) + f", {CONSENSUS_COLUMNS}"

# Of whom one asks before handing out: `m` is their membership, `w` their Annotator row, `l` the
# settings, `d.due` the first major version of the guidelines they have not acknowledged.
STANDING_COLUMNS = f"""
       m.role, m.paused_reason, d.due, l.qualification_pairs, w.qualified_at,
       coalesce(w.daily_cap, l.daily_cap),
       case when w.votes_day = (now() at time zone 'utc')::date then w.votes_of_day else 0 end,
       w.topics, w.languages, {", ".join(f"l.{name}" for name in MIX)}"""
STANDING_JOINS = """
left join labeling_annotator w on w.project_id = {project} and w.user_id = %(annotator)s
left join lateral (
  select min(g.version) as due from labeling_guideline g
  where g.project_id = {project} and g.is_major
    and g.version > coalesce(w.acknowledged_version, 0)
    and coalesce(l.acknowledge_guidelines, true) and m.role <> 'admin'
) d on true"""

# An extra slot goes before what is drawn at random: it is what a decision waits for.
EXTRA_PRIORITY = 1.0

# Which response stands left: a fair coin that always falls the same way for this person and pair.
SIDE = """case get_byte(sha256(convert_to(
    'side:' || %(annotator)s::text || ':' || {comparison}, 'UTF8')), 0) & 1
  when 0 then 'a' else 'b' end"""

LOOK = f"""
select {STANDING_COLUMNS}
from accounts_membership m
left join labeling_labelingsettings l on l.project_id = m.project_id
{STANDING_JOINS.format(project="m.project_id")}
where m.project_id = %(project)s and m.user_id = %(annotator)s
"""
SEAT = f"{LOOK} for no key update of m"

# Nobody gets a comparison they hold, have voted on, or have skipped. Votes from before it was sent
# to re-annotation do not count: it is judged anew, under newer guidelines.
_MET = "exists (select from labeling_slot where comparison_id = {comparison}\
 and annotator_id = %(annotator)s{round})"
_SKIPPED = "exists (select from labeling_skip where comparison_id = {comparison}\
 and annotator_id = %(annotator)s)"
MET = _MET.replace("{round}", " and kind <> 'former'")
NEW_TO_ME = f"not {MET} and not {_SKIPPED}"
# For looking at a vote with fresh eyes: not even those who judged an earlier round.
NEVER_MET = f"not {_MET.replace('{round}', '')} and not {_SKIPPED}"
# An annotator may be limited to topics and languages; no limit is an empty list.
MINE_TO_DO = """
  (cardinality(%(topics)s::text[]) = 0 or {row}.topic = any(%(topics)s::text[]))
  and (cardinality(%(languages)s::text[]) = 0 or {row}.language = any(%(languages)s::text[]))
"""
# Audit re-votes and hidden repeats belong to one person and are not drawn by others.
DRAWN_BY_ALL = f"""s.project_id = %(project)s and s.kind in ('regular','gold')
  and {NEW_TO_ME.format(comparison="s.comparison_id")}"""
DRAWN = f"{DRAWN_BY_ALL} and {MINE_TO_DO.format(row='s')}"
LOCK = "for no key update of s skip locked"
HOLDS_ONE = """exists (select from labeling_slot h where h.project_id = %(project)s
  and h.annotator_id = %(annotator)s and h.state = 'leased')"""

CAN_BE_SHOWN = "c.state not in ('review', 'dropped')"
# Leases outlast the dropping of their comparison; once they lapse nobody else gets them.
SHOWABLE = f"""exists (select from labeling_comparison c
  where c.id = s.comparison_id and {CAN_BE_SHOWN})"""

# What the screen shows of the slot in `taken`.
SHOWN = f"""
select t.id, t.comparison_id, t.left_is, t.leased_at, t.leased_until,
       p.messages, a.messages, b.messages, {OFFER_COLUMNS}
from taken t
join labeling_comparison c on c.id = t.comparison_id
join labeling_prompt p on p.id = c.prompt_id
join labeling_response a on a.id = c.response_a_id
join labeling_response b on b.id = c.response_b_id
left join labeling_labelingsettings l on l.project_id = c.project_id
"""
