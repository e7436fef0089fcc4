"""Programs that run on the hosts: pushed as they are, side by side in one folder, importing nothing of orch."""
