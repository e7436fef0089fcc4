"""Compare runs with runs: selection, tests and verdicts, histories of nights, curves over load."""
