"""SCIM 2.0 for the organisation's directory, by `django_scim`: people alone, no groups.

Roles are given by claims at the sign-in or by hand. Every change goes through the services of this
app, so that it is checked and recorded as any other; a password that is sent is left out.

The library reads which classes it shall use while its own modules are imported: a module here
imports no more of it than it needs.
"""
