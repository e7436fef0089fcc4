"""Rows that figures of papers would be given where all is as the papers print it."""
