"""The life of a rank, whatever it computes: its start, its gate, its log, its end."""
