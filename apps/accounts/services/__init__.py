"""Writes of people, projects, roles, tokens and the audit log. Every change leaves an event."""

from apps.accounts.services.audit import audit_record
from apps.accounts.services.audit_export import audit_jsonl
from apps.accounts.services.claims import (
    claims_apply,
    provider_disconnect,
    provider_person_create,
    provider_person_take_over,
    provider_record,
    rules_met,
    verified_email,
)
from apps.accounts.services.erasure import erasure_ask, person_erase, replay_erasures
from apps.accounts.services.invitations import (
    addresses_read,
    invitation_accept,
    invitation_create,
    invitation_join,
    invitation_renew,
    invitation_revoke,
    people_invite,
)
from apps.accounts.services.maintenance import maintenance_begin, maintenance_end
from apps.accounts.services.memberships import (
    membership_pause,
    membership_remove,
    membership_resume,
    membership_set,
)
from apps.accounts.services.notices import notice_give, notices_seen
from apps.accounts.services.people import (
    access_refused,
    first_admin_create,
    password_changed,
    password_link_make,
    profile_changed,
    set_up_token,
    sign_in_again_record,
    sign_in_failed,
    user_activate,
    user_create,
    user_rights_set,
)
from apps.accounts.services.person_data import person_data
from apps.accounts.services.projects import (
    project_archive,
    project_change,
    project_create,
    project_delete,
    project_restore,
    project_set_up,
)
from apps.accounts.services.provisioning import (
    Provisioned,
    person_change,
    person_deprovision,
    person_provision,
)
from apps.accounts.services.second_factor import (
    second_factor_failed,
    second_factor_record,
    second_factor_reset,
)
from apps.accounts.services.sessions import session_forget, session_seen, sessions_end
from apps.accounts.services.tokens import TOKEN_MAX_DAYS, token_create, token_revoke

__all__ = [
    "TOKEN_MAX_DAYS",
    "Provisioned",
    "access_refused",
    "addresses_read",
    "audit_jsonl",
    "audit_record",
    "claims_apply",
    "erasure_ask",
    "first_admin_create",
    "invitation_accept",
    "invitation_create",
    "invitation_join",
    "invitation_renew",
    "invitation_revoke",
    "maintenance_begin",
    "maintenance_end",
    "membership_pause",
    "membership_remove",
    "membership_resume",
    "membership_set",
    "notice_give",
    "notices_seen",
    "password_changed",
    "password_link_make",
    "people_invite",
    "person_change",
    "person_data",
    "person_deprovision",
    "person_erase",
    "person_provision",
    "profile_changed",
    "project_archive",
    "project_change",
    "project_create",
    "project_delete",
    "project_restore",
    "project_set_up",
    "provider_disconnect",
    "provider_person_create",
    "provider_person_take_over",
    "provider_record",
    "replay_erasures",
    "rules_met",
    "second_factor_failed",
    "second_factor_record",
    "second_factor_reset",
    "session_forget",
    "session_seen",
    "sessions_end",
    "set_up_token",
    "sign_in_again_record",
    "sign_in_failed",
    "token_create",
    "token_revoke",
    "user_activate",
    "user_create",
    "user_rights_set",
    "verified_email",
]
