"""Which code a run was launched with: found the same way on either side of the wire."""

from workers.contract.code_version import DIRTY, UNKNOWN, code_version

__all__ = ["DIRTY", "UNKNOWN", "code_version"]
