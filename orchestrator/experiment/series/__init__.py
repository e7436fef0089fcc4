"""Files that mean many experiments: sweeps and their axes, studies."""
