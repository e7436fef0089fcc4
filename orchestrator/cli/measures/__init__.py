"""Commands of the group that measures: `orch predict`, `sweep` and `study`."""
