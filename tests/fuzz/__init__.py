"""Fuzzing: whatever bytes come in, only the project's own errors come out, within bounds of time and memory."""
