"""Commands to begin with: `orch init`, `prepare`, `completion`, `schema` and `traffic`."""
