"""Named starting points for each kind. No torch."""

PRESETS: dict[str, dict[str, dict[str, object]]] = {}
