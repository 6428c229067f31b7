"""What an API token may be used for. A token never allows more than its person's role does."""

SCOPES: dict[str, str] = {
    "read": "read what the person may read",
    "label": "ask for comparisons and vote",
    "write": "create projects, import, freeze snapshots",
    "train": "start, stop and cancel runs",
    "approve": "approve, reject and retire reward models",
    "admin": "change people and roles",
}
DEFAULT_SCOPES = ("read",)
