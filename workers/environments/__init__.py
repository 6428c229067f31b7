"""Small worlds in which a policy acts by calling tools: what a task begins with, what the tools do,
and what the world must look like at the end. No torch; nothing here touches disk or network."""
