"""The results store: run folders with their tables and manifests, sweeps, baselines and queries."""
