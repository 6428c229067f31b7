"""What crosses the door between the web side and the GPU side: `JobSpec` in, `Event`s out.

Frozen, versioned dataclasses and their JSON form; standard library only, so that either side can
be upgraded first. A newer field is ignored, a newer `version` or type is kept until the upgrade
(`NewerPeer`).
"""

from workers.contract.events import (
    Alert,
    ArtifactSaved,
    Cancelled,
    CheckpointSaved,
    Envelope,
    Event,
    Evidence,
    Failed,
    Fault,
    Finished,
    Generated,
    Histogram,
    Log,
    Metrics,
    Opened,
    Progress,
    ReviewRequested,
    Sample,
    SplitRead,
    envelope_from_json,
    envelope_to_json,
)
from workers.contract.jobs import InputRef, JobSpec, Limits, Resume, spec_from_json, spec_to_json
from workers.contract.wire import ContractError, NewerPeer

__all__ = [
    "Alert",
    "ArtifactSaved",
    "Cancelled",
    "CheckpointSaved",
    "ContractError",
    "Envelope",
    "Event",
    "Evidence",
    "Failed",
    "Fault",
    "Finished",
    "Generated",
    "Histogram",
    "InputRef",
    "JobSpec",
    "Limits",
    "Log",
    "Metrics",
    "NewerPeer",
    "Opened",
    "Progress",
    "Resume",
    "ReviewRequested",
    "Sample",
    "SplitRead",
    "envelope_from_json",
    "envelope_to_json",
    "spec_from_json",
    "spec_to_json",
]
