"""From an experiment to its runs, and whether the machines have what these take."""
