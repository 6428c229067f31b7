"""Signing in, one's own account, and the people of a project."""

from django.urls import path

from apps.accounts import views

app_name = "accounts"
urlpatterns = [
    path("sign-in/", views.SignIn.as_view(), name="sign_in"),
    path("sign-out/", views.sign_out, name="sign_out"),
    path("account/", views.account, name="account"),
    path("account/theme/", views.theme, name="theme"),
    path("p/<slug:slug>/", views.project, name="project"),
]
