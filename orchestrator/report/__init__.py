"""From sealed results to pages and figures."""
