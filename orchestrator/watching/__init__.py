"""Watch runs and sweeps while they go on, from another process: at a terminal, or on a page of this machine."""
