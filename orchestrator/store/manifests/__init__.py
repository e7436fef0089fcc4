"""What a manifest says, as typed records, and the one place that reads and writes it."""
