"""Signing in, one's own account, and the people of a project."""

from django.urls import path

from apps.accounts.views import account, people

app_name = "accounts"
urlpatterns = [
    path("sign-in/", account.SignIn.as_view(), name="sign_in"),
    path("sign-out/", account.sign_out, name="sign_out"),
    path("account/", account.account, name="account"),
    path("account/profile/", account.profile, name="profile"),
    path("account/theme/", account.theme, name="theme"),
    path("account/password/", account.password, name="password"),
    path("account/tokens/", account.token_create, name="token_create"),
    path("account/tokens/<str:token_id>/revoke/", account.token_revoke, name="token_revoke"),
    path("p/<slug:slug>/", account.project, name="project"),
    path("p/<slug:slug>/people/", people.people, name="people"),
    path("p/<slug:slug>/people/add/", people.person_add, name="person_add"),
    path("p/<slug:slug>/people/create/", people.person_create, name="person_create"),
    path("p/<slug:slug>/people/<int:user_id>/", people.person, name="person"),
    path("p/<slug:slug>/people/<int:user_id>/role/", people.person_role, name="person_role"),
    path("p/<slug:slug>/people/<int:user_id>/remove/", people.person_remove, name="person_remove"),
    path("p/<slug:slug>/audit-log/", people.audit_log, name="audit_log"),
]
