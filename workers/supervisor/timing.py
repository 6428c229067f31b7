"""Seconds between this and that, nearly all of them fractions of the lease."""

from dataclasses import dataclass

from workers.contract.jobs import Limits


@dataclass(frozen=True, slots=True)
class Timing:
    lease_s: float
    grace_s: float  # between a polite wish and the kill
    max_s: float

    @classmethod
    def of(cls, limits: Limits) -> "Timing":
        return cls(float(limits.lease_s), float(limits.grace_s), float(limits.max_s))

    @property
    def renew_s(self) -> float:
        return self.lease_s / 6

    @property
    def retry_s(self) -> float:
        return min(1.0, self.renew_s)

    @property
    def batch_s(self) -> float:
        """Between two batches of events."""
        return min(0.5, self.lease_s / 10)

    @property
    def heartbeat_s(self) -> float:
        return min(5.0, self.lease_s / 3)

    @property
    def polite_age_s(self) -> float:
        """Age of an unrenewed lease at which the trainer is asked to save and end."""
        return self.lease_s * 2 / 3

    @property
    def kill_age_s(self) -> float:
        """Age at which it is killed: before anybody else can claim the run."""
        return self.lease_s * 0.9

    @property
    def drain_s(self) -> float:
        """How long to wait for the web side after the trainer's end; then the spool stays."""
        return self.lease_s * 10

    @property
    def drain_at_shutdown_s(self) -> float:
        return min(3.0, self.lease_s)
