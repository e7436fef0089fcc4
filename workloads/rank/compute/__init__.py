"""Models that compute, or take the time that computing would take."""
