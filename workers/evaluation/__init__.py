"""An evaluation of a policy: the figures it reports and the protocol they were measured by."""
