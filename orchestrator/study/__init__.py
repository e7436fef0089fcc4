"""A paper's measurements as one sweep, and its page."""
