"""Incidents and who hears of them; models in service, their probes, and what the world says."""

from apps.monitoring.models.incidents import Channel, Delivery, Incident, IncidentEntry, Mute
from apps.monitoring.models.service import Outcome, ProbeResult, Watch

__all__ = [
    "Channel",
    "Delivery",
    "Incident",
    "IncidentEntry",
    "Mute",
    "Outcome",
    "ProbeResult",
    "Watch",
]
