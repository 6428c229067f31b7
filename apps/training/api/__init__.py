"""The API of this app, a router a subject."""
