"""Questions that figures ask of runs: functions that give rows of measurements, and functions that change rows."""
