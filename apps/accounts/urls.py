"""Signing in, one's own account, projects, and the people of a project and of the site.

allauth looks its own pages up by the names account_…; those that there are stand here.
"""

from allauth.account import views as allauth_views
from django.urls import path

from apps.accounts.services.mails import mails_go_out
from apps.accounts.views import (
    account,
    joining,
    people,
    personal,
    projects,
    second_factor,
    sessions,
    sign_in_again,
    site,
)

app_name = "accounts"
urlpatterns = [
    path("sign-in/", account.SignIn.as_view(), name="sign_in"),
    path("sign-out/", account.sign_out, name="sign_out"),
    path("set-up/", joining.set_up, name="set_up"),
    path("invitation/<str:token>/", joining.invitation, name="invitation"),
    path("account/", account.account, name="account"),
    path("account/profile/", account.profile, name="profile"),
    path("account/theme/", account.theme, name="theme"),
    path("account/password/", account.password, name="password"),
    path("account/again/", sign_in_again.SignInAgain.as_view(), name="sign_in_again"),
    path("account/again/send/", sign_in_again.sent_form_page, name="sent_form"),
    path("account/provider/", sign_in_again.provider_connect, name="provider_connect"),
    path(
        "account/provider/disconnect/",
        sign_in_again.provider_disconnect,
        name="provider_disconnect",
    ),
    path("account/sessions/", sessions.sessions, name="sessions"),
    path("account/sessions/end/", sessions.session_end, name="session_end"),
    path("account/tokens/", account.token_create, name="token_create"),
    path("account/tokens/<str:token_id>/revoke/", account.token_revoke, name="token_revoke"),
    path("account/data/", personal.own_data, name="own_data"),
    path("account/erasure/", personal.erasure_ask, name="erasure_ask"),
    path("site/audit-log.jsonl", site.audit_log, name="site_audit_log"),
    path("site/people/", site.people, name="site_people"),
    path("site/people/<int:user_id>/", site.person, name="site_person"),
    path("site/people/<int:user_id>/data/", personal.person_data, name="person_data"),
    path("site/people/<int:user_id>/erase/", personal.person_erase, name="person_erase"),
    path("projects/", projects.projects, name="projects"),
    path("projects/new/", projects.project_new, name="project_new"),
    path("projects/<slug:slug>/restore/", projects.project_restore, name="project_restore"),
    path("projects/<slug:slug>/delete/", projects.project_delete, name="project_delete"),
    path("projects/<slug:slug>/delete/<str:name>/", projects.project_export, name="project_export"),
    path("p/<slug:slug>/", account.project, name="project"),
    path("p/<slug:slug>/project/", projects.project_settings, name="project_settings"),
    path("p/<slug:slug>/project/archive/", projects.project_archive, name="project_archive"),
    path("p/<slug:slug>/project/set-up/", projects.project_set_up_done, name="set_up_done"),
    path("p/<slug:slug>/people/", people.people, name="people"),
    path("p/<slug:slug>/people/invite/", people.invite, name="invite"),
    path(
        "p/<slug:slug>/people/invitations/<str:invitation_id>/",
        people.invitation_change,
        name="invitation_change",
    ),
    path("p/<slug:slug>/people/<int:user_id>/", people.person, name="person"),
    path("p/<slug:slug>/people/<int:user_id>/role/", people.person_role, name="person_role"),
    path("p/<slug:slug>/people/<int:user_id>/remove/", people.person_remove, name="person_remove"),
    path(
        "p/<slug:slug>/people/<int:user_id>/password/",
        people.person_password,
        name="person_password",
    ),
    path("p/<slug:slug>/audit-log/", people.audit_log, name="audit_log"),
    path("p/<slug:slug>/audit-log.csv", people.audit_csv, name="audit_csv"),
]

allauth_urls = [
    path("sign-in/", account.SignIn.as_view(), name="account_login"),
    path(
        "password/forgotten/",
        allauth_views.PasswordResetView.as_view(extra_context={"mails_go_out": mails_go_out}),
        name="account_reset_password",
    ),
    path("password/sent/", allauth_views.password_reset_done, name="account_reset_password_done"),
    path(
        "password/new/<str:uidb36>/<str:key>/",
        account.PasswordFromLink.as_view(),
        name="account_reset_password_from_key",
    ),
    path(
        "sign-in/with/<str:provider_id>/",
        sign_in_again.provider_sign_in,
        name="openid_connect_login",
    ),
    path(
        "sign-in/with/<str:provider_id>/callback/",
        sign_in_again.provider_callback,
        name="openid_connect_callback",
    ),
    path("sign-in/second-factor/", second_factor.code_ask, name="mfa_authenticate"),
    path("sign-in/passkey/", second_factor.passkey_sign_in, name="mfa_login_webauthn"),
    path("account/second-factor/", second_factor.second_factors, name="mfa_index"),
    path("account/second-factor/app/", second_factor.app_add, name="mfa_activate_totp"),
    path("account/second-factor/app/remove/", second_factor.app_remove, name="mfa_deactivate_totp"),
    path("account/second-factor/codes/", second_factor.codes, name="mfa_view_recovery_codes"),
    path(
        "account/second-factor/codes/new/",
        second_factor.codes_make,
        name="mfa_generate_recovery_codes",
    ),
    path("account/second-factor/passkeys/", second_factor.passkey_add, name="mfa_add_webauthn"),
    path(
        "account/second-factor/passkeys/<int:pk>/remove/",
        second_factor.passkey_remove,
        name="mfa_remove_webauthn",
    ),
]
